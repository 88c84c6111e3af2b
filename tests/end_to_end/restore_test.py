#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What returns after a restore: runs unknown to the backup, enrolled nodes, and revocations (S14).
"""

import pathlib
import shutil
import subprocess
import unittest

from case import BIN, EndToEnd
from cluster import Failure, flip_byte

HAS_ENGINE = (BIN / "skerry-engine").exists()
STEPS = 4000
QUICK = {"SKERRY_FAKE_STEP_MS": "2"}
SLOW = {"SKERRY_FAKE_STEP_MS": "40"}


class Restore(EndToEnd):
    def start(self, fake):
        self.fake = fake
        it = self.cluster(fake=fake, coordinator_args=["--lease-seconds", "1"])
        it.start_coordinator()
        return it

    def command(self, *words):
        done = subprocess.run(
            [str(word) for word in (BIN / "skerry-coordinator", *words)],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def reference(self, it):
        """What a run comes to that nothing befell."""
        it.add_dataset(partitions=2)
        it.create_run("reference", train={"steps": STEPS})
        it.wait_run("reference")
        return self.trained(it, "reference", STEPS)

    def begin(self, it, names):
        """A run half done, and its state. The nodes are slow, so that it is not done too early."""
        for name in names:
            self.assertEqual(it.daemons[name].stop(), 0)
            it.start_daemon(name, env=SLOW)
        it.create_run("birds", train={"steps": STEPS})
        for expert in (0, 1):
            it.wait_event(kind="committed", run="birds", expert=expert, count=2)
        it.wait(
            lambda: self.nodes_know(it, names),
            "the nodes to hold the run's records",
            it.coordinator,
        )
        before = it.experts("birds")
        it.coordinator.kill()
        self.assertTrue(all(expert["step"] < STEPS for expert in before), before)
        return before

    def nodes_know(self, it, names):
        """Whether the coordinator has received the nodes' later records of both experts.

        If so, its own records of the run have reached the nodes.
        """
        if self.fake:
            return all(
                it.skerryd(
                    "router", "birds", "--data", it.root / name, "--out", self.fresh(it, name)
                ).returncode
                == 0
                for name in names
            )
        steps = {
            e["expert"]: e["step"]
            for peer in it.items("peer", "list")
            for e in peer["experts"]
            if e["run"] == "birds"
        }
        return len(steps) == 2 and min(steps.values()) >= STEPS // 10

    @staticmethod
    def fresh(it, name):
        shutil.rmtree(it.root / f"from-{name}", ignore_errors=True)
        return it.root / f"from-{name}"

    def orphans(self, it):
        return {run["name"] for run in it.items("run", "list") if run["state"] == "orphan"}

    def go_on(self, it, before, reference):
        """Adopts the orphan and trains it to its end."""
        it.wait(
            lambda: {"birds", "reference"} <= self.orphans(it),
            "the runs to be shown as orphans",
            it.coordinator,
        )
        it.wait_event(kind="run_orphaned")
        refused = it.run("run", "show", "birds", check=False)
        self.assertIn("skerry run adopt birds", refused.stderr)
        adopted = it.json("run", "adopt", "birds")
        self.assertEqual((adopted["adopted"], adopted["missing"]), (True, []))
        for now, then in zip(adopted["experts"], before):
            self.assertGreaterEqual(now["step"], then["step"], "what was acknowledged came back")
            self.assertGreater(now["epoch"], then["epoch"], "beyond any that a node has seen")
        for name, process in it.daemons.items():
            if process.alive():
                self.assertEqual(process.stop(), 0)
                it.start_daemon(name, env=QUICK)
        it.wait_run("birds")
        self.assertEqual(
            self.trained(it, "birds", STEPS),
            reference,
            "to the same bytes as a run that nothing befell",
        )
        # No node keeps the held-back images: who has them adds them again.
        if self.fake:  # noise, which is not made twice
            it.run("dataset", "add", "shapes", it.root / "shapes-images", "--partitions", 2)
        else:
            shutil.rmtree(it.root / "shapes-images")
            it.add_dataset(partitions=2)
        it.wait(
            lambda: [d["state"] for d in it.items("dataset", "list")] == ["ready"],
            "the dataset to be whole",
            it.coordinator,
        )
        self.assertEqual(self.orphans(it), {"reference"}, "what nobody adopts stays")
        it.run("run", "delete", "reference", "--yes")
        it.wait(lambda: not self.orphans(it), "a deleted orphan to be gone", it.coordinator)

    def test_a_run_that_is_younger_than_the_backup(self):
        """Trains with the real engine if there is one, and then also fetches the ensemble."""
        it = self.start(fake=not HAS_ENGINE)
        it.start_daemon("one", env=QUICK)
        it.start_daemon("bad", env=QUICK)
        token = it.json("token", "create", "--role", "node")["token"]
        self.command("backup", it.root / "backup", "--data", it.root / "coordinator")
        it.start_daemon("two", env=QUICK)
        it.run("node", "revoke", "bad", "--yes")
        it.daemons["bad"].popen.wait(500)
        reference = self.reference(it)
        before = self.begin(it, ("one", "two"))

        shutil.rmtree(it.root / "coordinator")
        self.command("restore", it.root / "backup", "--data", it.root / "coordinator")
        it.start_coordinator()
        it.wait_event(kind="revoked", node="bad")
        it.wait_event(kind="readmitted", node="two")
        bad = it.start_daemon_process("bad")
        self.assertEqual(bad.popen.wait(500), 78, "a revoked key stays out")
        late = it.join(token, "late")
        self.assertEqual(late.popen.wait(500), 78, "a token from before the restore joins nobody")
        self.assertIn("expired", late.log_text())

        self.wait_orphans(it, {"birds", "reference"})
        if not self.fake:
            self.fetch_from_nodes(it)
        self.go_on(it, before, reference)
        # Nobody who deletes it is asked twice: an older record that turns up
        # later changes nothing.
        it.coordinator.kill()
        it.start_coordinator()
        self.assertEqual(self.orphans(it), set())

    def fetch_from_nodes(self, it):
        address = it.wait(
            lambda: next((n["address"] for n in it.items("peer", "list") if n["address"]), None),
            "a node that can be dialled",
            it.coordinator,
        )
        it.wait(
            lambda: it.run(
                "ensemble",
                "fetch",
                "birds",
                "-o",
                it.root / "orphan",
                "--from",
                address,
                check=False,
            ).returncode
            == 0,
            "the orphan's ensemble from the nodes alone",
            it.coordinator,
        )

    def wait_orphans(self, it, names):
        it.wait(lambda: self.orphans(it) == names, f"the orphans {names}", it.coordinator)

    def test_a_store_that_is_damaged_beyond_its_backup(self):
        it = self.start(fake=True)
        for name in ("one", "two"):
            it.start_daemon(name, env=QUICK)
        reference = self.reference(it)
        before = self.begin(it, ("one", "two"))
        data = it.root / "coordinator"
        manifest = next(data.rglob("MANIFEST-*"))
        flip_byte(manifest, manifest.stat().st_size // 2)
        with self.assertRaises(Failure):
            it.start_coordinator()
        self.assertEqual(it.coordinator.popen.returncode, 78)
        self.assertIn(f"skerry-coordinator restore --fresh --data {data}", it.coordinator.tail())

        former = it.root / "former-admin.toml"
        shutil.copy(data / "admin.toml", former)
        self.assertIn("damaged-1", self.command("restore", "--fresh", "--data", data))
        it.start_coordinator()
        for name in ("one", "two"):
            it.wait_event(kind="readmitted", node=name)
        it.run("--context", former, "node", "list")
        self.assertTrue(pathlib.Path(data / "damaged-1/store").is_dir(), "what was there is kept")
        self.go_on(it, before, reference)


if __name__ == "__main__":
    unittest.main()
