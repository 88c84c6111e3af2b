#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the engine's AutoencoderKL with diffusers' (from PyPI), encoding and decoding.

Then turns latents from a NumPy file into pictures, through the engine's own commands.

usage: autoencoder_oracle.py RUN_AUTOENCODER_PROGRAM SKERRY_ENGINE

Exit status 77, which ctest counts as skipped, if diffusers is not installed: ./dev setup installs
it.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SCRATCH = tempfile.TemporaryDirectory(prefix="skerry-autoencoder-")
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=SCRATCH.name, OMP_NUM_THREADS="1")

try:
    import numpy
    import torch
    from diffusers import AutoencoderKL
    from PIL import Image
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; ./dev setup installs diffusers beside LibTorch")
    sys.exit(77)

torch.set_num_threads(1)
LIMIT = 1e-5
KILLS = int(os.environ.get("SKERRY_KILLS", 6))
KINDS = {
    "as Stable Diffusion's": {
        "latent_channels": 4,
        "block_out_channels": (8, 16, 24),
        "layers_per_block": 2,
    },
    "as Flux's": {
        "latent_channels": 16,
        "block_out_channels": (16, 8),
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
    },
    "one block, no attention, grey": {
        "latent_channels": 3,
        "block_out_channels": (8,),
        "out_channels": 1,
        "mid_block_add_attention": False,
    },
}


def autoencoder(**kind):
    """Random weights, none of them at the value that it starts from."""
    torch.manual_seed(1)
    blocks = len(kind["block_out_channels"])
    made = AutoencoderKL(
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        **kind,
    ).eval()
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return made


def latents_for(made, count=5):
    return torch.randn(count, made.config.latent_channels, 8, 8, generator=torch.manual_seed(2))


@torch.no_grad()
def theirs(made, latents):
    return made.decode(latents).sample


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(dir=SCRATCH.name)
        self.addCleanup(made.cleanup)
        self.top = pathlib.Path(made.name)

    def saved(self, made, name="vae"):
        made.save_pretrained(self.top / name)
        return self.top / name


class Decoding(Case):
    def decode(self, path, latents):
        """The engine's images, or why it refused."""
        save_file({"latents": latents}, self.top / "latents")
        ran = subprocess.run(
            [RUN, "decode", path, self.top / "latents", self.top / "images"],
            capture_output=True,
            text=True,
        )
        return ran.stderr if ran.returncode else load_file(self.top / "images")["images"]

    def assert_same(self, expected, found, limit=LIMIT):
        self.assertNotIsInstance(found, str, found)
        self.assertEqual(expected.shape, found.shape)
        self.assertGreater(expected.abs().max().item(), 0.1)
        self.assertLess((expected - found).abs().max().item(), limit)

    def test_every_kind_as_diffusers_does(self):
        for name, kind in KINDS.items():
            with self.subTest(name):
                made = autoencoder(**kind)
                latents = latents_for(made)
                self.assert_same(
                    theirs(made, latents), self.decode(self.saved(made, name), latents)
                )

    def test_torchscript(self):
        made = autoencoder(**KINDS["as Stable Diffusion's"])
        latents = latents_for(made)

        class Decoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.made = made

            def forward(self, z):
                return self.made.decode(z, return_dict=False)[0]

        torch.jit.trace(Decoder().eval(), latents).save(self.top / "decoder.pt")
        self.assert_same(theirs(made, latents), self.decode(self.top / "decoder.pt", latents))

    def test_names_of_older_versions_and_weights_of_16_bits(self):
        made = autoencoder(**KINDS["as Stable Diffusion's"]).half().float()
        folder, latents = self.saved(made), latents_for(made)
        weights = folder / "diffusion_pytorch_model.safetensors"
        older = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}

        def renamed(name):
            for now, before in older.items():
                name = name.replace(f"attentions.0.{now}.", f"attentions.0.{before}.")
            return name

        save_file(
            {renamed(name): tensor.half() for name, tensor in load_file(weights).items()}, weights
        )
        self.assert_same(theirs(made, latents), self.decode(folder, latents))

    def test_what_cannot_be_decoded_with_says_why(self):
        made = autoencoder(**KINDS["as Stable Diffusion's"])
        latents = latents_for(made)
        folder = self.saved(made)
        weights = folder / "diffusion_pytorch_model.safetensors"
        whole = load_file(weights)
        name = "decoder.up_blocks.1.resnets.0.conv_shortcut.weight"
        save_file({key: value for key, value in whole.items() if key != name}, weights)
        self.assertIn(f"tensor {name} is missing", self.decode(folder, latents))
        save_file({**whole, name: whole[name][:, :1].contiguous()}, weights)
        self.assertIn(
            f"tensor {name}: expected floats [16, 24, 1, 1], found F32 [16, 1, 1, 1]",
            self.decode(folder, latents),
        )
        weights.unlink()
        self.assertIn(str(weights), self.decode(folder, latents))
        self.assertIn("is not there", self.decode(self.top / "nothing", latents))
        (self.top / "text").write_text("no TorchScript")
        self.assertIn(
            "expected TorchScript, or the folder of an AutoencoderKL",
            self.decode(self.top / "text", latents),
        )


class Encoding(Case):
    def test_every_kind_as_diffusers_does(self):
        for name, kind in KINDS.items():
            with self.subTest(name):
                made = autoencoder(**kind)
                images = torch.randn(5, 3, 32, 32, generator=torch.manual_seed(3)).clamp(-1, 1)
                save_file({"images": images}, self.top / "images")
                ran = subprocess.run(
                    [RUN, "encode", self.saved(made, name), self.top / "images", self.top / "out"],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(0, ran.returncode, ran.stderr)
                found = load_file(self.top / "out")["latents"]
                with torch.no_grad():
                    expected = made.encode(images).latent_dist.mean
                self.assertEqual(expected.shape, found.shape)
                self.assertGreater(expected.abs().max().item(), 0.1)
                self.assertLess((expected - found).abs().max().item(), LIMIT)


def write_pictures(folder, count, size=32):
    """Noise in two classes. Returns each picture's path and pixels [S,S,3], in order of path."""
    drawn = numpy.random.RandomState(4)
    pictures = {}
    for number in range(count):
        path = folder / f"kind-{number % 2}" / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures[path] = drawn.randint(0, 256, (size, size, 3), numpy.uint8)
        Image.fromarray(pictures[path]).save(path)
    return sorted(pictures.items())


class FromPicturesToLatents(Case):
    """A folder of pictures → ingest --vae."""

    COUNT = 100

    def setUp(self):
        super().setUp()
        self.made = autoencoder(**KINDS["as Flux's"])
        self.vae = self.saved(self.made)
        self.pictures = write_pictures(self.top / "in", self.COUNT)

    def ingest(self, out, *words, vae=None):
        return [ENGINE, "ingest", self.top / "in", "--out", self.top / out, "--partitions", "2",
                "--image-size", "32", "--device", "-1", "--progress", "json",
                "--vae", vae or self.vae, *words]  # fmt: skip

    def files(self, out):
        return {path.name: path.read_bytes() for path in (self.top / out).iterdir()}

    def test_shards_hold_what_diffusers_encodes(self):
        ran = subprocess.run(self.ingest("out"), capture_output=True, text=True)
        self.assertEqual(0, ran.returncode, ran.stderr)
        index = json.loads((self.top / "out/dataset.json").read_text())
        self.assertEqual({"scale": 0.3611, "shift": 0.1159}, index["latents"])
        self.assertEqual((16, 16), (index["channels"], index["image_size"]))
        images = torch.stack(
            [torch.from_numpy(pixels).permute(2, 0, 1) for _, pixels in self.pictures]
        )
        with torch.no_grad():
            means = self.made.encode(images / 127.5 - 1).latent_dist.mean
        wanted = (means - 0.1159) * 0.3611
        found = []
        for file in index["files"]:
            if file["role"] in ("shard", "fit", "test"):
                found.append(load_file(self.top / "out" / file["name"])["latents"].float())
        found = torch.cat(found).flatten(1)
        distances = torch.cdist(found.double(), wanted.flatten(1).double(), p=float("inf"))
        nearest = distances.min(1)
        self.assertEqual(sorted(nearest.indices.tolist()), list(range(self.COUNT)))
        self.assertLess(nearest.values.max().item(), wanted.abs().max().item() * 2**-10)
        self.assertFalse((self.top / "out.encoded").exists())

    def test_killed_again_and_again_it_ends_with_the_same_bytes(self):
        subprocess.run(self.ingest("whole"), check=True, capture_output=True)
        kept = self.top / "killed.encoded"
        kills = 0
        while True:
            before = kept.stat().st_size if kept.exists() else 0
            engine = subprocess.Popen(self.ingest("killed"), stdout=subprocess.PIPE)
            while engine.poll() is None and kills < KILLS:
                if kept.exists() and kept.stat().st_size > before:
                    engine.kill()
                    kills += 1
                    break
            told = engine.communicate()[0]
            if engine.returncode == 0:
                break
            self.assertEqual(-9, engine.returncode)
        self.assertGreater(kills, 2)
        self.assertGreater(json.loads(told.splitlines()[-1])["resumed"], 0)
        self.assertEqual(self.files("whole"), self.files("killed"))

    def test_what_cannot_be_encoded_with_says_why(self):
        for words, vae, why in (
            (["--latent-scale", "0.5"], None, "says how its latents are scaled (0.3611, shift"),
            (["--latents-scaled"], None, "leave it out beside --vae"),
            ([], self.top / "nothing", "is not there: expected the folder of an AutoencoderKL"),
        ):
            ran = subprocess.run(
                self.ingest("out", *words, vae=vae), capture_output=True, text=True
            )
            self.assertIn(ran.returncode, (2, 3))
            self.assertIn(why, ran.stderr)
            self.assertFalse((self.top / "out").exists())


def png_size(path):
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n", path
    return struct.unpack(">II", header[16:24])


class FromLatentsToPictures(Case):
    """numpy.save → ingest → train → sample --vae. Writes the ensemble's folder as `ensemble fetch`
    would.
    """

    SHAPE = {"width": 16, "depth": 1, "heads": 2, "patch_size": 4}

    def engine(self, *words):
        ran = subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True)
        self.told = ran.stderr
        return ran.returncode

    def assert_runs(self, *words):
        self.assertEqual(0, self.engine(*words), self.told)

    def ensemble(self, *scale):
        numpy.random.seed(0)
        latents = 5 * numpy.random.randn(40, 4, 8, 8).astype(numpy.float32)
        numpy.save(self.top / "latents.npy", latents)
        numpy.save(self.top / "labels.npy", numpy.arange(40) % 2)
        dataset, folder, expert = (
            self.top / "dataset",
            self.top / "ensemble",
            self.top / "ensemble/expert_0",
        )
        self.assert_runs(
            "ingest", self.top / "latents.npy", "--out", dataset, "--partitions", 1, *scale
        )
        self.assert_runs(
            "train",
            "--standalone",
            "--dataset",
            dataset,
            "--out",
            self.top / "checkpoint",
            "--device",
            -1,
            "--steps",
            5,
            "--batch-size",
            4,
            "--width",
            16,
            "--depth",
            1,
            "--heads",
            2,
            "--patch-size",
            4,
        )
        expert.mkdir(parents=True)
        (folder / "router").mkdir()
        weights = load_file(self.top / "checkpoint")
        save_file(
            {name[4:]: tensor for name, tensor in weights.items() if name.startswith("ema/")},
            expert / "diffusion_pytorch_model.safetensors",
        )
        for name in ("router.safetensors", "partition-0.safetensors"):
            shutil.copy(dataset / name, folder / "router" / name)
        (folder / "ensemble.json").write_text(
            json.dumps(
                {
                    "format": 1,
                    "classes": ["0", "1"],
                    "image_size": 8,
                    "channels": 4,
                    "experts": [{"index": 0}],
                    "model": self.SHAPE,
                }
            )
        )
        return folder

    def sample(self, folder, *words):
        return self.engine(
            "sample",
            folder,
            "-n",
            5,
            "--steps",
            3,
            "--device",
            -1,
            "--images",
            self.top / "images",
            *words,
        )

    def test_pictures_of_the_size_that_the_autoencoder_makes(self):
        folder = self.ensemble("--latent-scale", 0.18215)
        vae = self.saved(autoencoder(**KINDS["as Stable Diffusion's"]))
        self.assertEqual(
            0, self.sample(folder, "--vae", vae, "-o", self.top / "grid.png"), self.told
        )
        self.assertNotIn("scaled otherwise", self.told)
        self.assertEqual(
            [(32, 32)] * 5, [png_size(path) for path in sorted((self.top / "images").iterdir())]
        )
        width, height = png_size(self.top / "grid.png")
        self.assertGreaterEqual(min(width, height), 2 * 32)
        for route in ("top1", "full"):  # the router reads latents too
            self.assertEqual(0, self.sample(folder, "--vae", vae, "--route", route), self.told)

    def test_what_is_missing_is_said_before_anything_is_drawn(self):
        folder = self.ensemble()
        self.assertEqual(2, self.sample(folder))
        self.assertIn("draws latents of 4 channels: --vae DIR|FILE decodes them", self.told)
        self.assertEqual(
            2, self.sample(folder, "--vae", self.saved(autoencoder(**KINDS["as Flux's"]), "flux"))
        )
        self.assertIn("expected an autoencoder of latents with 4 channels", self.told)
        self.assertFalse((self.top / "images").exists())
        vae = self.saved(autoencoder(**KINDS["as Stable Diffusion's"]))
        self.assertEqual(0, self.sample(folder, "--vae", vae), self.told)
        self.assertIn("scaled otherwise than this autoencoder's config says", self.told)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    RUN, ENGINE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
