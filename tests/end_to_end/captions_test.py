#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run on captioned images, on the real engine: what a node's death costs, and what is drawn."""

import json
import random
import struct
import unittest

from bit_exact_test import tensors
from case import EndToEnd

IMAGES, SIDE, LONGEST, DIM = 160, 16, 6, 16
WEIGHTS = "diffusion_pytorch_model.safetensors"


def write_safetensors(path, tensors_of):
    """{name: (dtype, shape, bytes)}"""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors_of.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_captioned_images(folder):
    """Noise as IDX, and a file with a caption of one to LONGEST tokens for each image."""
    draw = random.Random(1)
    folder.mkdir()
    images = draw.randbytes(IMAGES * SIDE * SIDE)
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, IMAGES, SIDE, SIDE) + images
    )
    labels = bytes(i % 2 for i in range(IMAGES))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, IMAGES) + labels)

    def normals(count):
        return struct.pack(f"<{count}f", *(draw.gauss(0, 1) for _ in range(count)))

    lengths = [draw.randint(1, LONGEST) for _ in range(IMAGES)]
    captions = folder.parent / "captions.safetensors"
    write_safetensors(
        captions,
        {
            "embeddings": ("F32", [IMAGES, LONGEST, DIM], normals(IMAGES * LONGEST * DIM)),
            "mask": (
                "U8",
                [IMAGES, LONGEST],
                bytes(i < length for length in lengths for i in range(LONGEST)),
            ),
            "null": ("F32", [1, DIM], normals(DIM)),
        },
    )
    return captions


class Captions(EndToEnd):
    def test_a_killed_node_changes_no_weight_and_a_prompt_draws(self):
        cluster = self.cluster(fake=False)
        cluster.start_coordinator()
        images = cluster.root / "images"
        captions = write_captioned_images(images)
        added = cluster.json(
            "dataset", "add", "words", images, "--partitions", 2, "--caption-embeddings", captions
        )
        self.assertEqual(added["text"]["dim"], DIM)
        self.assertLessEqual(added["text"]["longest"], LONGEST)
        for name in ("one", "two"):
            cluster.start_daemon(name)
        spec = {
            "dataset": "words",
            "model": {"patch_size": 4},
            "train": {"steps": 200, "batch_size": 16},
            "checkpoint": {"round_steps": 40},
        }
        cluster.create_run("calm", **spec)
        cluster.wait_run("calm")
        cluster.create_run("storm", **spec)
        first = cluster.wait_event(kind="committed", run="storm")
        cluster.daemons[first["node"]].kill()
        cluster.wait_run("storm")
        self.assertTrue(cluster.events(kind="lease_lost", run="storm"), "it was killed at work")
        for run in ("calm", "storm"):
            cluster.run("ensemble", "fetch", run, "-o", cluster.root / run)
        for expert in ("expert_0", "expert_1"):
            calm = tensors(cluster.root / "calm" / expert / WEIGHTS)
            self.assertEqual(calm, tensors(cluster.root / "storm" / expert / WEIGHTS))
            config = json.loads((cluster.root / "calm" / expert / "config.json").read_text())
            self.assertEqual(config["_class_name"], "PixArtTransformer2DModel")

        picture = cluster.root / "picture.png"
        sample = ("sample", cluster.root / "calm", "--prompt-embeddings", captions)
        cluster.run(*sample, "-n", 2, "--steps", 3, "--seed", 1, "-o", picture)
        self.assertTrue(picture.read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    unittest.main()
