#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The coordinator's mirror in a bucket, and a coordinator that begins anew from it."""

import os
import random
import shutil
import subprocess
import unittest

from case import BIN, EndToEnd
from s3_double import S3Double

STEPS = 3000
KILLS = int(os.environ.get("SKERRY_BUCKET_KILLS", "5"))


class Bucket(EndToEnd):
    def setUp(self):
        self.store = S3Double()
        self.addCleanup(self.store.close)
        os.environ.update(self.store.environment)
        os.environ["SKERRY_FAKE_STEP_MS"] = "4"

    def start(self, *more):
        it = self.cluster(
            coordinator_args=["--lease-seconds", "0.5", *self.store.arguments(), *more]
        )
        it.start_coordinator()
        return it

    def command(self, *words, expected=0, env=None):
        done = subprocess.run(
            [str(word) for word in (BIN / "skerry-coordinator", *words)],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def place(self):
        return self.store.arguments()[2:]

    def restore(self, it, expected=0, **named):
        """On a machine that has nothing but a copy of the identity."""
        return self.command(
            "restore",
            self.store.arguments()[1],
            "--identity",
            it.root / "identity",
            "--data",
            it.root / "coordinator",
            *self.place(),
            expected=expected,
            **named,
        )

    def lose_the_coordinator(self, it):
        it.coordinator.kill()
        identity = it.root / "identity"
        if not identity.exists():
            shutil.copy2(it.root / "coordinator/identity", identity)
        shutil.rmtree(it.root / "coordinator")

    def test_a_lost_coordinator_comes_back_from_it(self):
        it = self.start()
        for name in ("ada", "bob"):
            it.start_daemon(name)
        it.add_dataset(partitions=2)
        it.create_run("reference", train={"steps": STEPS})
        it.wait_run("reference")
        reference = self.trained(it, "reference", STEPS)
        it.create_run("birds", train={"steps": STEPS})
        for expert in (0, 1):
            it.wait_event(kind="committed", run="birds", expert=expert, count=2)
        state = self.store.keys("fleet/state/")
        it.wait(
            lambda: self.store.keys("fleet/state/") != state,
            "the mirror to go on",
            it.coordinator,
        )
        before = [e["epoch"] for e in it.experts("birds")]
        self.lose_the_coordinator(it)
        self.store.faults.truncated = 3
        words = self.restore(it)
        self.assertIn("restored to", words)
        it.start_coordinator()
        it.wait_run("birds")
        self.assertEqual(self.trained(it, "birds", STEPS), reference, "as if nothing had happened")
        for now, then in zip([e["epoch"] for e in it.experts("birds")], before):
            self.assertGreater(now, then)
        self.assertEqual(it.coordinator.stop(), 0)
        self.command("backup", *self.store.arguments()[1:], "--data", it.root / "coordinator")
        self.nothing_is_left_over(it)

    def nothing_is_left_over(self, it):
        """The bucket holds one state, and objects that the coordinator has, not much more."""
        self.assertEqual(len(self.store.keys("fleet/state/")), 1)
        it.start_coordinator()
        live = {
            o["object"]: o["bytes"]
            for o in it.items("chunk", "list")
            if o["coordinator"] == "whole"
        }
        there = {key.split("/")[2] for key in self.store.keys("fleet/objects/")}
        self.assertLessEqual(there, set(live))
        chunks = sum(
            len(value)
            for key, value in self.store.objects.items()
            if key.startswith("fleet/objects/") and not key.endswith("manifest")
        )
        self.assertLessEqual(chunks, 1.02 * sum(live.values()))

    def test_what_it_names_is_there_whenever_it_is_killed(self):
        it = self.start()
        it.start_daemon("ada")
        it.add_dataset(partitions=2)
        it.create_run("birds", train={"steps": 100 * STEPS})
        draw = random.Random(7)
        for _ in range(KILLS):
            it.wait_event(kind="committed", run="birds", expert=0)
            requests = sum(self.store.counts.values()) + draw.randrange(1, 40)
            it.wait(
                lambda requests=requests: sum(self.store.counts.values()) >= requests,
                "the mirror to work",
                it.coordinator,
            )
            it.coordinator.kill()
            self.every_named_object_is_there(it)
            it.coordinator.start()
            it.await_coordinator()

    def every_named_object_is_there(self, it):
        if not self.store.keys("fleet/state/"):
            return
        target = it.root / "checked"
        shutil.rmtree(target, ignore_errors=True)
        words = self.command(
            "restore",
            self.store.arguments()[1],
            "--identity",
            it.root / "coordinator/identity",
            "--data",
            target,
            *self.place(),
        )
        self.assertNotIn("lacks", words)

    def test_training_goes_on_whatever_the_store_does(self):
        it = self.start()
        it.start_daemon("ada")
        it.add_dataset(partitions=2)
        faults = self.store.faults
        it.create_run("birds", train={"steps": 100 * STEPS})
        for name, change in {
            "refused": ("status", (403, "AccessDenied")),
            "ill": ("status", (500, "InternalError")),
            "full": ("room", 0),
            "busy": ("one_in", 3),
        }.items():
            with self.subTest(name):
                setattr(faults, *change)
                seen = self.store.counts["refused"]
                it.wait(
                    lambda seen=seen: self.store.counts["refused"] > seen,
                    "the store to refuse",
                    it.coordinator,
                )
                done = it.experts("birds")[0]["step"]
                it.wait(
                    lambda done=done: it.experts("birds")[0]["step"] > done,
                    "training to go on",
                    it.coordinator,
                )
                setattr(faults, change[0], type(faults)().__dict__[change[0]])
                state = self.store.keys("fleet/state/")
                it.wait(
                    lambda state=state: self.store.keys("fleet/state/") != state,
                    "the mirror to catch up",
                    it.coordinator,
                )
        warnings = it.coordinator.log_text().count("the bucket lags behind")
        self.assertLessEqual(warnings, 8, "once for each kind of failure, not once a try")
        self.assertGreaterEqual(warnings, 2)
        self.assertNotIn(self.store.secret, it.coordinator.log_text())
        self.assertNotIn("X-Amz-Signature", it.coordinator.log_text())

    def test_wrong_words_are_refused(self):
        it = self.start()
        it.wait(
            lambda: self.store.keys("fleet/state/"), "the first mirror", it.coordinator
        )
        data = it.root / "coordinator"
        url = self.store.arguments()[1]
        other = self.cluster()
        other.start_coordinator()
        long, page = (self.store.arguments(prefix)[1] for prefix in ("long", "page"))
        self.store.objects["long/owner"] = bytes(5 << 20)
        self.store.objects["page/owner"] = b"<!DOCTYPE html>"
        for words, env, status, expected in (
            (["backup", url, "--data", other.root / "coordinator"], None, 1, "belongs to"),
            (["backup", "s3://", "--data", data], None, 78, "s3://BUCKET"),
            (["backup", "s3://elsewhere/x", "--data", data], None, 78, "NoSuchBucket"),
            (
                ["backup", url, "--data", data],
                {"AWS_SECRET_ACCESS_KEY": "wrong"},
                78,
                "SignatureDoesNotMatch",
            ),
            (["backup", url, "--data", data], {"AWS_SECRET_ACCESS_KEY": ""}, 78, "--store-keys"),
            (["backup", url, "--data", data, "--store-keys", data], None, 78, "is no file"),
            (["backup", long, "--data", data], None, 78, "more than 256 bytes"),
            (["backup", page, "--data", data], None, 78, "expected a coordinator's key"),
            (["restore", url, "--data", it.root / "new"], None, 78, "--identity"),
            (
                ["restore", url, "--identity", data / "identity", "--data", data],
                None,
                None,
                None,
            ),
            (
                ["restore", self.store.arguments("empty")[1]]
                + ["--identity", data / "identity", "--data", it.root / "new"],
                None,
                78,
                "holds no coordinator's state",
            ),
            (
                ["restore", url, "--identity", other.root / "coordinator/identity"]
                + ["--data", it.root / "other"],
                None,
                1,
                "belongs to",
            ),
        ):
            with self.subTest(" ".join(map(str, words))):
                done = subprocess.run(
                    [str(w) for w in (BIN / "skerry-coordinator", *words, *self.place())],
                    capture_output=True,
                    text=True,
                    env={**os.environ, **(env or {})},
                )
                self.assertNotEqual(done.returncode, 0)
                if status is not None:
                    self.assertEqual(done.returncode, status, done.stderr)
                    self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    unittest.main()
