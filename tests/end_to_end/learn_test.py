#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that starts from another run's weights, and one that trains a router, on the real engine.
"""

import json
import struct
import unittest

from case import EndToEnd
from bit_exact_test import tensors
from cluster import sums

TRAIN = {
    "train": {"steps": 120, "batch_size": 32, "learning_rate": 2e-3, "ema": 0.9},
    "checkpoint": {"round_steps": 60},
}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class Learn(EndToEnd):
    def trained(self, **sections):
        """A cluster of one node whose run "first" is done, and the folder of its ensemble."""
        cluster = self.cluster(fake=False)
        cluster.start_coordinator()
        cluster.add_dataset(partitions=2)
        cluster.start_daemon("one")
        cluster.create_run("first", **TRAIN, **sections)
        cluster.wait_run("first")
        ensemble = cluster.root / "ensemble"
        cluster.run("ensemble", "fetch", "first", "-o", ensemble)
        return cluster, ensemble

    def test_a_run_starts_where_another_one_ended(self):
        cluster, ensemble = self.trained()
        # One step that moves nothing: the weights are those that it began with.
        init = {"init": str(ensemble / "expert_0")}
        cluster.create_run(
            "still", model=init, train={"steps": 1, "batch_size": 8, "learning_rate": 1e-9}
        )
        cluster.wait_run("still")
        still = cluster.root / "still"
        cluster.run("ensemble", "fetch", "still", "-o", still)
        weights = "diffusion_pytorch_model.safetensors"
        begun = tensors(ensemble / "expert_0" / weights)
        for expert in ("expert_0", "expert_1"):
            ended = tensors(still / expert / weights)
            self.assertEqual(ended.keys(), begun.keys())
            for name, data in begun.items():
                apart = max(abs(a - b) for a, b in zip(floats(data), floats(ended[name])))
                self.assertLess(apart, 1e-6, f"{expert}: {name}")

        # And it goes on from there: the first ten steps err less than those of
        # a run that begins with nothing.
        ten = {"train": {"steps": 10, "batch_size": 32, "learning_rate": 1e-4}}
        cluster.create_run("scratch", **ten)
        cluster.create_run("warm", model=init, **ten)
        loss = {}
        for run in ("scratch", "warm"):
            cluster.wait_run(run)
            loss[run] = cluster.experts(run)[0]["loss"]
        self.assertLess(loss["warm"], 0.8 * loss["scratch"])

        # The uploaded weights are held until no run names them.
        uploaded = next(
            d["name"] for d in cluster.items("dataset", "list") if d["name"].startswith("weights-")
        )
        self.assertNotEqual(
            cluster.run("dataset", "delete", uploaded, "--yes", check=False).returncode, 0
        )
        for run in ("still", "warm"):
            cluster.run("run", "delete", run, "--yes")
        cluster.run("dataset", "delete", uploaded, "--yes")

    def test_a_router_is_trained_beside_the_experts_and_asked(self):
        cluster, ensemble = self.trained(router={"kind": "learned"})
        jobs = cluster.experts("first")
        self.assertEqual([job["router"] for job in jobs], [False, False, True])
        self.assertEqual([job["step"] for job in jobs], [jobs[0]["steps_target"]] * 3)
        self.assertLess(jobs[2]["loss"], 0.69)  # nats, of two partitions: better than not knowing
        self.assertEqual(json.loads((ensemble / "ensemble.json").read_text())["router"], "learned")
        for router in ("learned", "analytic"):
            picture = cluster.root / f"{router}.png"
            cluster.run(
                "sample",
                ensemble,
                "-n",
                4,
                "--steps",
                5,
                "--route",
                "top1",
                "--router",
                router,
                "-o",
                picture,
            )
            self.assertTrue(picture.exists())
        left = cluster.run("run", "expert", "remove", "first", "0", check=False)
        self.assertEqual(left.returncode, 6)
        self.assertIn("knows its experts for good", left.stderr)

        # With the coordinator gone the nodes have all of it, the learned router
        # too.
        def held():
            (peer,) = cluster.items("peer", "list")
            heads = {e["expert"]: e["step"] for e in peer["experts"]}
            # Three checkpoints, the specification, the router's file, two
            # partitions' statistics.
            return peer if heads == {0: 120, 1: 120, 2: 120} and peer["objects"] >= 7 else None

        node = cluster.wait(held, "the node to say what it holds", *cluster.daemons.values())
        cluster.coordinator.kill()
        again = cluster.root / "again"
        cluster.run("ensemble", "fetch", "first", "-o", again, "--from", node["address"])
        self.assertTrue((again / "router/learned.safetensors").exists())
        self.assertEqual(sums(again), sums(ensemble))


if __name__ == "__main__":
    unittest.main()
