#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs docs/start/captions.md from its first command to its picture.

A T5 encoder of random weights stands in for the one that the page downloads.

usage: tutorial_oracle.py FOLDER_OF_PROGRAMS [--full PICTURE]

  --full PICTURE   as many pictures and steps as the page says, and its picture here

Exit status 77, which ctest counts as skipped, if transformers is not installed: ./dev setup
installs it.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

TOP = pathlib.Path(__file__).parent.parent.parent
PAGE = (TOP / "docs/start/captions.md").read_text()
FULL = None
if len(sys.argv) > 1 and pathlib.Path(sys.argv[1]).is_dir():
    os.environ["SKERRY_BIN"] = sys.argv.pop(1)  # case.py reads it
    if sys.argv[1:2] == ["--full"]:
        FULL = sys.argv.pop(2)
        sys.argv.pop(1)
sys.path.insert(0, str(TOP / "tests/end_to_end"))
from case import EndToEnd  # noqa: E402

try:
    import torch
    from captions import write_tokenizer
    from PIL import Image
    from text_oracle import encoder
except ImportError:
    sys.exit(77)

COLUMNS = 4  # of the picture, one for each prompt


class Tutorial(EndToEnd):
    def test_each_command_runs_and_prompts_choose_the_colour(self):
        self.trainer = self.cluster(fake=False)
        self.trainer.start_coordinator()
        for name in ("anna", "bert"):
            self.trainer.start_daemon(name)
        run = []
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S):
            if kind == "toml":
                self.write_run_file(block)
                continue
            for line in block.splitlines():
                self.run_line(line.removeprefix("$ "))
                run.append(line.split()[:3])
        self.assertIn(["$", "skerry", "sample"], run)
        picture = Image.open(self.trainer.root / "shapes.png").convert("RGB")
        if FULL:
            shutil.copy(self.trainer.root / "shapes.png", FULL)
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        columns = pixels.view(picture.height, picture.width, 3).float().chunk(COLUMNS, 1)
        red, blue, yellow, _ = (column.mean((0, 1)) for column in columns)
        print("mean RGB by column:", [column.mean((0, 1)).round().tolist() for column in columns])
        self.assertGreater(red[0], red[2])
        self.assertGreater(blue[2], blue[0])
        self.assertGreater(yellow[1] - yellow[2], blue[1] - blue[2])

    def write_run_file(self, words):
        if not FULL:
            words, changed = re.subn(r"^steps = \d+$", "steps = 400", words, flags=re.M)
            self.assertEqual(changed, 1)
        (self.trainer.root / "shapes.toml").write_text(words)

    def run_line(self, line):
        words = [
            word.replace("~", str(self.trainer.root)) if word.startswith("~/") else word
            for word in shlex.split(line)
        ]
        if words[0] == "pip":
            return
        if words[0] == "hf":
            self.write_encoder(pathlib.Path(words[words.index("--local-dir") + 1]))
            return
        if words[0] == "python3":
            words = [sys.executable, "-B", TOP / words[1], *words[2:]]
            words += [] if FULL else ["--count", 600]
        else:
            self.assertEqual("skerry", words[0], line)
            words[0] = self.trainer.bin / "skerry"
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.trainer.root,
            env={**os.environ, **self.trainer.cli_env()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        self.assertEqual(0, done.returncode, f"{line}\n{done.stdout}{done.stderr}")

    def write_encoder(self, folder):
        write_tokenizer(folder, vocabulary=100)
        encoder(vocab_size=320).save_pretrained(folder)


if __name__ == "__main__":
    unittest.main()
