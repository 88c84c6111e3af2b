#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""first_hour.sh runs to its end: without a card, and where every part fails.

usage: first_hour_test.py BIN_FOLDER
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "first_hour.sh"
BIN = pathlib.Path(sys.argv.pop(1))
PARTS = re.findall(r"^run (\w+) \d+$", SCRIPT.read_text(), re.MULTILINE)
OF_CARDS = {"rival", "doctor", "near_cpu", "reference", "memory", "sanitizer", "health"}


class FirstHour(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_it(self, programs):
        done = subprocess.run(
            [SCRIPT, "--bin", programs, "--out", self.root / "out", "--quick"],
            env={**os.environ, "PATH": f"{self.root}/stubs:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        report = json.loads((self.root / "out/report.json").read_text())
        self.assertEqual([part["name"] for part in report["parts"]], PARTS, done.stdout)
        for part in report["parts"]:
            self.assertRegex(done.stdout, rf" {part['name']} +{part['result']}  ")
        return done, {part["name"]: part for part in report["parts"]}

    def test_without_a_card_it_names_what_it_skipped(self):
        self.program("stubs/nvidia-smi", "exit 9")
        done, parts = self.run_it(BIN)
        self.assertEqual(done.returncode, 0, done.stdout)
        for name, part in parts.items():
            self.assertEqual(part["result"], "SKIP" if name in OF_CARDS else "PASS", part)
            self.assertTrue(part["words"], name)

    def test_a_part_that_fails_ends_no_other(self):
        self.program("bin/skerry-engine", "echo no such engine; exit 3")
        self.program("stubs/nvidia-smi", 'case "$*" in -L) echo "GPU 0: fake" ;; *) exit 9 ;; esac')
        done, parts = self.run_it(self.root / "bin")
        self.assertEqual(done.returncode, 1, done.stdout)
        for name in ("engine", "check", "dataset", "kernels", "bits", "near_cpu", "speed"):
            self.assertEqual(parts[name]["result"], "FAIL", parts[name])
        self.assertIn("no such engine", parts["engine"]["words"])

    def test_weights_that_differ_are_found(self):
        self.program(
            "bin/skerry-engine",
            'while [ $# -gt 0 ]; do [ "$1" != --out ] || date +%N >"$2"; shift; done',
        )
        _, parts = self.run_it(self.root / "bin")
        self.assertEqual(parts["bits"]["result"], "FAIL")
        self.assertIn("a second time: the weights differ", parts["bits"]["words"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
