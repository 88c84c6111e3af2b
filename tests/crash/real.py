# SPDX-License-Identifier: Apache-2.0
"""Kills the real engine with its daemon, or alone with the coordinator, again and again.

The weights must equal those of an undisturbed run, byte by byte.
"""

import pathlib
import random
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import Cluster, Failure  # noqa: E402
from story import Lost  # noqa: E402

STEPS = 1500  # of each expert
TRAIN = {
    "model": {"width": 32, "depth": 2, "heads": 2, "patch_size": 7},
    "train": {"batch_size": 16, "learning_rate": 1e-3},
    "checkpoint": {"round_steps": 50},
}


class RealStory:
    def __init__(self, seed, tools, tally, steps=STEPS):
        self.random, self.tools, self.tally, self.steps = random.Random(seed), tools, tally, steps
        self.root = tools.root / "real"
        self.clusters = []

    def live(self, until, stop):
        try:
            expected = self.train("unbroken", lambda cluster: False)
            round_number = 0
            while time.monotonic() < until and not stop.is_set():
                round_number += 1
                found = self.train(f"disturbed-{round_number}", self.strike)
                if found != expected:
                    different = sorted(
                        name for name in expected if found.get(name) != expected[name]
                    )
                    raise Lost(
                        f"the real engine's weights are not those of the unbroken run: {different}"
                    )
                self.tally.add("real_runs")
                shutil.rmtree(self.root / f"disturbed-{round_number}")
        finally:
            for cluster in self.clusters:
                cluster.close()

    def train(self, name, disturb):
        cluster = Cluster(
            self.tools.bin, root=self.root / name, coordinator_args=["--lease-seconds", "1"]
        )
        self.clusters = [cluster]
        cluster.start_coordinator()
        cluster.run("dataset", "add", "shapes", self.tools.dataset, "--partitions", 3)
        cluster.start_daemon("one")
        cluster.start_daemon("two")
        cluster.create_run("run", **TRAIN | {"train": TRAIN["train"] | {"steps": self.steps}})
        while (shown := cluster.json("run", "show", "run"))["state"] != "done":
            if shown["state"] == "failed":
                raise Failure(f"the real engine's run failed: {shown['reason']}")
            cluster.expect_no_report()
            disturb(cluster)
            time.sleep(0.5)
        out = cluster.root / "ensemble"
        cluster.run("ensemble", "fetch", "run", "-o", out, "--training-state")
        cluster.close()
        return {
            str(path.relative_to(out)): path.read_bytes()
            for path in sorted(out.glob("expert_*/*.safetensors"))
        }

    def strike(self, cluster):
        """A kill for about every two commits, so that the run still ends."""
        count = len(cluster.events(kind="committed"))
        cluster.wait(
            lambda: len(cluster.events(kind="committed")) > count + 1
            or cluster.json("run", "show", "run")["state"] == "done",
            "commits",
            limit=900,
        )
        time.sleep(self.random.uniform(0, 1))
        self.tally.add("real_kills")
        if self.random.random() < 0.4:
            self.tally.add("coordinator_kills")
            cluster.coordinator.kill()
            cluster.start_coordinator()
        else:
            self.tally.add("daemon_kills")
            name = self.random.choice(["one", "two"])
            cluster.daemons[name].kill()
            cluster.start_daemon(name)

    def forget(self):
        shutil.rmtree(self.root, ignore_errors=True)
