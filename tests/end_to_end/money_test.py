#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run costs: sums by the trace's own account, a budget that pauses, idle nodes that stop."""

import datetime
import os
import unittest

from case import BIN, EndToEnd

SLOW = {"SKERRY_FAKE_STEP_MS": "50"}
PRICE = 3600  # dollars an hour: one a second
ROUND_STEPS = 20
SHARE = 0.001


def seconds_of(event):
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


class Money(EndToEnd):
    def begin(self, nodes=2, args=("--price", PRICE), **budget):
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=2)
        for i in range(nodes):
            cluster.start_daemon(f"n{i}", env=SLOW, args=["--spot", "off", *map(str, args)])
        cluster.create_run(
            "paid",
            train={"steps": 100_000},
            checkpoint={"round_steps": ROUND_STEPS},
            budget=budget,
        )
        return cluster

    def leased_seconds(self, cluster):
        """By the events: of each lease from its grant to its end."""
        total, since = 0, {}
        for event in cluster.events(run="paid"):
            if event["kind"] == "granted":
                since[event["expert"]] = seconds_of(event)
            if event["kind"] in ("lease_returned", "lease_lost"):
                total += seconds_of(event) - since.pop(event["expert"])
        self.assertFalse(since, "no lease is left")
        return total

    def wait_paused(self, cluster):
        def ended():
            shown = cluster.json("run", "show", "paid")
            held = any(e["node"] for e in shown["experts"])
            return shown if shown["state"] == "paused" and not held else None

        return cluster.wait(ended, "the budget to pause the run", cluster.coordinator)

    def test_a_budget_pauses_the_run_after_its_commits(self):
        cluster = self.begin(dollars=16)
        cluster.wait_event(kind="committed", run="paid")
        running = cluster.json("run", "show", "paid")
        self.assertEqual(running["dollars_per_hour"], 2 * PRICE)
        self.assertEqual([e["cards"] for e in running["experts"]], [1, 1])
        self.assertIn("of 16.00 dollars spent", cluster.run("run", "show", "paid").stdout)
        paused = self.wait_paused(cluster)
        trace = self.leased_seconds(cluster)
        # Events have milliseconds: one for each end of a lease.
        self.assertAlmostEqual(paused["dollars"], trace, delta=SHARE * trace + 0.004)
        self.assertAlmostEqual(
            sum(e["dollars"] for e in paused["experts"]), paused["dollars"], places=6
        )
        told = cluster.events(kind="budget", run="paid")
        self.assertEqual(len(told), 1)
        commits = [
            seconds_of(e)
            for e in cluster.events(kind="committed", run="paid")
            if seconds_of(e) >= seconds_of(told[0])
        ]
        self.assertTrue(commits, "what was trained is committed first")
        self.assertEqual(cluster.events(kind="lease_lost"), [])
        self.assertEqual(paused["lost_steps"], 0)
        self.assertEqual(paused["goodput"], 1)
        over = paused["dollars"] - 16
        print(
            f"\nspent {paused['dollars']:.4f} of 16 dollars, trace {trace:.4f}, "
            f"overspent {over:.2f} ({ROUND_STEPS} steps of 50 ms a round, 2 dollars a second)"
        )
        self.assertGreaterEqual(over, 0)
        why = cluster.run("run", "why", "paid").stdout
        self.assertIn("its budget of 16.00 dollars is spent", why)
        self.assertIn("skerry run budget paid --dollars N", why)
        # Nothing but money resumes it.
        refused = cluster.run("run", "resume", "paid", check=False)
        self.assertEqual(refused.returncode, 6)
        self.assertIn("raises its budget", refused.stderr)
        refused = cluster.run("run", "budget", "paid", "--dollars", "3", check=False)
        self.assertIn("expected more than the", refused.stderr)
        self.assertEqual(cluster.json("run", "show", "paid")["state"], "paused")
        cluster.run("run", "budget", "paid", "--dollars", "1000")
        cluster.wait_run("paid", states=("running",))

    def test_sums_survive_a_killed_coordinator(self):
        cluster = self.begin(nodes=1)
        cluster.wait_event(kind="committed", run="paid", count=3)
        before = cluster.json("run", "show", "paid")["dollars"]
        cluster.coordinator.kill()
        cluster.start_coordinator()
        after = cluster.json("run", "show", "paid")["dollars"]
        self.assertGreaterEqual(after, before - 1 * (1 + SHARE), "a second may be lost")
        first = cluster.events(kind="granted", run="paid")[0]
        count = len(cluster.events(kind="committed", run="paid"))
        cluster.wait_event(kind="committed", run="paid", count=count + 3)
        shown = cluster.json("run", "show", "paid")
        last = cluster.events(kind="committed", run="paid")[-1]
        self.assertGreater(shown["dollars"], after)
        print(f"\nbefore the kill {before:.3f}, after it {after:.3f}, then {shown['dollars']:.3f}")
        # Less than the whole time: the coordinator's absence costs nothing.
        cluster.run("run", "pause", "paid")
        paused = self.wait_paused(cluster)
        end = cluster.events(kind="lease_returned", run="paid")[-1]
        whole = seconds_of(end) - seconds_of(first)
        self.assertLess(paused["dollars"], whole)
        self.assertGreater(seconds_of(end), seconds_of(last) - 1e-6)

    def test_a_dear_node_and_a_rate(self):
        cluster = self.begin(nodes=2, max_node_price=1)
        cluster.wait(
            lambda: "budget.max_node_price" in cluster.run("run", "why", "paid").stdout,
            "the reason",
        )
        self.assertEqual(cluster.events(kind="granted"), [])
        cluster.run(
            "run", "budget", "paid", "--max-node-price", "0", "--dollars-per-hour", "4000"
        )
        cluster.wait_event(kind="committed", run="paid")
        self.assertEqual(cluster.json("run", "show", "paid")["dollars_per_hour"], PRICE)
        self.assertIn("budget.dollars_per_hour", cluster.run("run", "why", "paid").stdout)
        prices = [n["price"] for n in cluster.items("node", "list")]
        self.assertEqual(prices, [PRICE, PRICE])

    def test_an_idle_node_stops_once_and_never_under_a_lease(self):
        ran = None
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        ran = cluster.root / "ran"
        idle = ["--spot", "off", "--price", "1", "--idle-minutes", "0.05", "--idle-exec"]
        cluster.create_run("short", train={"steps": 200}, checkpoint={"round_steps": 20})
        daemon = cluster.start_daemon("one", env=SLOW, args=[*idle, f"echo ran >> {ran}"])
        cluster.wait_run("short")
        done = cluster.events(kind="expert_done", run="short")[-1]
        cluster.wait(ran.exists, "the command", daemon)
        self.assertGreater(ran.stat().st_mtime, seconds_of(done) + 0.05 * 60)
        told = cluster.wait_event(kind="notice", node="one")
        self.assertIn("--idle-exec runs", told["reason"])
        failing = cluster.start_daemon("two", env=SLOW, args=[*idle, "exit 3"])
        failed = lambda: [  # noqa: E731
            e for e in cluster.events(kind="notice", node="two") if "exit code 3" in e["reason"]
        ]
        cluster.wait(failed, "the failure to be told", failing)
        # It takes work again.
        cluster.create_run("again", train={"steps": 20}, checkpoint={"round_steps": 10})
        cluster.wait_run("again")
        self.assertEqual(ran.read_text(), "ran\n")
        self.assertEqual(cluster.events(kind="lease_lost"), [])

    def test_bad_input_is_refused(self):
        cluster = self.cluster()
        for args, words in (
            (["--price", "-1"], "--price: expected dollars an hour from 0 to 10000, found -1"),
            (["--price", "nan"], "--price: expected dollars an hour"),
            (["--price", "1e9"], "--price: expected dollars an hour"),
            (["--idle-minutes", "-5", "--idle-exec", "true"], "--idle-minutes: expected minutes"),
            (["--idle-minutes", "5"], "expected both or neither"),
            (["--idle-exec", "true"], "expected both or neither"),
        ):
            done = cluster.skerryd("--data", cluster.root / "none", *args)
            self.assertEqual(done.returncode, 78, args)
            self.assertIn(words, done.stderr)
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        with self.assertRaisesRegex(Exception, "budget.dollars: expected a number from 0 to 1e9"):
            cluster.create_run("bad", budget={"dollars": -1})
        self.assertTrue(os.access(BIN / "skerryd", os.X_OK))


if __name__ == "__main__":
    unittest.main()
