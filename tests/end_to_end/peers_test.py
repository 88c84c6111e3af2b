#!/usr/bin/env python3
"""Nodes serve each other: what a newcomer needs comes from them, and a whole ensemble does with the coordinator killed for good."""
import hashlib
import pathlib
import unittest

from case import EndToEnd
from cluster import free_ports


def sums(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}


class Peers(EndToEnd):
    def say_what_they_hold(self, it, run, steps):
        """The nodes, once they say of each expert that its checkpoint of this step is there, and what goes with it: the
        specification, the router's file and the partition's statistics beside a shard."""
        def held():
            peers = it.items("peer", "list")
            heads = {e["expert"]: e["step"] for p in peers for e in p["experts"] if e["run"] == run}
            return peers if heads == steps and all(p["address"] and p["objects"] >= 5 for p in peers) else None
        return it.wait(held, "the nodes to say what they hold", *it.daemons.values())

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

        it.coordinator.kill()
        it.run("ensemble", "fetch", "run", "-o", after, "--from", peers[0]["address"])
        self.assertEqual(sums(after), sums(before))
        # With everything that training goes on from, by the name that was remembered.
        it.run("ensemble", "fetch", "run", "-o", it.root / "state", "--from", "two", "--training-state")
        self.assertEqual(len(list((it.root / "state").glob("expert_*/training_state.safetensors"))), 2)
        unknown = it.run("ensemble", "fetch", "other", "-o", it.root / "none", "--from", "two", check=False)
        self.assertIn("no record", unknown.stderr)

        # All nodes killed and started again: they know their run from their disks alone.
        for process in it.daemons.values():
            process.kill()
            process.start()
        it.wait(lambda: it.run("ensemble", "fetch", "run", "-o", again, "--from", "one", check=False).returncode == 0,
                "the ensemble from nodes that were started again", *it.daemons.values())
        self.assertEqual(sums(again), sums(before))


if __name__ == "__main__":
    unittest.main()
