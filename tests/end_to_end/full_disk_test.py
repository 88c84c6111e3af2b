#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk fills up, at the coordinator and at a daemon.

The program reports it, acknowledges nothing that it cannot keep, and resumes by itself when there
is room (L6). Uses real file systems of a few megabytes, which only root can mount.
"""

import errno
import os
import pathlib
import subprocess
import unittest

from case import EndToEnd

MEGABYTE = 1 << 20


class FullDisk(EndToEnd):
    def small_disk(self, folder, megabytes):
        if os.geteuid() != 0:
            self.skipTest("only root can mount a small file system")
        folder.mkdir(parents=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
        # Cleanups run in reverse: the cluster, made before, would be closed
        # after this.
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)

    def fill(self, folder, leave_megabytes):
        """Fills the disk. Measures the free space again, because a program may write meanwhile."""
        with open(folder / "filler", "wb") as filler:
            while True:
                free = os.statvfs(folder)
                size = free.f_bavail * free.f_frsize - leave_megabytes * MEGABYTE
                try:
                    return os.posix_fallocate(filler.fileno(), 0, max(size, 1))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    filler.truncate(0)

    def cluster_in_training(self, coordinator_disk=None, daemon_disk=None):
        cluster = self.cluster(coordinator_args=["--lease-seconds", "1"])
        if coordinator_disk:
            self.small_disk(cluster.root / "coordinator", coordinator_disk)
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        if daemon_disk:
            self.small_disk(cluster.root / "one", daemon_disk)
        token = cluster.json("token", "create", "--role", "node")["token"]
        cluster.join(token, "one", env={"SKERRY_FAKE_STEP_MS": "20"})
        cluster.create_run("run", train={"steps": 100000})
        cluster.wait_event(kind="committed", run="run")
        return cluster

    def committed(self, cluster):
        return len(cluster.events(kind="committed", run="run"))

    def goes_on(self, cluster, since):
        cluster.wait(
            lambda: self.committed(cluster) > since + 2, "commits to go on", cluster.coordinator
        )

    def test_coordinator(self):
        cluster = self.cluster_in_training(coordinator_disk=192)
        disk, pid = cluster.root / "coordinator", cluster.coordinator.pid

        self.fill(disk, leave_megabytes=40)  # below the reserve: no objects, but events and tokens
        full = cluster.wait_event(kind="disk_full")
        self.assertRegex(full["reason"], "40|39")
        head = cluster.experts("run")[0]["step"]
        cluster.run("token", "create", "--role", "viewer")
        (disk / "filler").unlink()
        cluster.wait_event(kind="disk_room")
        self.goes_on(cluster, self.committed(cluster))
        self.assertGreater(cluster.experts("run")[0]["step"], head)

        self.fill(disk, leave_megabytes=2)  # not even a state
        cluster.wait(
            lambda: "waits for room" in cluster.coordinator.log_text(),
            "it to say so",
            cluster.coordinator,
        )
        tokens = len(cluster.items("token", "list"))
        refused = cluster.run("token", "create", "--role", "viewer", check=False)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("disk is full, and nothing was changed", refused.stderr)
        refused = cluster.run("node", "cordon", "one", check=False)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        seen = cluster.run("run", "list", check=False)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn("warning: the coordinator's disk is full", seen.stderr)
        (disk / "filler").unlink()
        since = self.committed(cluster)
        made = cluster.wait(
            lambda: cluster.try_json("token", "create", "--role", "viewer"),
            "it to take changes again",
            cluster.coordinator,
        )
        self.assertEqual(
            len(cluster.items("token", "list")), tokens + 1, "what was refused was not done"
        )
        self.assertNotEqual(cluster.items("node", "list")[0]["state"], "cordoned")
        self.goes_on(cluster, since)
        self.assertEqual(cluster.coordinator.pid, pid)
        self.assertEqual(cluster.events(kind="lease_lost"), [], "a full disk costs nobody a lease")

        cluster.coordinator.kill()
        cluster.start_coordinator()
        tokens = [token["id"] for token in cluster.items("token", "list")]
        self.assertIn(made["id"], tokens)

    def test_daemon(self):
        cluster = self.cluster_in_training(daemon_disk=96)
        disk, pid = cluster.root / "one", cluster.daemons["one"].pid
        self.fill(disk, leave_megabytes=4)
        cluster.wait_event(kind="engine_failed", run="run")
        told = [event["reason"] for event in cluster.events(kind="engine_failed", run="run")]
        self.assertTrue(any("disk is full" in reason for reason in told), told)
        before = self.committed(cluster)
        (disk / "filler").unlink()
        self.goes_on(cluster, before)
        self.assertEqual(cluster.daemons["one"].pid, pid)
        self.assertTrue(cluster.daemons["one"].alive())
        self.assertEqual(cluster.daemons["one"].stop(), 0)

    def test_receiving(self):
        """A node without room for a fetch requests nothing, reports it, and resumes when there is
        room.
        """
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        disk = cluster.root / "one"
        self.small_disk(disk, 96)
        token = cluster.json("token", "create", "--role", "node")["token"]
        daemon = cluster.join(token, "one", env={"SKERRY_FAKE_STEP_MS": "20"})
        cluster.wait(
            lambda: any(n["name"] == "one" for n in cluster.items("node", "list")),
            "it to join",
            daemon,
        )
        # Below the reserve of 32 MiB: no objects; well above its quarter, or
        # not even what it is assigned would be kept.
        self.fill(disk, leave_megabytes=16)
        cluster.create_run("run", train={"steps": 100000})
        cluster.wait(lambda: "cannot fetch" in daemon.log_text(), "it to say so", daemon)
        self.assertRegex(daemon.log_text(), "cannot fetch .*is full: .*make room; trying again")
        self.assertEqual(cluster.events(kind="transfer"), [])
        (disk / "filler").unlink()
        cluster.wait_event(kind="committed", run="run")
        fetched = cluster.wait(
            lambda: [e for e in cluster.events(kind="transfer") if "shard" in e["reason"]],
            "it to tell what it fetched, with its next heartbeat",
            daemon,
        )
        self.assertRegex(
            fetched[0]["reason"], "fetched shard-0-.* of dataset shapes: .*/s from the coordinator"
        )
        self.assertEqual(cluster.events(kind="lease_lost"), [])

    def test_start(self):
        """A program that starts on a full disk reports it and exits, so that systemd restarts it.

        Nothing is lost by that.
        """
        cluster = self.cluster_in_training(coordinator_disk=192, daemon_disk=96)
        for program in [cluster.coordinator, cluster.daemons["one"]]:
            program.kill()
            disk = cluster.root / program.name
            self.fill(disk, leave_megabytes=0)
            program.start()
            code = program.popen.wait(60)
            self.assertIn(code, (1, 75), program.tail())
            self.assertRegex(
                program.tail(2),
                "the disk of .* is full: .* free, .* are needed to open it; make room",
            )
            (disk / "filler").unlink()
            program.start()
        cluster.wait(
            lambda: cluster.try_json("node", "list") is not None,
            "the coordinator to answer",
            cluster.coordinator,
        )
        self.goes_on(cluster, self.committed(cluster))


if __name__ == "__main__":
    unittest.main()
