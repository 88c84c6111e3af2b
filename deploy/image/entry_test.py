#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The entry point of the images: what it makes of a host's variables, and of wrong ones.

The programs that it starts are stubs that print how they were started.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ENTRY = pathlib.Path(__file__).resolve().parent / "entry"
STUB = '#!/bin/sh\necho "$0 $*"\nenv | grep ^SKERRY_ | sort\n'


class Entry(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.data = self.root / "data"
        for name in ("skerryd", "skerry-coordinator", "skerry-engine"):
            self.stub(name, STUB)

    def stub(self, name, text):
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def start(self, *words, **env):
        return subprocess.run(
            [ENTRY, *words],
            env={
                "PATH": f"{self.root}:{os.environ['PATH']}",
                "HOME": str(self.root),
                "SKERRY_DATA": str(self.data),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def started(self, role, **env):
        done = self.start(role, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        program = {"node": "skerryd", "coordinator": "skerry-coordinator"}[role]
        at = lines.index(f"{self.root}/{program} ")
        return dict(line.split("=", 1) for line in lines[at + 1 :]), lines

    def expect_refusal(self, role, *parts, status=78, **env):
        done = self.start(role, **env)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_a_node_without_a_host(self):
        env, lines = self.started("node", SKERRY_TOKEN="token")
        self.assertIn(f"{self.root}/skerry-engine setup --if-missing", lines)
        self.assertEqual(env["SKERRY_PEER_LISTEN"], "0.0.0.0:7610")
        self.assertNotIn("SKERRY_PEER_ADVERTISE", env)
        self.assertEqual((env["SKERRY_TOKEN"], env["SKERRY_DATA"]), ("token", str(self.data)))

    def test_an_enrolled_node_needs_no_token(self):
        self.data.mkdir()
        (self.data / "node.toml").touch()
        self.started("node")

    def test_a_node_on_runpod_and_vast(self):
        for host in (
            {"RUNPOD_POD_ID": "p", "RUNPOD_PUBLIC_IP": "1.2.3.4", "RUNPOD_TCP_PORT_7610": "40112"},
            {"VAST_CONTAINERLABEL": "C", "PUBLIC_IPADDR": "1.2.3.4", "VAST_TCP_PORT_7610": "40112"},
        ):
            env, _ = self.started("node", SKERRY_TOKEN="token", **host)
            self.assertEqual(env["SKERRY_PEER_LISTEN"], "0.0.0.0:7610")
            self.assertEqual(env["SKERRY_PEER_ADVERTISE"], "1.2.3.4:40112")

    def test_a_rented_node_that_nobody_can_dial_does_not_listen(self):
        env, _ = self.started("node", SKERRY_TOKEN="token", RUNPOD_POD_ID="p")
        self.assertEqual(env["SKERRY_PEER_LISTEN"], "off")

    def test_what_a_person_sets_wins(self):
        env, _ = self.started(
            "node",
            SKERRY_TOKEN="token",
            SKERRY_PEER_LISTEN="off",
            SKERRY_PEER_ADVERTISE="a:1",
            RUNPOD_PUBLIC_IP="1.2.3.4",
            RUNPOD_TCP_PORT_7610="40112",
        )
        self.assertEqual((env["SKERRY_PEER_LISTEN"], env["SKERRY_PEER_ADVERTISE"]), ("off", "a:1"))

    def test_a_coordinator_on_a_host_that_remaps_ports(self):
        ports = {f"VAST_TCP_PORT_{7600 + i}": str(40000 + i * 7) for i in range(3)}
        env, _ = self.started(
            "coordinator", VAST_CONTAINERLABEL="C", PUBLIC_IPADDR="1.2.3.4", **ports
        )
        self.assertEqual(env["SKERRY_LISTEN"], "0.0.0.0:7600")
        self.assertEqual(env["SKERRY_ADVERTISE"], "1.2.3.4:40000,40007,40014")

    def test_a_rented_coordinator_that_nobody_can_dial_is_refused(self):
        self.expect_refusal("coordinator", "7600", "SKERRY_ADVERTISE", RUNPOD_POD_ID="p")

    def test_no_token(self):
        self.expect_refusal("node", "SKERRY_TOKEN", "skerry token create")

    def test_a_port_that_is_none(self):
        for name in ("SKERRY_PEER_PORT", "RUNPOD_TCP_PORT_7610", "VAST_TCP_PORT_7610"):
            for value in ("x", "0", "65536", "-1", "7610 ", "1e3"):
                self.expect_refusal("node", name, f"'{value}'", SKERRY_TOKEN="t", **{name: value})

    def test_a_data_folder_that_cannot_be_written(self):
        (self.root / "file").touch()
        for folder in ("/proc/skerry", str(self.root / "file")):
            self.expect_refusal("node", folder, "volume", SKERRY_TOKEN="t", SKERRY_DATA=folder)

    def test_the_engines_refusal_is_the_containers(self):
        self.stub("skerry-engine", "#!/bin/sh\necho 'PyPI is away' >&2\nexit 75\n")
        self.expect_refusal("node", "PyPI", status=75, SKERRY_TOKEN="t")

    def test_other_programs(self):
        self.assertEqual(self.start("echo", "a b").stdout, "a b\n")
        self.assertIn("usage:", self.start("--help").stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
