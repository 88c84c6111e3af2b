#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev accepts each form that its --help documents, and refuses wrong ones before it builds."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILDERS = (
    *("apt-get", "cmake", "cpack", "ctest", "ninja", "sudo", "clang-format", "clang-tidy", "xargs"),
    *("mmdebstrap", "umoci", "skopeo"),
)
# What stands for a word of the help; of an option where the word alone does not
# say it.
VALUES = {
    "DIR": "/tmp",
    "N": "3",
    "M": "0.5",
    "S": "7",
    "LIST": "0,3,4",
    "REGEX": "lease",
    "MODE:N": "until-fail:3",
    "LABEL": "core",
    "COMMIT": "HEAD",
    "REV": "HEAD",
    "FILE": "trace.csv",
    "FILE …": "base/text.cc",
    "H": "0.5",
    "--preset": "asan",
    "--out": "/nowhere/demo",
    "--steps": "60",
    "--bug": "epoch_not_raised",
    "bench NAME": "storage",
    "build TARGET …": "skerry",
    "fuzz TARGET …": "token",
    "image NAME": "skerry-small",
}


class Dev(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.built = pathlib.Path(self.folder.name, "built")
        for name in BUILDERS:
            stub = pathlib.Path(self.folder.name, name)
            stub.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.built}\nexit 1\n')
            stub.chmod(0o755)

    def dev(self, *words):
        env = {**os.environ, "PATH": f"{self.folder.name}:{os.environ['PATH']}"}
        done = subprocess.run(
            [ROOT / "dev", *words],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if self.built.exists():
            began = self.built.read_text()
            self.built.unlink()
            self.fail(f"./dev {' '.join(words)} went on to build: {began}{done.stdout}")
        return done

    def forms(self):
        """(command, words that are always there, options that may be) of each line of the help."""
        found = re.findall(
            r"^  \./dev (\w+)(.*)$", self.dev("--help").stdout.split("examples:")[0], re.MULTILINE
        )
        self.assertGreaterEqual(
            {command for command, _ in found},
            {
                "setup",
                "build",
                "test",
                "demo",
                "crash",
                "simulate",
                "bench",
                "fuzz",
                "format",
                "lint",
                "syntax",
                "docs",
            },
        )
        for command, rest in found:
            options = re.findall(r"\[([^\]]*)\]", rest)
            fixed = re.sub(r"\[[^\]]*\]", "", rest)
            yield command, self.example(command, fixed), [
                self.example(command, option) for option in options
            ]

    @staticmethod
    def example(command, words):
        name, _, value = words.strip().partition(" ")
        if not name.startswith("-"):
            return (
                [VALUES.get(words.strip()) or VALUES[f"{command} {words.strip()}"]] if name else []
            )
        return [name, VALUES.get(name) or VALUES[value]] if value else [name]

    def test_each_documented_form_is_understood(self):
        for command, fixed, options in self.forms():
            every = list(itertools.chain(*options))
            for chosen in [[], *options, every]:
                if "--real" in chosen and "--no-real" in chosen:
                    chosen = [word for word in chosen if word != "--no-real"]
                words = [command, *fixed, *chosen]
                if words == ["bench"]:  # lists the benchmarks
                    self.assertIn("storage", self.dev(*words).stdout)
                    continue
                with self.subTest(" ".join(words)):
                    done = self.dev(*words, "--dry-run")
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertIn("would ", done.stdout)

    def test_each_example_is_understood(self):
        examples = re.findall(
            r"^  \./dev (.+)$", self.dev("--help").stdout.split("examples:")[1], re.MULTILINE
        )
        self.assertGreaterEqual(len(examples), 2)
        for words in examples:
            self.assertEqual(self.dev(*words.split(), "--dry-run").returncode, 0, words)

    def test_help_is_there_for_each_command(self):
        for command, fixed, _ in self.forms():
            done = self.dev(command, *fixed, "--help")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("usage:", done.stdout.lower())

    def test_what_is_wrong_is_refused(self):
        for words in (
            ["setup", "--torch"],
            ["setup", "--torch", "/nowhere"],
            ["build", "--nonsense"],
            ["build", "--preset", "fast"],
            ["test", "--only", "all"],
            ["test", "-j", "many"],
            ["test", "lease"],
            ["demo", "--keeps"],
            ["demo", "--steps", "x"],
            ["demo", "--steps", "3"],
            ["crash", "--minutes"],
            ["crash", "--minutes", "x"],
            ["crash", "--stops", "--planted"],
            ["crash", "now"],
            ["simulate", "--seeds"],
            ["simulate", "--seeds", "x"],
            ["simulate", "--bug", "none_such"],
            ["simulate", "--all=1"],
            ["simulate", "--keep", "1,"],
            ["bench", "none"],
            ["bench", "storage", "--repeats", "x"],
            ["fuzz", "none"],
            ["fuzz", "--minutes", "x"],
            ["format", "--chekc"],
            ["lint", "none.cc"],
            ["lint", "--minutes", "x"],
            ["syntax", "none.cc"],
            ["docs", "cli"],
            ["package", "skerry"],
            ["image", "skerry-large"],
            ["release", "--snapshots"],
            ["deploy"],
        ):
            with self.subTest(" ".join(words)):
                done = self.dev(*words)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words[-1].partition("=")[0], done.stdout)

    def test_the_folder_of_a_demo_is_looked_at_first(self):
        done = self.dev("demo", "--out", self.folder.name)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not from an earlier demo", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
