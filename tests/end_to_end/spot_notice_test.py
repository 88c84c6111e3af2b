#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine that its platform ends: what was trained is committed first, by every way to say so.

usage: spot_notice_test.py [--repeat N] [unittest options]
  --repeat N: kill a daemon N times, 5 s after SIGTERM (10)
"""

import datetime
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from case import EndToEnd
from metadata import Cloud

REPEAT = 10
STATE_FLOATS = 4_194_304  # in each of four tensors: 67 MB
LARGE = {"SKERRY_FAKE_STEP_MS": "50", "SKERRY_FAKE_WEIGHTS": str(STATE_FLOATS)}
MIDDLE = {"SKERRY_FAKE_STEP_MS": "50", "SKERRY_FAKE_WEIGHTS": "262144"}  # 4 MB
SMALL = {"SKERRY_FAKE_STEP_MS": "50"}
MEGABYTE = b"x" * (1 << 20)


def seconds_of(event):
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


class SpotNotice(EndToEnd):
    def begin(self, cloud, env, spot="auto", round_steps=20, args=()):
        """A daemon that asks `cloud`, with two commits behind it."""
        self.addCleanup(cloud.close)
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.start_daemon("one", env=env, args=["--spot", spot, "--metadata", cloud.url, *args])
        cluster.create_run(
            "spot", train={"steps": 100_000}, checkpoint={"round_steps": round_steps}
        )
        cluster.wait_event(kind="committed", run="spot", count=2)
        return cluster

    def node(self, cluster, name="one"):
        return next(n for n in cluster.items("node", "list") if n["name"] == name)

    def lost_steps(self, cluster, reason="drain"):
        """By the daemon's own words, when it gave its lease back."""
        found = re.search(
            rf"lease returned: {reason}; (\d+) uncommitted", cluster.daemons["one"].log_text()
        )
        return int(found[1]) if found else None

    def expect_given_back(self, cloud, cluster, what, spot):
        cloud.announce(60)
        cluster.wait_event(kind="notice", node="one")
        returned = cluster.wait_event(kind="lease_returned", node="one")
        took = seconds_of(returned) - cloud.served
        self.assertEqual(self.lost_steps(cluster), 0)
        print(f"\n{cloud.name} (--spot {spot}), 67 MB: notice to lease given back {took:.2f} s")
        self.assertLess(took, 60)
        told = cluster.events(kind="notice", node="one")
        self.assertEqual(len(told), 1)
        self.assertIn(what, told[0]["reason"])
        shown = self.node(cluster)
        self.assertEqual(shown["state"], "draining")
        self.assertIsInstance(shown["leaves_in_seconds"], int)
        self.assertIn("LEAVES IN", cluster.run("node", "list").stdout)
        self.assertTrue(cluster.daemons["one"].alive())
        # Its successor goes on from the very last step.
        cluster.start_daemon("two", env=LARGE, args=["--spot", "off"])
        granted = cluster.wait(
            lambda: [e for e in cluster.events(kind="granted", run="spot") if e["node"] == "two"],
            "two to take the expert over",
        )[0]
        self.assertEqual(granted["step"], returned["step"])
        self.assertIsNone(self.node(cluster, "two")["leaves_in_seconds"])
        # However often the server repeats it.
        asked = cloud.asked
        if cloud.name != "gcp":  # which does not answer until it changes
            cluster.wait(lambda: cloud.asked > asked + 2, "more questions")
        self.assertEqual(cluster.daemons["one"].log_text().count(f"{what}, "), 1)

    def test_aws(self):
        cloud = Cloud("aws")
        cluster = self.begin(cloud, LARGE)
        self.expect_given_back(cloud, cluster, "AWS: terminate", "auto")
        self.assertTrue(cloud.refreshed)

    def test_gcp(self):
        cloud = Cloud("gcp")
        cluster = self.begin(cloud, LARGE, "gcp")
        self.expect_given_back(cloud, cluster, "GCP: preempted", "gcp")

    def test_azure(self):
        cloud = Cloud("azure")
        cluster = self.begin(cloud, LARGE)
        self.expect_given_back(cloud, cluster, "Azure: Preempt", "auto")
        cluster.wait(lambda: cloud.posts, "the acknowledgement")
        posted, body = cloud.posts[0]
        self.assertEqual(body, {"StartRequests": [{"EventId": "of-gpu-1"}]})
        returned = cluster.events(kind="lease_returned", node="one")[0]
        self.assertLessEqual(seconds_of(returned), posted)
        self.assertEqual(len(cloud.posts), 1)

    def test_without_time_for_a_snapshot_the_commit_in_flight_counts(self):
        """A line on which a commit takes 7 s: two of them do not fit into 9 s."""
        cloud = Cloud("gcp")
        args = ["--upload-limit", "600KB/s", "--drain-seconds", "9"]
        cluster = self.begin(cloud, MIDDLE, "gcp", args=args)
        commits = lambda: re.findall(  # noqa: E731
            r"committing steps \d+ to (\d+)", cluster.daemons["one"].log_text()
        )
        before = len(commits())
        cluster.wait(lambda: len(commits()) > before, "the next commit", cluster.daemons["one"])
        in_flight = int(commits()[-1])
        cloud.announce(30)
        returned = cluster.wait_event(kind="lease_returned", node="one")
        self.assertEqual(returned["step"], in_flight)
        lost = self.lost_steps(cluster, "no time for a last snapshot")
        self.assertIsNotNone(lost)
        took = seconds_of(returned) - cloud.served
        print(f"\nslow line: the commit in flight took {took:.2f} s more, {lost} steps lost")

    def test_advice_only_stops_new_leases(self):
        cloud = Cloud("aws")
        cluster = self.begin(cloud, SMALL, "aws")
        cloud.advice = True
        told = cluster.wait_event(kind="notice", node="one")
        self.assertIn("rebalance", told["reason"])
        before = len(cluster.events(kind="committed", run="spot"))
        cluster.wait_event(kind="committed", run="spot", count=before + 2)
        self.assertEqual(self.node(cluster)["state"], "cordoned")
        self.assertEqual(cluster.events(kind="lease_returned"), [])
        self.assertIsNone(self.node(cluster)["leaves_in_seconds"])

    def test_a_job_managers_signal(self):
        cloud = Cloud("none")
        cluster = self.begin(cloud, SMALL, "off")
        engines = cluster.daemons["one"].children()
        self.assertTrue(engines)
        for engine in engines:  # Slurm sends it to every process of a job
            os.kill(engine, signal.SIGUSR1)
        before = len(cluster.events(kind="committed"))
        cluster.wait_event(kind="committed", count=before + 2)
        cluster.daemons["one"].signal(signal.SIGUSR1)
        cluster.wait_event(kind="lease_returned", node="one")
        self.assertEqual(self.lost_steps(cluster), 0)
        self.assertIn("SIGUSR1", cluster.events(kind="notice")[0]["reason"])
        self.assertEqual(cluster.events(kind="engine_failed"), [])
        self.assertTrue(cluster.daemons["one"].alive())

    def test_what_no_platform_answers_gives_no_lease_back(self):
        faults = [
            ("expected an action", lambda h: h.answer(200, "\x00{]") or True),
            ("is past", lambda h: h.answer(200, PAST) or True),
            ("more than an hour away", lambda h: h.answer(200, ABSURD) or True),
            ("status 302", lambda h: h.answer(302, Location=good.url + h.path) or True),
            ("answers more than 64 KiB", megabytes),
            ("Timeout was reached", lambda h: time.sleep(10) or True),
        ]
        good = Cloud("aws")
        good.announce(60)
        self.addCleanup(good.close)
        cloud = Cloud("aws")
        cluster = self.begin(cloud, {**SMALL, "http_proxy": "http://127.0.0.1:9"}, "aws")
        daemon = cluster.daemons["one"]
        errors = lambda: re.findall(  # noqa: E731
            "cannot read the platform's notices: (.*)", daemon.log_text()
        )
        for i, (words, hostile) in enumerate(faults):
            cloud.hostile = hostile
            cluster.wait(lambda: len(errors()) > i, f'an error "{words}"', daemon)
            self.assertIn(words, errors()[i])
            cloud.hostile = None
            asked = cloud.asked
            cluster.wait(lambda: cloud.asked > asked + 2, "good answers", daemon)
        self.assertEqual(len(errors()), len(faults), "one line each, however long it lasts")
        self.assertEqual(cluster.events(kind={"notice", "lease_returned", "lease_lost"}), [])
        self.assertFalse(good.served)
        cloud.hostile = faults[-1][1]  # an answer that never comes does not hold up the end
        before = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        print(f"\nSIGTERM to exit, metadata server silent: {time.monotonic() - before:.2f} s")

    def test_sigkill_five_seconds_after_sigterm(self):
        """As on RunPod. Every second time the line is so slow that the kill comes in a commit."""
        cluster = self.cluster()
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        cluster.create_run("spot", train={"steps": 100_000}, checkpoint={"round_steps": 20})
        ended, killed = 0, 0
        for i in range(REPEAT):
            slow = i % 2 == 1
            args = ["--spot", "off", *(["--upload-limit", "600KB/s"] if slow else [])]
            extra = {} if slow else {"RUNPOD_POD_ID": "pod"}
            before = len(cluster.events(kind="committed", run="spot"))
            daemon = cluster.start_daemon("one", env={**MIDDLE, **extra}, args=args)
            cluster.wait_event(kind="committed", run="spot", count=before + 1)
            daemon.signal(signal.SIGTERM)
            try:
                daemon.popen.wait(5)
                ended += 1
            except subprocess.TimeoutExpired:
                killed += 1
            daemon.kill()
            acknowledged = max(e["step"] for e in cluster.events(kind="committed", run="spot"))
            self.assertGreaterEqual(cluster.experts("spot")[0]["step"], acknowledged)
            grants = len(cluster.events(kind="granted", run="spot"))
            cluster.start_daemon("one", env=MIDDLE, args=["--spot", "off"])
            cluster.wait_event(kind="granted", run="spot", count=grants + 1)
            resumed = cluster.events(kind="granted", run="spot")[grants]
            self.assertGreaterEqual(resumed["step"], acknowledged)
            cluster.daemons["one"].kill()
        print(f"\n{REPEAT} SIGTERMs: {ended} left in 5 s, {killed} were killed; nothing lost")


PAST = '{"action":"terminate","time":"2017-09-18T08:22:00Z"}'
ABSURD = '{"action":"terminate","time":"9999-12-31T23:59:59Z"}'


def megabytes(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(64 << 20))
    handler.end_headers()
    for _ in range(64):
        handler.wfile.write(MEGABYTE)
    return True


if __name__ == "__main__":
    if "--repeat" in sys.argv:
        at = sys.argv.index("--repeat")
        REPEAT = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    unittest.main()
