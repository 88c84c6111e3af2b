#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes serve each other.

A new node fetches its data from them. They serve a whole ensemble after the coordinator is killed
for good. A node with a replica takes over from its own disk.
"""

import json
import re
import shutil
import unittest

from bit_exact_test import tensors
from case import EndToEnd, needs_engine
from cluster import flip_byte, free_ports, inflate, sums, write_dataset


class Peers(EndToEnd):
    def say_what_they_hold(self, it, run, steps):
        """The nodes, once each reports every expert's checkpoint of this step and the files that
        belong to it.

        These files are the specification, the router's file, and the partition's statistics beside
        a shard.
        """

        def held():
            peers = it.items("peer", "list")
            heads = {e["expert"]: e["step"] for p in peers for e in p["experts"] if e["run"] == run}
            return (
                peers
                if heads == steps and all(p["address"] and p["objects"] >= 5 for p in peers)
                else None
            )

        return it.wait(held, "the nodes to say what they hold", *it.daemons.values())

    def router_from_disk(self, it, node, run):
        """The command's output, once it knows what the coordinator acknowledged of each expert.

        Records are saved only from time to time.
        """
        shutil.rmtree(it.root / f"router-{node}", ignore_errors=True)
        done = it.skerryd(
            "router",
            run,
            "--data",
            it.root / node,
            "--out",
            it.root / f"router-{node}",
            "-o",
            "json",
        )
        made = json.loads(done.stdout) if done.returncode == 0 else None
        return made if made and all(e["acknowledged"] for e in made["experts"]) else None

    def router_sums(self, folder):
        found = sums(folder)
        del found["experts.json"]
        return found

    @needs_engine
    def test_ensemble_with_the_coordinator_gone(self):
        it = self.cluster(fake=False)
        it.start_coordinator()
        it.add_dataset(partitions=2)
        port = free_ports(2)
        for number, name in enumerate(("one", "two")):
            it.start_daemon(name, args=["--peer-listen", f"127.0.0.1:{port + number}"])
        it.create_run("run")
        it.wait_run("run")
        before, after, again = (it.root / name for name in ("before", "after", "again"))
        it.run("ensemble", "fetch", "run", "-o", before)
        peers = self.say_what_they_hold(it, "run", {0: 60, 1: 60})
        self.assertEqual([p["name"] for p in peers], ["one", "two"])
        # Somebody who never ran `peer list`.
        other = shutil.copy(it.root / "coordinator/admin.toml", it.root / "other.toml")
        it.run("--context", other, "run", "show", "run")

        for node in ("one", "two"):
            it.wait(
                lambda: self.router_from_disk(it, node, "run"),
                "the records on its disk",
                it.daemons[node],
            )

        it.coordinator.kill()
        it.run("ensemble", "fetch", "run", "-o", after, "--from", peers[0]["address"])
        self.assertEqual(sums(after), sums(before))
        it.run(
            "--context", other, "ensemble", "fetch", "run", "-o", it.root / "other", "--from", "two"
        )
        self.assertEqual(sums(it.root / "other"), sums(before))
        # With everything that training goes on from, by the name that was
        # remembered.
        it.run(
            "ensemble", "fetch", "run", "-o", it.root / "state", "--from", "two", "--training-state"
        )
        self.assertEqual(
            len(list((it.root / "state").glob("expert_*/training_state.safetensors"))), 2
        )
        # The router again, from one node's disk alone, while its daemon runs.
        made = self.router_from_disk(it, "one", "run")
        self.assertEqual([(e["index"], e["step"]) for e in made["experts"]], [(0, 60), (1, 60)])
        self.assertTrue(all(h["address"] for e in made["experts"] for h in e["holders"]))
        self.assertEqual(self.router_sums(it.root / "router-one"), sums(before / "router"))
        other = it.skerryd("router", "other", "--data", it.root / "one", "--out", it.root / "none")
        self.assertEqual(other.returncode, 1)
        self.assertIn("they tell of run", other.stderr)

        unknown = it.run(
            "ensemble", "fetch", "other", "-o", it.root / "none", "--from", "two", check=False
        )
        self.assertIn("no record", unknown.stderr)

        # All nodes killed and started again: they know their run from their
        # disks alone.
        for process in it.daemons.values():
            process.kill()
        self.assertTrue(self.router_from_disk(it, "two", "run"), "from a disk that nobody uses")
        self.assertEqual(self.router_sums(it.root / "router-two"), sums(before / "router"))
        for process in it.daemons.values():
            process.start()
        it.wait(
            lambda: it.run(
                "ensemble", "fetch", "run", "-o", again, "--from", "one", check=False
            ).returncode
            == 0,
            "the ensemble from nodes that were started again",
            *it.daemons.values(),
        )
        self.assertEqual(sums(again), sums(before))

    @needs_engine
    def test_a_spare_takes_over_from_its_own_copy(self):
        it = self.cluster(fake=False)
        it.start_coordinator()
        it.add_dataset(partitions=1)
        for name in ("one", "two", "three"):
            it.start_daemon(name, args=["--host-label", name])
        steps = 4000  # Some 15 s of training: long enough that the kill falls within it.
        it.create_run("run", train={"steps": steps}, checkpoint={"round_steps": 20, "copies": 2})

        def copied(node=None):
            expert = it.experts("run")[0]
            return (
                expert
                if expert["copies"] == 2
                and expert["step"] >= 40
                and expert["node"] not in (None, node)
                else None
            )

        first = it.wait(copied, "two copies", *it.daemons.values())
        self.assertEqual(first["unanchored_steps"], 0)
        it.daemons[first["node"]].kill()
        second = it.wait(
            lambda: copied(first["node"]),
            "two copies again, with another that trains",
            it.coordinator,
        )
        it.wait_run("run")
        grants = it.events(kind="granted", run="run")
        self.assertEqual([e["node"] for e in grants], [first["node"], second["node"]])
        # It stands by until it has the shards, too; a slow machine may not yet.
        self.assertRegex(grants[1]["reason"], "holds its checkpoint|stands by for it")
        log = it.daemons[second["node"]].log_text()
        before, after = log.split("taken up at step")
        self.assertIn("fetching checkpoint", before, "while it stood by")
        self.assertNotIn("fetching checkpoint", after, "taking over is a local load")
        commits = it.events(kind="committed", run="run")
        self.assertTrue(all("in 2 places" in e["reason"] for e in commits), commits)

        # The same bytes as a run that nobody disturbed.
        it.create_run("calm", train={"steps": steps}, checkpoint={"round_steps": 20})
        it.wait_run("calm")
        for run in ("run", "calm"):
            it.run("ensemble", "fetch", run, "-o", it.root / run, "--training-state")
        files = sorted(
            p.relative_to(it.root / "run") for p in (it.root / "run").glob("expert_*/*.safetensors")
        )
        self.assertEqual(len(files), 2)
        for file in files:
            self.assertEqual(
                tensors(it.root / "run" / file), tensors(it.root / "calm" / file), file
            )

    def test_limits_and_what_is_told_of_transfers(self):
        """Rate limits: a coordinator that sends at most 4 MB/s, and a node that receives at most 2.

        Of 12 MB in three chunks the first leaves at once. The other two take no less time than that
        rate allows.
        """
        it = self.cluster(coordinator_args=["--upload-limit", "4MB/s"])
        it.start_coordinator()
        folder = it.root / "noise"
        write_dataset(folder, partitions=1, samples=200)
        inflate(folder, 12_500_000)
        it.run("dataset", "add", "noise", folder, "--partitions", 1)
        env = {"SKERRY_FAKE_STEP_MS": "20"}
        for name, least, args in (("one", 1.8, []), ("two", 3.7, ["--download-limit", "2MB/s"])):
            it.start_daemon(name, env=env, args=args)
            it.create_run(f"run-{name}", dataset="noise", train={"steps": 100000})
            told = it.wait(
                lambda: [
                    e
                    for e in it.events(kind="transfer", node=name)
                    if "shard-0-1000" in e["reason"]
                ],
                f"{name} to tell what it fetched",
                *it.daemons.values(),
            )
            self.assertEqual(len(told), 1, "once for each object")
            size, seconds = re.search(
                r"of dataset noise: ([\d.]+) MiB in ([\d.]+) s, ", told[0]["reason"]
            ).groups()
            self.assertGreater(float(size), 11)
            self.assertGreater(float(seconds), least, told[0]["reason"])

    def test_what_the_coordinators_disk_lost_passes_through_it(self):
        """Two nodes that accept no connection: one gets its data from the other by the
        coordinator's relay.

        The coordinator itself has lost that data.
        """
        it = self.cluster(
            coordinator_args=["--lease-seconds", "1"], daemon_args=["--peer-listen", "off"]
        )
        it.start_coordinator()
        it.add_dataset(partitions=1)
        it.start_daemon("one")
        it.create_run("first", train={"steps": 20})
        it.wait_run("first")
        shard = it.wait(
            lambda: next(
                (o for o in it.items("chunk", "list", "--node", "one") if o["kind"] == "shard"),
                None,
            ),
            "the node to say that it holds the shard",
            *it.daemons.values(),
        )
        it.run("node", "cordon", "one")
        flip_byte(it.root / "coordinator/objects" / shard["object"], shard["bytes"] // 2)
        it.start_daemon("two")
        it.create_run("second", train={"steps": 20})
        it.wait_run("second")
        self.assertEqual({e["node"] for e in it.events(kind="granted", run="second")}, {"two"})
        it.wait_event(kind="object_damaged", run="second")
        it.wait_event(kind="object_mended", run="second")
        self.assertEqual(it.json("chunk", "verify")["damaged"], [])

    def test_a_node_gives_more_than_its_record_has_room_for(self):
        """A record names 64 objects. The coordinator repairs its other lost objects from the node
        too.
        """
        it = self.cluster(coordinator_args=["--lease-seconds", "1"])
        it.start_coordinator()
        folder = it.root / "noise"
        write_dataset(folder, partitions=1, samples=200)
        inflate(folder, 2_000_000, shard_bytes=20_000)
        it.run("dataset", "add", "noise", folder, "--partitions", 1)
        it.start_daemon("one")
        it.create_run("first", dataset="noise", train={"steps": 20})
        it.wait_run("first")
        # Of the 64 that it names the coordinator may not know a few:
        # checkpoints that it has collected and the node still keeps.
        named = it.wait(
            lambda: len(n := {o["object"] for o in it.items("chunk", "list", "--node", "one")})
            >= 60
            and n,
            "the node to say what it holds",
            *it.daemons.values(),
        )
        it.run("node", "cordon", "one")
        unnamed = [
            path
            for path in (it.root / "coordinator/objects").iterdir()
            if path.name not in named
            and path.stat().st_size > 10_000
            and (it.root / "one/objects" / path.name).exists()
        ]
        self.assertGreater(len(unnamed), 20)
        for path in unnamed:
            flip_byte(path, 1000)
        it.start_daemon("two")
        it.create_run("second", dataset="noise", train={"steps": 20})
        it.wait_run("second")
        self.assertEqual({e["node"] for e in it.events(kind="granted", run="second")}, {"two"})

    def test_a_node_verifies_its_disk(self):
        """Beside its daemon and without one: what is damaged is named, and fetched again."""
        it = self.cluster()
        it.start_coordinator()
        it.add_dataset(partitions=1)
        it.start_daemon("one")
        it.create_run("first", train={"steps": 20})
        it.wait_run("first")

        # Fetched once the run's records are known: the router's file is one of
        # two beside the shard.
        def held():
            kinds = [o["kind"] for o in it.items("chunk", "list", "--node", "one")]
            return {"checkpoint", "router", "partition", "shard"} <= set(kinds)

        it.wait(held, "the node to hold what goes with its checkpoint", *it.daemons.values())
        files = {o["kind"]: o for o in it.items("chunk", "list", "--node", "one")}

        def verify():
            done = it.skerryd("verify", "--data", it.root / "one", "-o", "json")
            self.assertIn(done.returncode, (0, 8), done.stderr)
            self.assertIn("verifying  100 %", done.stderr)
            found = json.loads(done.stdout)
            self.assertGreaterEqual(found["checked"], 3)
            damaged = {d["object"] for d in found["damaged"]}
            self.assertEqual(done.returncode, 8 if damaged else 0)
            return damaged

        def damage(*kinds):
            for kind in kinds:
                flip_byte(
                    it.root / "one/objects" / files[kind]["object"], files[kind]["bytes"] // 2
                )
            return {files[kind]["object"] for kind in kinds}

        self.assertEqual(verify(), set())
        named = damage("router", "shard")
        self.assertEqual(verify(), named)
        # The router's file is always wanted, the shard with the next run.
        it.wait(lambda: not verify(), "what is damaged to be fetched again", *it.daemons.values())
        it.create_run("second", train={"steps": 20})
        it.wait_run("second")

        self.assertEqual(it.daemons["one"].stop(), 0)
        named = damage("partition", "shard")
        self.assertEqual(verify(), named)
        self.assertEqual(verify(), named, "nobody has repaired it")
        it.start_daemon("one")
        it.create_run("third", train={"steps": 20})
        it.wait_run("third")
        it.wait(lambda: not verify(), "what is damaged to be fetched again", *it.daemons.values())

    def test_chunks_are_listed_and_verified(self):
        it = self.cluster(coordinator_args=["--lease-seconds", "1"])
        it.start_coordinator()
        it.add_dataset(partitions=1)
        it.start_daemon("one", env={"SKERRY_FAKE_STEP_MS": "20"})
        it.create_run("run", train={"steps": 30})
        it.wait_run("run")

        def held():
            objects = it.items("chunk", "list", "run")
            return (
                objects
                if all(
                    o["holders"] == ["one"]
                    for o in objects
                    if o["kind"] in ("checkpoint", "shard") and o["step"] in (None, 30)
                )
                else None
            )

        objects = it.wait(held, "the node to say what it holds", *it.daemons.values())
        self.assertEqual(
            {o["kind"] for o in objects} - {"fit", "test"},
            {"checkpoint", "partition", "router", "shard"},
        )
        self.assertEqual({o["coordinator"] for o in objects}, {"whole"})
        shard = next(o for o in objects if o["kind"] == "shard")
        listed = it.items("chunk", "list", "--object", shard["object"][:12], "--chunks")
        self.assertEqual(sum(c["bytes"] for c in listed[0]["chunks"]), shard["bytes"])

        whole = it.json("chunk", "verify")
        self.assertEqual((whole["checked"], whole["damaged"]), (len(objects), []))
        flip_byte(it.root / "coordinator/objects" / shard["object"], shard["bytes"] // 2)
        done = it.run("chunk", "verify", "run", "-o", "json", check=False)
        self.assertEqual(done.returncode, 8, done.stderr)
        found = json.loads(done.stdout)["damaged"]
        self.assertEqual([d["object"] for d in found], [shard["object"]])
        self.assertEqual(len(found[0]["damaged_chunks"]), 1)
        self.assertIn("skerry dataset add", found[0]["trouble"])
        it.wait_event(kind="object_damaged", run="run")


if __name__ == "__main__":
    unittest.main()
