#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run disturbed by six SIGKILLs has the same final bytes as an undisturbed one.

Compares weights, moments and EMA, on the real engine.
"""

import os
import pathlib
import random
import signal
import unittest

from case import EndToEnd

STEPS = 600
TRAIN = {
    "model": {"width": 96, "depth": 3, "heads": 2, "patch_size": 4},
    "train": {"steps": STEPS, "batch_size": 32, "learning_rate": 1e-3},
    "checkpoint": {"round_steps": 50},
}


class BitExact(EndToEnd):
    def start(self):
        cluster = self.cluster(fake=False, coordinator_args=["--lease-seconds", "5"])
        cluster.start_coordinator()
        cluster.add_dataset(partitions=2)
        return cluster

    def weights(self, cluster):
        """Every tensor of both experts as bytes.

        EMA as exported; raw weights and moments as in the checkpoint.
        """
        out = cluster.root / "ensemble"
        cluster.run("ensemble", "fetch", "run", "-o", out, "--training-state")
        files = sorted(p for p in out.glob("expert_*/*.safetensors"))
        self.assertEqual(len(files), 4)
        return {str(p.relative_to(out)): tensors(p) for p in files}

    def test_disturbed_run_equals_unbroken_run(self):
        unbroken = self.start()
        for name in ("one", "two"):
            unbroken.start_daemon(name)
        unbroken.create_run("run", **TRAIN)
        unbroken.wait_run("run")
        expected = self.weights(unbroken)
        self.assertEqual(unbroken.events(kind="lease_lost"), [])
        unbroken.close()

        it = self.start()
        draw = random.Random(11)
        kills = []

        def kill(name, why):
            it.daemons[name].kill()
            kills.append(why)

        def expert_of(name, phase=("training",)):
            return next(
                (e for e in it.experts("run") if e["node"] == name and e["phase"] in phase), None
            )

        # 1: before the first commit of its expert.
        one = it.start_daemon("one")
        it.create_run("run", **TRAIN)
        it.wait(lambda: "training on" in one.log_text(), "one to train", one)
        kill("one", "before the first commit")
        self.assertEqual(it.events(kind="committed"), [])
        it.start_daemon("one")
        it.wait(lambda: (e := expert_of("one")) and e["step"] > 0, "one to commit")

        # 2: while it fetches. An empty disk has everything to fetch; the
        # coordinator stands still, so it cannot be done.
        it.start_daemon("two")
        it.wait(lambda: it.events(kind="committed", node="two"), "two to commit")
        it.daemons["two"].kill()
        kills.append("two, to make room")
        three = it.join(it.json("token", "create", "--role", "node")["token"], "three")
        it.wait(lambda: "fetching" in three.log_text(), "three to fetch", three)
        kill("three", "while fetching")

        # 3: the engine alone; the daemon starts another.
        it.start_daemon("two")
        it.wait(lambda: expert_of("two") and it.daemons["two"].children(), "two to train again")
        engine = it.daemons["two"].children()[0]
        os.kill(engine, signal.SIGKILL)
        kills.append("the engine alone")
        it.wait_event(kind="engine_failed", node="two")

        # 4: with a commit in flight: it was sent, and the coordinator does not
        # answer. Where the lease ran out before the round did, nothing was
        # sent: then again.
        def said(what):
            return it.daemons["one"].log_text().count(what)

        while True:
            it.wait(lambda: expert_of("one"), "one to train")
            sent, closed = said("committing"), said("connection to the coordinator lost")
            it.coordinator.signal(signal.SIGSTOP)
            it.wait(
                lambda: said("committing") > sent
                or said("connection to the coordinator lost") > closed,
                "one to send a commit",
                it.daemons["one"],
            )
            if said("committing") > sent:
                break
            it.coordinator.signal(signal.SIGCONT)
            again = said("committed step")
            it.wait(
                lambda: said("committed step") > again, "one to commit again", it.daemons["one"]
            )
        kill("one", "with a commit in flight")
        it.coordinator.signal(signal.SIGCONT)
        it.start_daemon("one")

        # 5, 6: at moments that the seed draws.
        for _ in range(2):
            shown = it.json("run", "show", "run")
            if shown["state"] == "done":
                break
            name = draw.choice(["one", "two"])
            steps = draw.randrange(1, 30)
            start = sum(e["live_step"] for e in shown["experts"])
            it.wait(
                lambda: it.json("run", "show", "run")["state"] == "done"
                or sum(e["live_step"] for e in it.experts("run")) > start + steps,
                "some steps",
            )
            kill(name, f"{name}, {steps} steps later")
            it.start_daemon(name)

        it.wait_run("run")
        self.assertGreaterEqual(len(kills), 6, kills)
        actual = self.weights(it)
        self.assertEqual(actual.keys(), expected.keys())
        for file, named in expected.items():
            self.assertEqual(actual[file].keys(), named.keys())
            different = [name for name, data in named.items() if actual[file][name] != data]
            self.assertEqual(different, [], f"{file} after {kills}")


def tensors(path):
    """The tensors of a safetensors file by name; metadata, which tells of epochs, is left out."""
    import json

    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: data[8 + length + info["data_offsets"][0] : 8 + length + info["data_offsets"][1]]
        for name, info in header.items()
    }


if __name__ == "__main__":
    unittest.main()
