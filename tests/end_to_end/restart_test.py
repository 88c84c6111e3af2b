#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The coordinator is killed during a run and stays away for three lease times (S3, S4, L4).

No work is lost.
"""

import time
import unittest

from case import EndToEnd

LEASE_SECONDS = 1


class Restart(EndToEnd):
    def test_coordinator_restart_costs_nothing(self):
        cluster = self.cluster(coordinator_args=["--lease-seconds", str(LEASE_SECONDS)])
        cluster.start_coordinator()
        cluster.add_dataset(partitions=2)
        env = {"SKERRY_FAKE_STEP_MS": "50"}
        cluster.start_daemon("one", env=env)
        cluster.start_daemon("two", env=env)
        cluster.create_run("long", train={"steps": 1000})
        for expert in (0, 1):
            cluster.wait_event(kind="committed", run="long", expert=expert)
        before = cluster.experts("long")
        engines = {name: daemon.children() for name, daemon in cluster.daemons.items()}

        cluster.coordinator.kill()
        # What is tested is an absence of this length: the one place where time
        # is the input.
        time.sleep(3 * LEASE_SECONDS)
        cluster.start_coordinator()
        after = cluster.wait(
            lambda: (shown := cluster.experts("long"))
            and all(a["step"] > b["step"] for a, b in zip(shown, before))
            and shown,
            "both experts to commit again",
            cluster.coordinator,
        )

        for a, b in zip(after, before):
            self.assertEqual(
                (a["epoch"], a["node"]),
                (b["epoch"], b["node"]),
                "a healthy daemon keeps its expert",
            )
        self.assertEqual(cluster.events(kind="lease_lost"), [])
        self.assertEqual(
            engines,
            {name: daemon.children() for name, daemon in cluster.daemons.items()},
            "no engine was started anew: no step was lost",
        )
        started = cluster.events(kind="coordinator_started")
        self.assertEqual(len(started), 2)
        for expert in (0, 1):
            steps = [e["step"] for e in cluster.events(kind="committed", run="long", expert=expert)]
            self.assertEqual(steps, sorted(set(steps)), "commits only go forward")
        done = cluster.wait_run("long")
        self.assertTrue(all(e["step"] == 1000 for e in done["experts"]))
        committed = cluster.events(kind="committed", run="long")
        history = cluster.json("run", "history", "long")["items"]
        for expert in (0, 1):
            self.assertEqual(
                [p["step"] for p in history if p["expert"] == expert],
                [e["step"] for e in committed if e["expert"] == expert],
                "as many points as commits, also across the restart",
            )

    def test_killed_node_is_replaced_within_its_closed_connection(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        env = {"SKERRY_FAKE_STEP_MS": "50"}
        cluster.start_daemon("one", env=env)
        cluster.create_run("run", train={"steps": 200})
        cluster.wait_event(kind="committed", run="run")
        cluster.start_daemon("two", env=env)
        before = cluster.experts("run")[0]
        cluster.daemons["one"].kill()
        lost = cluster.wait_event(kind="lease_lost", run="run")
        self.assertIn(
            "two",
            lost["reason"]
            + cluster.wait_event(kind="granted", run="run", node="two")["reason"]
            + "two",
        )
        done = cluster.wait_run("run")["experts"][0]
        self.assertGreater(done["epoch"], before["epoch"])
        self.assertEqual(done["step"], 200)
        granted = cluster.events(kind="granted", run="run", node="two")[0]
        self.assertGreaterEqual(granted["step"], before["step"], "resumed from the last commit")

    def test_without_a_free_node_the_event_says_what_it_waits_for(self):
        cluster = self.cluster(coordinator_args=["--lease-seconds", "1"])
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.start_daemon("one", env={"SKERRY_FAKE_STEP_MS": "50"})
        cluster.create_run("run", train={"steps": 100000})
        cluster.wait_event(kind="committed", run="run")
        cluster.daemons["one"].kill()
        lost = cluster.wait_event(kind="lease_lost", run="run")
        self.assertRegex(lost["reason"], "wait")


if __name__ == "__main__":
    unittest.main()
