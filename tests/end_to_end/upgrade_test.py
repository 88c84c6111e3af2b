#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of one protocol minor version are replaced by the next while a run trains.

The older programs are in SKERRY_OLDER_BIN: those that this build links with an older version
number, or those that `./dev upgrade` builds from an older commit.
"""

import os
import pathlib
import sys
import unittest

from case import BIN, FAKE_ENGINE, EndToEnd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))
import witness  # noqa: E402

OLDER_BIN = pathlib.Path(os.environ["SKERRY_OLDER_BIN"]).resolve()
NODES = ("one", "two", "three", "four")
EXPERTS = 3  # one node is idle, and takes over what another returns
RUN = "run"
STEP_MS = {"SKERRY_FAKE_STEP_MS": "10"}
LOSSES = ("lease_lost", "node_lost", "fenced", "refused", "engine_failed", "object_damaged")


class Upgrade(EndToEnd):
    def programs_of(self, folder):
        """What starts from now on, and the CLI, come from this folder."""
        self.made.bin, self.made.engine = folder, folder / FAKE_ENGINE.name

    def start(self):
        self.made = self.cluster()
        self.programs_of(OLDER_BIN)
        self.made.start_coordinator()
        self.made.add_dataset(partitions=EXPERTS)
        for name in NODES:
            self.made.start_daemon(name, env=STEP_MS)
        self.made.create_run(RUN, train={"steps": 1000000})
        self.commits_go_on("with the older programs alone")

    def programs(self):
        return [self.made.coordinator, *self.made.daemons.values()]

    def commits_go_on(self, when):
        """Each expert commits twice more."""
        before = {expert["index"]: expert["step"] for expert in self.made.experts(RUN)}

        def further():
            return all(
                expert["step"] >= before[expert["index"]] + 20
                for expert in self.made.experts(RUN)
            )

        self.made.wait(further, f"commits of every expert, {when}", *self.programs())

    def replace_coordinator(self):
        self.assertEqual(self.made.coordinator.stop(), 0)
        self.made.start_coordinator()

    def replace_node(self, name, drain):
        if drain:
            self.made.run("node", "drain", name)
        self.assertEqual(self.made.daemons[name].stop(), 0)
        self.made.start_daemon(name, env=STEP_MS)
        if drain:
            self.made.run("node", "uncordon", name)

    def replace_nodes(self):
        for index, name in enumerate(NODES):
            self.replace_node(name, drain=index % 2 == 0)
            self.commits_go_on(f"after {name} was replaced")

    def judge(self):
        """No lease and no committed step was lost."""
        acknowledged = {
            (int(found[1]), int(found[2]))
            for daemon in self.made.daemons.values()
            for found in witness.COMMITTED.finditer(daemon.log_text())
        }
        events = self.made.items("event", "list")
        for kind in LOSSES:
            self.assertEqual([e["reason"] for e in events if e["kind"] == kind], [], kind)
        self.assertEqual(witness.broken_rules(events, RUN, EXPERTS), [])
        committed = {(e["expert"], e["step"]) for e in events if e["kind"] == "committed"}
        self.assertGreater(len(acknowledged), 0)
        self.assertEqual(acknowledged - committed, set(), "acknowledged and unknown")
        returned = sum(e["kind"] == "lease_returned" for e in events)
        self.assertGreater(returned, 0, "a node that stops returns its lease")
        print(
            f"\n{len(NODES)} nodes and the coordinator replaced: {len(committed)} commits, "
            f"{len(acknowledged)} acknowledged in logs, {returned} leases returned, 0 lost",
            file=sys.stderr,
        )

    def test_coordinator_first(self):
        self.start()
        self.programs_of(BIN)
        self.replace_coordinator()
        self.commits_go_on("with older nodes at a newer coordinator")
        self.replace_nodes()
        self.judge()

    def test_nodes_first(self):
        self.start()
        self.programs_of(BIN)
        self.replace_nodes()
        self.replace_coordinator()
        self.commits_go_on("after the coordinator was replaced")
        self.judge()


if __name__ == "__main__":
    unittest.main()
