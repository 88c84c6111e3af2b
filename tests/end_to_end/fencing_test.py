#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon stopped until another holds its expert commits nothing and takes new work (S1, S2)."""

import signal
import unittest

from case import EndToEnd

SLOW = {"SKERRY_FAKE_STEP_MS": "100"}


class Fencing(EndToEnd):
    def test_stopped_daemon_is_fenced_and_works_again(self):
        cluster = self.cluster(coordinator_args=["--lease-seconds", "1"])
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.start_daemon("one", env=SLOW)
        cluster.create_run("fenced", train={"steps": 400})
        first = cluster.wait_event(kind="committed", run="fenced")
        self.assertEqual(first["node"], "one")

        cluster.daemons["one"].signal(signal.SIGSTOP)
        # Its engine trains on: what that makes must not count.
        cluster.start_daemon("two", env=SLOW)
        taken = cluster.wait(
            lambda: [e for e in cluster.events(kind="granted", run="fenced") if e["node"] == "two"],
            "two to take the expert over",
            cluster.coordinator,
        )[0]
        by_two = cluster.wait(
            lambda: [
                e for e in cluster.events(kind="committed", run="fenced") if e["node"] == "two"
            ],
            "two to commit",
            cluster.coordinator,
        )[0]
        self.assertGreater(by_two["epoch"], first["epoch"])

        # A second expert to do, so that the one that comes back finds work.
        cluster.daemons["one"].signal(signal.SIGCONT)
        cluster.wait(
            lambda: any(
                n["name"] == "one" and n["state"] == "ready" for n in cluster.items("node", "list")
            ),
            "one to be ready again",
            cluster.daemons["one"],
        )
        cluster.create_run("more", train={"steps": 20})
        cluster.wait_run("more")
        self.assertEqual({e["node"] for e in cluster.events(kind="committed", run="more")}, {"one"})

        cluster.wait_event(kind="fenced", run="fenced", node="one")
        after = [
            e
            for e in cluster.events(kind="committed", run="fenced")
            if e["number"] > taken["number"]
        ]
        self.assertEqual({e["node"] for e in after}, {"two"})
        epochs = [e["epoch"] for e in cluster.events(kind="granted", run="fenced")]
        self.assertEqual(epochs, sorted(set(epochs)), "epochs only grow")


if __name__ == "__main__":
    unittest.main()
