#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run on captioned images, on the real engine: what a node's death costs, and what is drawn."""

import json
import unittest

from bit_exact_test import tensors
from case import EndToEnd
from cluster import write_embeddings, write_idx

IMAGES, LONGEST, DIM = 160, 6, 16
WEIGHTS = "diffusion_pytorch_model.safetensors"


class Captions(EndToEnd):
    def test_a_killed_node_changes_no_weight_and_a_prompt_draws(self):
        cluster = self.cluster(fake=False)
        cluster.start_coordinator()
        images = cluster.root / "images"
        write_idx(images, IMAGES, size=16)
        captions = cluster.root / "captions.safetensors"
        write_embeddings(captions, IMAGES, LONGEST, DIM)
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
