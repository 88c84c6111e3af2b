#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step that tests/bench/train_bench.cc times, written in PyTorch.

It has the same model, where a PixArt is diffusers' own, and the same batch, loss, clipping, AdamW
and mean of weights, each by PyTorch's fastest means (fused AdamW, foreach elsewhere).

usage: train_rival.py JSON

JSON has image_size, channels, patch_size, width, depth, heads, classes, batch_size and precision,
of a PixArt caption_dim and caption_tokens, and the device where it is not "cpu".

Reads lines "ARM STEPS" and answers each with the seconds of the steps, of the processor or of a
card; an arm is warmed up at its first use. ARM is eager/ATTENTION or compile/ATTENTION. ATTENTION
is sdpa (PyTorch's own choice), math (its plain backend) or bmm (two products and a softmax).
"""

import contextlib
import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SPEC = json.loads(sys.argv[1])
WIDTH, HEADS, PATCH, SIZE, CHANNELS = (
    SPEC[k] for k in ("width", "heads", "patch_size", "image_size", "channels")
)
BATCH, CLASSES, GRID = SPEC["batch_size"], SPEC["classes"], SPEC["image_size"] // SPEC["patch_size"]
BF16 = SPEC["precision"] == "bf16"
DEVICE = SPEC.get("device", "cpu")


def modulate(x, shift, scale):
    return F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale) + shift


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp_in, self.mlp_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        if self.attention == "bmm":
            scores = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
            mixed = scores.softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, n, WIDTH))

    def forward(self, x, activated):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(activated)[
            :, None
        ].chunk(6, 2)
        x = x + gate_a * self.attend(modulate(x, shift_a, scale_a))
        inner = F.gelu(self.mlp_in(modulate(x, shift_m, scale_m)), approximate="tanh")
        return x + gate_m * self.mlp_out(inner)


class Dit(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH * CHANNELS, WIDTH)
        self.positions = nn.Buffer(torch.randn(1, GRID * GRID, WIDTH))
        self.time_in, self.time_out = nn.Linear(256, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.labels = nn.Embedding(CLASSES + 1, WIDTH)
        self.blocks = nn.ModuleList([Block(attention) for _ in range(SPEC["depth"])])
        self.final_modulation = nn.Linear(WIDTH, 2 * WIDTH)
        self.final = nn.Linear(WIDTH, PATCH * PATCH * CHANNELS)

    def forward(self, x, t, labels):
        rows = (
            x.view(-1, CHANNELS, GRID, PATCH, GRID, PATCH)
            .permute(0, 2, 4, 1, 3, 5)
            .reshape(-1, GRID * GRID, CHANNELS * PATCH * PATCH)
        )
        steps = torch.arange(128, device=DEVICE) / 127
        angle = 1000 * t[:, None] * torch.exp(-math.log(10000.0) * steps)
        features = torch.cat([angle.cos(), angle.sin()], 1)
        activated = F.silu(self.time_out(F.silu(self.time_in(features))) + self.labels(labels))
        h = self.patches(rows) + self.positions
        for block in self.blocks:
            h = block(h, activated)
        shift, scale = self.final_modulation(activated)[:, None].chunk(2, 2)
        out = self.final(modulate(h, shift, scale)).view(-1, GRID, GRID, PATCH, PATCH, CHANNELS)
        return out.permute(0, 5, 1, 3, 2, 4).reshape(-1, CHANNELS, SIZE, SIZE)


class Pixart(nn.Module):
    """Diffusers' own. A label is the number of a caption, the last one the null caption."""

    def __init__(self, attention):
        from diffusers import PixArtTransformer2DModel
        from diffusers.models.attention_processor import AttnProcessor

        super().__init__()
        self.model = PixArtTransformer2DModel(
            num_attention_heads=HEADS,
            attention_head_dim=WIDTH // HEADS,
            in_channels=CHANNELS,
            out_channels=CHANNELS,
            num_layers=SPEC["depth"],
            cross_attention_dim=WIDTH,
            sample_size=SIZE,
            patch_size=PATCH,
            interpolation_scale=1.0,
            use_additional_conditions=False,
            caption_channels=SPEC["caption_dim"],
        )
        if attention == "bmm":
            self.model.set_attn_processor(AttnProcessor())
        shape = (CLASSES + 1, SPEC["caption_tokens"], SPEC["caption_dim"])
        self.captions = nn.Buffer(torch.randn(shape))
        self.mask = nn.Buffer(torch.ones(1, SPEC["caption_tokens"]))

    def forward(self, x, t, labels):
        return self.model(
            x,
            encoder_hidden_states=self.captions[labels],
            encoder_attention_mask=self.mask.expand(len(x), -1),
            timestep=1000 * t,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ).sample


class Arm:
    def __init__(self, name):
        how, self.attention = name.split("/")
        kind = Pixart if SPEC.get("caption_dim") else Dit
        model = kind(self.attention).to(DEVICE).train()
        self.parameters = list(model.parameters())
        self.means = [p.detach().clone() for p in self.parameters]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=1e-4, weight_decay=0, fused=True)
        self.images = torch.randint(0, 256, (256, CHANNELS, SIZE, SIZE), dtype=torch.uint8)
        self.images = self.images.to(DEVICE)
        self.loss = torch.compile(self.loss_of) if how == "compile" else self.loss_of
        self.model = model
        self.step()

    def loss_of(self, x_t, t, labels, target):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=BF16):
            return F.mse_loss(self.model(x_t, t, labels), target)

    def backend(self):
        return (
            sdpa_kernel(SDPBackend.MATH) if self.attention == "math" else contextlib.nullcontext()
        )

    def step(self):
        x0 = self.images[torch.randint(0, 256, (BATCH,), device=DEVICE)].float() / 127.5 - 1
        t, noise = torch.rand(BATCH, device=DEVICE), torch.randn_like(x0)
        time_of = t.view(-1, 1, 1, 1)
        labels = torch.where(torch.rand(BATCH, device=DEVICE) < 0.1, CLASSES, 0)
        with self.backend():
            self.loss((1 - time_of) * x0 + time_of * noise, t, labels, noise - x0).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(self.means, self.parameters, 1e-4)


def clock():
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.monotonic()


def main():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    arms = {}
    for line in sys.stdin:
        name, steps = line.split()
        if name not in arms:
            arms[name] = Arm(name)
        begin = clock()
        for _ in range(int(steps)):
            arms[name].step()
        print(clock() - begin, flush=True)


if __name__ == "__main__":
    main()
