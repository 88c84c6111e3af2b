#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that start from public weights, as `[model] init` takes them.

Trains a toy of diffusers' DiTTransformer2DModel to predict the noise of diffusers' DDPMScheduler,
saves both as a pipeline does, and compares runs that start from it with runs that start at random:
by the velocity error of their ensembles on images that no run trained on.

usage: init_oracle.py FOLDER_OF_PROGRAMS

Exit status 77, which ctest counts as skipped, if diffusers is not installed: ./dev setup installs
it.
"""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if len(sys.argv) > 1 and pathlib.Path(sys.argv[1]).is_dir():
    os.environ["SKERRY_BIN"] = sys.argv.pop(1)  # case.py reads it
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from case import EndToEnd  # noqa: E402
from cluster import write_embeddings, write_idx  # noqa: E402

SCRATCH = tempfile.TemporaryDirectory(prefix="skerry-init-")
os.environ.update(HF_HOME=SCRATCH.name)
import torch  # noqa: E402

try:
    from diffusers import DDPMScheduler, DiTTransformer2DModel
except ImportError:
    sys.exit(77)

IMAGES, SIZE, STEPS = 600, 16, 30
TOP = pathlib.Path(SCRATCH.name)


def read_images(folder):
    raw = (folder / "train-images-idx3-ubyte").read_bytes()[16:]
    pixels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 1, SIZE, SIZE)
    return pixels.float() / 127.5 - 1


def train_on_noise(images, steps):
    """A DiT with a learned variance, and the scheduler whose noise it predicts."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=1,
        out_channels=2,
        num_layers=3,
        sample_size=SIZE,
        patch_size=4,
        num_embeds_ada_norm=10,
    ).train()
    # The label and time embedders are one for all blocks, as in public weights.
    first = model.transformer_blocks[0].norm1.emb
    for block in model.transformer_blocks:
        block.norm1.emb = first
    scheduler = DDPMScheduler(prediction_type="epsilon")
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0)
    for _ in range(steps):
        rows = torch.randint(len(images), (32,))
        noise, t = torch.randn(32, 1, SIZE, SIZE), torch.randint(1000, (32,))
        noisy = scheduler.add_noise(images[rows], noise, t)
        found = model(noisy, timestep=t, class_labels=rows % 10).sample
        loss = torch.nn.functional.mse_loss(found[:, :1], noise)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for block in model.transformer_blocks:  # which safetensors saves apart
        block.norm1.emb = copy.deepcopy(first)
    return model, scheduler


class Init(EndToEnd):
    def setUp(self):
        self.trainer = self.cluster(fake=False)
        self.trainer.start_coordinator()
        self.trainer.start_daemon("one")

    def train(self, name, **model):
        """A run of a few steps. Returns the folder of its ensemble."""
        keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in model.items())
        path = self.trainer.root / f"{name}.toml"
        path.write_text(
            f'name = "{name}"\ndataset = "bars"\n[model]\n{keys}[train]\nsteps = {STEPS}\n'
            "batch_size = 32\nlearning_rate = 1e-3\nema = 0\n[checkpoint]\nround_steps = 30\n"
        )
        self.trainer.run("run", "create", "-f", path)
        self.trainer.wait_run(name)
        folder = self.trainer.root / name
        self.trainer.run("ensemble", "fetch", name, "-o", folder)
        return folder

    def engine(self, *words):
        command = [self.trainer.bin / "skerry-engine", *words, "--device", "-1"]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def add_dataset(self, *options):
        self.dataset = self.trainer.root / "ingested"
        self.engine("ingest", TOP / "images", "--out", self.dataset, "--partitions", "1", *options)
        self.trainer.run("dataset", "add", "bars", self.dataset)

    def held_out_loss(self, ensemble):
        printed = self.engine("evaluate", self.dataset, "--velocity", ensemble, "-o", "json")
        levels = json.loads(printed)["velocity"]["levels"]
        return sum(level["own"] for level in levels) / len(levels)

    def test_weights_that_predict_noise_halve_the_loss_of_a_young_run(self):
        self.add_dataset()
        shape = {"width": 32, "depth": 3, "heads": 2, "patch_size": 4}
        random = self.held_out_loss(self.train("random", **shape))
        begun = self.held_out_loss(self.train("begun", init=str(TOP / "public/transformer")))
        spec = self.trainer.json("run", "show", "begun")["spec"]
        self.assertEqual({key: spec["model"][key] for key in shape}, shape)
        print(f"held-out loss after {STEPS} steps: {begun:.3f}, from random weights {random:.3f}")
        self.assertLess(begun, 0.5 * random)

    def test_weights_that_knew_labels_start_to_read_captions(self):
        captions = TOP / "captions.safetensors"
        write_embeddings(captions, IMAGES, 6, 16)
        self.add_dataset("--caption-embeddings", captions)
        random = self.held_out_loss(self.train("random", width=32, depth=3, heads=2, patch_size=4))
        begun = self.train("begun", init=str(TOP / "public/transformer"))
        config = json.loads((begun / "expert_0/config.json").read_text())
        self.assertEqual(config["_class_name"], "PixArtTransformer2DModel")
        loss = self.held_out_loss(begun)
        print(f"held-out loss after {STEPS} steps: {loss:.3f}, from random weights {random:.3f}")
        self.assertLess(loss, 0.5 * random)

        config = json.loads((TOP / "public/transformer/config.json").read_text())
        other = TOP / "other/transformer"
        other.mkdir(parents=True)
        for name, keys in {
            "captions of 12 numbers a token": {"use_additional_conditions": False},
            "micro-conditions": {"use_additional_conditions": True},
        }.items():
            pixart = {"_class_name": "PixArtTransformer2DModel", "caption_channels": 12, **keys}
            (other / "config.json").write_text(json.dumps({**config, **pixart}))
            (self.trainer.root / "other.toml").write_text(
                f'name = "other"\ndataset = "bars"\n[model]\ninit = "{other}"\n[train]\nsteps = 1\n'
            )
            done = self.trainer.run(
                "run", "create", "-f", self.trainer.root / "other.toml", check=False
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(name, done.stderr)


def setUpModule():
    write_idx(TOP / "images", IMAGES, size=SIZE)
    write_idx(TOP / "others", IMAGES, size=SIZE, seed=4)
    model, scheduler = train_on_noise(read_images(TOP / "others"), 800)
    model.half().save_pretrained(TOP / "public/transformer", max_shard_size="100KB")
    scheduler.save_pretrained(TOP / "public/scheduler")


if __name__ == "__main__":
    unittest.main()
