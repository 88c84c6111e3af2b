#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the engine's training steps in plain PyTorch and compares every value, bit for bit.

usage: oracle.py TRAINING_TRANSCRIPT_PROGRAM

The values are weights, moments and means. The model below is diffusers' DiTTransformer2DModel as
nn.Modules of the same names, with its label and time embedder once; the optimiser is
torch.optim.AdamW. It shares nothing with the engine but the numbers that the engine drew.

Two ways to write a term may round differently (addcmul or a product and a sum, one SiLU or one a
block). Such a term is written as in the engine: any other form would be close, and this test
requires equality.
"""

import json
import math
import struct
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 3
WIDTH, DEPTH, HEADS, PATCH, SIZE, CHANNELS, CLASSES = 32, 2, 4, 3, 12, 2, 5
LEARNING_RATE, WARMUP, CLIP, WEIGHT_DECAY, EMA = 3e-3, 2, 0.5, 0.01, 0.9999
TYPES = {"F32": torch.float32, "I64": torch.int64}


def load(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = bytearray(data[8 + length :])
    return {
        name: torch.frombuffer(
            body[t["data_offsets"][0] : t["data_offsets"][1]], dtype=TYPES[t["dtype"]]
        )
        .reshape(t["shape"])
        .clone()
        for name, t in header.items()
    }


class OneDnnProduct(torch.autograd.Function):
    """input · weightᵀ + bias by oneDNN, as the engine on the CPU: F.linear rounds differently."""

    @staticmethod
    def product(x, weight, bias=None):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return OneDnnProduct.product(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        g = g.contiguous()
        return (
            OneDnnProduct.product(g, weight.t()),
            OneDnnProduct.product(x.t(), g.t()).t().contiguous(),
            g.sum(0),
        )


PLAIN = not torch.backends.mkldnn.is_available()


def linear(x, weight, bias):
    if PLAIN:
        return F.linear(x, weight, bias)
    rows = OneDnnProduct.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return rows.view(*x.shape[:-1], weight.shape[0])


class Linear(nn.Linear):
    def forward(self, x):
        return linear(x, self.weight, self.bias)


class Named(nn.Module):
    """A module with the children given, so that parameter names come out as diffusers has them."""

    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)


def sin_cos_1d(width, positions):
    omega = 1.0 / 10000 ** (torch.arange(width // 2, dtype=torch.float64) / (width / 2.0))
    out = torch.outer(positions.reshape(-1), omega)
    return torch.cat([out.sin(), out.cos()], dim=1)


def sin_cos_2d(width, grid):
    steps = torch.arange(grid, dtype=torch.float64)
    columns, rows = torch.meshgrid(steps, steps, indexing="xy")
    return (
        torch.cat([sin_cos_1d(width // 2, columns), sin_cos_1d(width // 2, rows)], dim=1)
        .float()
        .unsqueeze(0)
    )


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.timestep_embedder = Named(linear_1=Linear(256, WIDTH), linear_2=Linear(WIDTH, WIDTH))
        self.class_embedder = Named(embedding_table=nn.Embedding(CLASSES + 1, WIDTH))

    def forward(self, t, labels):
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(128, dtype=torch.float32) / 127)
        angle = (1000.0 * t)[:, None] * frequencies[None, :]
        features = torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1)
        time = self.timestep_embedder.linear_2(F.silu(self.timestep_embedder.linear_1(features)))
        return time + self.class_embedder.embedding_table(labels)


class Norm(nn.Module):
    def __init__(self, first):
        super().__init__()
        if first:
            self.emb = Embedder()
        self.linear = Linear(WIDTH, 6 * WIDTH)


def normal(x):
    return F.layer_norm(x, (WIDTH,), eps=1e-6)


class Block(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.norm1 = Norm(first)
        self.attn1 = Named(
            to_q=Linear(WIDTH, WIDTH),
            to_k=Linear(WIDTH, WIDTH),
            to_v=Linear(WIDTH, WIDTH),
            to_out=nn.ModuleList([Linear(WIDTH, WIDTH)]),
        )
        self.ff = Named(
            net=nn.ModuleList(
                [Named(proj=Linear(WIDTH, 4 * WIDTH)), nn.Identity(), Linear(4 * WIDTH, WIDTH)]
            )
        )

    def attend(self, x):
        b, n, _ = x.shape
        q, k, v = (
            layer(x)
            .view(b, n, HEADS, WIDTH // HEADS)
            .transpose(1, 2)
            .reshape(b * HEADS, n, WIDTH // HEADS)
            for layer in (self.attn1.to_q, self.attn1.to_k, self.attn1.to_v)
        )
        q = q * (1.0 / math.sqrt(WIDTH // HEADS))
        scores = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
        out = torch.bmm(scores, v).view(b, HEADS, n, WIDTH // HEADS)
        return self.attn1.to_out[0](out.transpose(1, 2).reshape(b, n, WIDTH))

    def forward(self, x, activated):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (
            self.norm1.linear(activated).unsqueeze(1).chunk(6, 2)
        )
        x = torch.addcmul(x, self.attend(torch.addcmul(shift_a, normal(x), 1 + scale_a)), gate_a)
        inner = F.gelu(
            self.ff.net[0].proj(torch.addcmul(shift_m, normal(x), 1 + scale_m)), approximate="tanh"
        )
        return torch.addcmul(x, self.ff.net[2](inner), gate_m)


class Dit(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embed = Named(proj=nn.Conv2d(CHANNELS, WIDTH, PATCH, PATCH))
        self.transformer_blocks = nn.ModuleList([Block(i == 0) for i in range(DEPTH)])
        self.proj_out_1 = Linear(WIDTH, 2 * WIDTH)
        self.proj_out_2 = Linear(WIDTH, PATCH * PATCH * CHANNELS)
        self.positions = sin_cos_2d(WIDTH, SIZE // PATCH)

    def forward(self, x, t, labels):
        grid = SIZE // PATCH
        activated = F.silu(self.transformer_blocks[0].norm1.emb(t, labels))
        # As a matrix product: a convolution sums in another order.
        patches = F.unfold(x, PATCH, stride=PATCH).transpose(1, 2)
        h = (
            linear(patches, self.pos_embed.proj.weight.flatten(1), self.pos_embed.proj.bias)
            + self.positions
        )
        for block in self.transformer_blocks:
            h = block(h, activated)
        shift, scale = self.proj_out_1(activated).unsqueeze(1).chunk(2, 2)
        h = self.proj_out_2(torch.addcmul(shift, normal(h), 1 + scale))
        h = h.reshape(-1, grid, grid, PATCH, PATCH, CHANNELS)
        return torch.einsum("nhwpqc->nchpwq", h).reshape(-1, CHANNELS, SIZE, SIZE)


def learning_rate(step):
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    return (
        LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (STEPS - WARMUP))))
    )


def compare(step, part, ours, theirs):
    """theirs: name -> tensor. Returns the names that differ."""
    assert ours and set(ours) == set(
        theirs
    ), f"{part}: other names: {sorted(set(ours) ^ set(theirs))[:4]}"
    wrong = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    for name in wrong[:5]:
        print(
            f"step {step}: {part}/{name} differs by up to "
            f"{(ours[name] - theirs[name]).abs().max().item():.3g}"
        )
    return wrong


def part_of(snapshot, part):
    return {
        name.removeprefix(part + "/"): t
        for name, t in snapshot.items()
        if name.startswith(part + "/")
    }


def check_products(model, batch):
    """The products above against PyTorch's own: the same numbers, rounded otherwise."""
    global PLAIN

    def gradients():
        loss = F.mse_loss(model(batch["x_t"], batch["t"], batch["labels"]), batch["target"])
        return torch.autograd.grad(loss, list(model.parameters()))

    ours, before = gradients(), PLAIN
    PLAIN = True
    for mine, own in zip(ours, gradients()):
        assert torch.allclose(mine, own, rtol=1e-3, atol=1e-6), (mine - own).abs().max()
    PLAIN = before


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="skerry-oracle-") as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        start = load(f"{folder}/start.safetensors")
        batches = [load(f"{folder}/batch-{s}.safetensors") for s in range(STEPS)]
        snapshots = [load(f"{folder}/after-{s}.safetensors") for s in range(STEPS)]
    model = Dit()
    model.load_state_dict(part_of(start, "raw"))
    means = {name: t.clone() for name, t in part_of(start, "ema").items()}
    optimiser = torch.optim.AdamW(
        model.parameters(),
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=WEIGHT_DECAY,
        lr=LEARNING_RATE,
        fused=True,
    )
    compared, wrong = 0, []
    check_products(model, batches[0])
    for step, batch in enumerate(batches):
        loss = F.mse_loss(model(batch["x_t"], batch["t"], batch["labels"]), batch["target"])
        optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.param_groups[0]["lr"] = learning_rate(step)
        optimiser.step()
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        for name, mean in means.items():
            mean.lerp_(parameters[name], 1 - min(EMA, (1 + step) / (10 + step)))
        states = {name: optimiser.state[p] for name, p in model.named_parameters()}
        print(
            f"step {step}: loss {loss.item():.6f}, gradient norm {norm.item():.4f}, labels dropped "
            f"{(batch['labels'] == CLASSES).sum().item()}"
        )
        for part, ours in (
            ("raw", parameters),
            ("ema", means),
            ("m", {n: s["exp_avg"] for n, s in states.items()}),
            ("v", {n: s["exp_avg_sq"] for n, s in states.items()}),
        ):
            wrong += compare(step, part, ours, part_of(snapshots[step], part))
            compared += len(ours)
    print(f"{compared - len(wrong)} of {compared} tensors equal bit for bit")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
