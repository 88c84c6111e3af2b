#!/usr/bin/env python3
"""Backups of a coordinator that runs: each is whole, as of some moment between its command and its end."""
import shutil
import subprocess
import unittest

from case import BIN, EndToEnd


class Backup(EndToEnd):
    def command(self, *words):
        done = subprocess.run([str(word) for word in (BIN / "skerry-coordinator", *words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_of_a_coordinator_in_the_middle_of_commits(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        data = cluster.root / "coordinator"
        cluster.add_dataset(partitions=2)
        for name in ("one", "two"):
            cluster.start_daemon(name, env={"SKERRY_FAKE_STEP_MS": "1", "SKERRY_FAKE_WEIGHTS": "100000"})
        cluster.create_run("run", train={"steps": 1000000})
        cluster.wait_event(kind="committed", run="run")
        taken = []
        for number in range(8):  # with every few commits a checkpoint is dropped and another begun
            before = cluster.experts("run")
            self.command("backup", cluster.root / f"backup-{number}", "--data", data)
            taken.append((cluster.root / f"backup-{number}", before))
        self.assertEqual(cluster.events(kind="lease_lost"), [], "nobody noticed")
        cluster.close()

        cluster.coordinator_args = ["--lease-seconds", "1"]  # a restored one answers nobody for five of them
        for backup, before in taken:
            shutil.rmtree(data)
            self.command("restore", backup, "--data", data)
            cluster.start_coordinator()
            for now, then in zip(cluster.experts("run"), before):
                self.assertGreaterEqual(now["step"], then["step"], "what was acknowledged before is in it")
            self.assertEqual(cluster.coordinator.stop(), 0)


if __name__ == "__main__":
    unittest.main()
