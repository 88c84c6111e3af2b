#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the engine's PixArt with diffusers' PixArtTransformer2DModel, square and not.

usage: pixart_oracle.py RUN_PIXART_PROGRAM

Exit status 77, which ctest counts as skipped, if diffusers is not installed: ./dev setup installs
it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRATCH = tempfile.TemporaryDirectory(prefix="skerry-pixart-")
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=SCRATCH.name, OMP_NUM_THREADS="1")

try:
    import torch
    from diffusers import PixArtTransformer2DModel
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; ./dev setup installs diffusers beside LibTorch")
    sys.exit(77)

torch.set_num_threads(1)
LIMIT = 1e-5
PROGRAM = sys.argv[1]


def random_model(**over):
    """Random weights, none of them at the value that it starts from."""
    torch.manual_seed(1)
    kind = {
        "num_attention_heads": 2,
        "attention_head_dim": 24,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 3,
        "sample_size": 16,
        "patch_size": 2,
        "cross_attention_dim": 48,
        "caption_channels": 40,
        "interpolation_scale": 1,
        "use_additional_conditions": False,
    }
    made = PixArtTransformer2DModel(**kind | over).eval()
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return made


def inputs_for(model, height, width):
    """Four samples, whose captions have from 1 to 11 tokens."""
    numbers = torch.Generator().manual_seed(2)
    mask = torch.zeros(4, 11)
    for row, length in enumerate((11, 1, 5, 7)):
        mask[row, :length] = 1
    return {
        "x": torch.randn(4, model.config.in_channels, height, width, generator=numbers),
        "t": torch.tensor([0.0, 0.4173, 0.999, 1.0]),
        "captions": torch.randn(4, 11, model.config.caption_channels, generator=numbers),
        "mask": mask,
    }


def shape_of(config):
    return {
        "image_size": config.sample_size,
        "channels": config.in_channels,
        "patch_size": config.patch_size,
        "width": config.num_attention_heads * config.attention_head_dim,
        "depth": config.num_layers,
        "heads": config.num_attention_heads,
        "classes": 0,
        "caption_dim": config.caption_channels,
        "interpolation_scale": config.interpolation_scale,
    }


@torch.no_grad()
def difference(model, height, width):
    given = inputs_for(model, height, width)
    theirs = model(
        given["x"],
        encoder_hidden_states=given["captions"],
        timestep=1000 * given["t"],
        encoder_attention_mask=given["mask"],
        added_cond_kwargs={"resolution": None, "aspect_ratio": None},
    ).sample
    folder = pathlib.Path(SCRATCH.name)
    metadata = {key: str(value) for key, value in shape_of(model.config).items()}
    save_file({**model.state_dict(), **given}, folder / "in", metadata)
    subprocess.run([PROGRAM, folder / "in", folder / "out"], check=True)
    ours = load_file(folder / "out")["velocity"]
    return (ours - theirs).abs().max().item()


class Forward(unittest.TestCase):
    def test_square(self):
        self.assertLess(difference(random_model(), 16, 16), LIMIT)

    def test_not_square(self):
        self.assertLess(difference(random_model(), 12, 20), LIMIT)
        self.assertLess(difference(random_model(), 24, 8), LIMIT)

    def test_stretched_positions(self):
        for scale in (0.5, 2):
            model = random_model(sample_size=32, interpolation_scale=scale)
            self.assertLess(difference(model, 32, 32), LIMIT)
            self.assertLess(difference(model, 8, 24), LIMIT)

    def test_patches_of_four_and_many_channels(self):
        model = random_model(patch_size=4, in_channels=16, out_channels=16)
        self.assertLess(difference(model, 16, 24), LIMIT)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
