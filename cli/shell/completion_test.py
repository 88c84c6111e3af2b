#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completes words in each installed shell, as if a person pressed tab.

bash is always there; zsh and fish are tested if they are installed.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SKERRY = pathlib.Path(sys.argv.pop(1))
BASH = (
    'source "$1/completion"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _skerry; '
    'printf "%s\\n" "${COMPREPLY[@]}"'
)
ZSH = (
    'autoload -Uz compinit; compinit -u -d "$1/dump"; source "$1/completion"; '
    'words=("${@:2}"); COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); '
    'compgen -F _skerry -- "${@[-1]}"'
)


class Completion(unittest.TestCase):
    def offered(self, shell, line):
        if shutil.which(shell) is None:
            self.skipTest(f"{shell} is not installed")
        script = subprocess.run(
            [SKERRY, "completion", shell], capture_output=True, text=True, check=True
        ).stdout
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "completion").write_text(script)
            words = line.split(" ")
            command = {
                "bash": ["bash", "-c", BASH, "bash", folder, *words],
                "zsh": ["zsh", "-f", "-c", ZSH, "zsh", folder, *words],
                "fish": ["fish", "-c", f"source {folder}/completion; complete -C {line!r}"],
            }[shell]
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)
        self.assertEqual("", done.stderr)
        return done.stdout.split()

    def check(self, shell):
        self.assertIn("dataset", self.offered(shell, "skerry "))
        in_run = self.offered(shell, "skerry run ")
        self.assertIn("create", in_run)
        self.assertNotIn("dataset", in_run)
        self.assertNotIn("completion", in_run)  # nor the files that are here
        self.assertIn("--dry-run", self.offered(shell, "skerry run create --dry"))
        self.assertIn("--dry-run", self.offered(shell, "skerry -o json run create --d"))

    def test_bash(self):
        self.check("bash")

    def test_zsh(self):
        self.check("zsh")

    def test_fish(self):
        self.check("fish")


if __name__ == "__main__":
    unittest.main()
