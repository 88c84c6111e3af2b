#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Backups of a running coordinator. Each is consistent as of a moment while the command runs."""

import hashlib
import shutil
import subprocess
import unittest

from case import BIN, EndToEnd
from cluster import flip_byte, without_report


class Backup(EndToEnd):
    def command(self, *words, status=0):
        """What it says of what the copy lacks, or of a failure."""
        done = without_report(
            subprocess.run(
                [str(word) for word in (BIN / "skerry-coordinator", *words)],
                capture_output=True,
                text=True,
            )
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_of_a_coordinator_in_the_middle_of_commits(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        data = cluster.root / "coordinator"
        cluster.add_dataset(partitions=2)
        for name in ("one", "two"):
            cluster.start_daemon(
                name, env={"SKERRY_FAKE_STEP_MS": "1", "SKERRY_FAKE_WEIGHTS": "100000"}
            )
        cluster.create_run("run", train={"steps": 1000000})
        cluster.wait_event(kind="committed", run="run")
        taken = []
        for number in range(8):  # with every few commits a checkpoint is dropped and another begun
            before = cluster.experts("run")
            self.command("backup", cluster.root / f"backup-{number}", "--data", data)
            taken.append((cluster.root / f"backup-{number}", before))
        self.assertEqual(cluster.events(kind="lease_lost"), [], "nobody noticed")
        cluster.close()

        cluster.coordinator_args = [
            "--lease-seconds",
            "1",
        ]  # a restored one answers nobody for five of them
        for backup, before in taken:
            shutil.rmtree(data)
            self.command("restore", backup, "--data", data)
            cluster.start_coordinator()
            for now, then in zip(cluster.experts("run"), before):
                self.assertGreaterEqual(
                    now["step"], then["step"], "what was acknowledged before is in it"
                )
            self.assertEqual(cluster.coordinator.stop(), 0)

    def trained(self):
        """A run of one expert that is done, and its node, which holds what belongs to it."""
        it = self.cluster(coordinator_args=["--lease-seconds", "1"])
        it.start_coordinator()
        it.add_dataset(partitions=1)
        it.start_daemon("one", env={"SKERRY_FAKE_WEIGHTS": "100000"})
        it.create_run("run", train={"steps": 40}, checkpoint={"round_steps": 10, "keep": 1})
        it.wait_run("run")

        def held():
            objects = {
                o["kind"]: o
                for o in it.items("chunk", "list", "--node", "one")
                if o["step"] in (None, 40)
            }
            return objects if {"checkpoint", "shard"} <= set(objects) else None

        return it, it.wait(held, "the node to say what it holds", *it.daemons.values())

    def restore(self, it, lacking):
        """Onto an empty folder, from a backup that lacks an object."""
        it.coordinator.kill()
        shutil.rmtree(it.root / "coordinator")
        self.assertIn(
            lacking, self.command("restore", it.root / "backup", "--data", it.root / "coordinator")
        )
        it.start_coordinator()

    def test_of_a_disk_that_damaged_a_file(self):
        it, held = self.trained()
        path = it.root / "coordinator/objects" / held["shard"]["object"]
        whole = hashlib.sha256(path.read_bytes()).hexdigest()
        flip_byte(path, held["shard"]["bytes"] // 2)
        said = self.command(
            "backup", it.root / "backup", "--data", it.root / "coordinator", status=8
        )
        line = f"dataset shapes, file shard-0-0.safetensors (object {held['shard']['object'][:12]})"
        self.assertIn(
            f"lacks 1 object, damaged or missing in {it.root / 'coordinator'}:\n  {line}\n", said
        )
        self.assertIn("skerry dataset add", said)
        self.assertEqual(
            it.events(kind="object_damaged"), [], "the coordinator has not read it yet"
        )

        self.restore(it, line)
        told = it.wait_event(kind="object_damaged")
        self.assertIn("shard-0-0.safetensors", told["reason"])
        it.wait_event(kind="object_mended")
        self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), whole)
        self.assertEqual(it.json("chunk", "verify")["damaged"], [])
        shutil.rmtree(it.root / "backup")
        self.command("backup", it.root / "backup", "--data", it.root / "coordinator")

    def test_of_a_checkpoint_that_is_known_to_be_damaged(self):
        it, held = self.trained()
        self.assertEqual(it.daemons["one"].stop(), 0)
        tables = (it.root / "coordinator/store/db").glob("*.sst")
        table = max(tables, key=lambda path: path.stat().st_size)
        flip_byte(table, table.stat().st_size // 2)
        self.assertEqual(it.run("chunk", "verify", check=False).returncode, 8)
        it.wait_event(kind="object_damaged", run="run")
        said = self.command(
            "backup", it.root / "backup", "--data", it.root / "coordinator", status=8
        )
        line = f"run run, expert 0, step 40 (object {held['checkpoint']['object'][:12]})"
        self.assertIn(line, said)

        self.restore(it, line)
        it.wait_event(kind="object_damaged", run="run", count=2)
        it.start_daemon("one")
        it.wait_event(kind="object_mended", run="run")
        self.assertEqual(it.json("chunk", "verify")["damaged"], [])


if __name__ == "__main__":
    unittest.main()
