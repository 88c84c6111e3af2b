#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which LibTorch `./dev setup --torch DIR` takes, and what it says of one that it does not.

usage: torch_package_test.py CMAKE SOURCE_DIR
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

FILES = (
    "lib/libtorch.so",
    "lib/libtorch_cpu.so",
    "include/torch/csrc/api/include/torch/torch.h",
    "share/cmake/Torch/TorchConfig.cmake",
)
NEW_ABI = (
    b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
OLD_ABI = b"_ZN3c105ErrorC2ENS_14SourceLocationESs"


class Package(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name) / "with space"

    def fill(self, version='"2.11.0"', symbol=NEW_ABI):
        for name in FILES:
            self.write(name, b"")
        self.write("lib/libc10.so", b"\0\1" + symbol + b"\0")
        self.write(
            "share/cmake/Torch/TorchConfigVersion.cmake",
            b"set(PACKAGE_VERSION " + version.encode() + b")\n",
        )

    def write(self, name, contents):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)

    def look(self):
        ran = subprocess.run(
            [
                CMAKE,
                f"-DSKERRY_TORCH_DIR={self.folder}",
                "-P",
                f"{SOURCE}/cmake/TorchPackage.cmake",
            ],
            capture_output=True,
            text=True,
        )
        return ran.returncode == 0, " ".join(ran.stderr.split())

    def refused(self, words):
        taken, said = self.look()
        self.assertFalse(taken)
        self.assertIn(words, said)

    def test_one_that_will_do(self):
        for version in ('"2.7.0"', '"2.11.0"', '"3.0.1"', '"2.11.0a0+git70d99e9"'):
            self.fill(version)
            self.assertTrue(self.look()[0], version)

    def test_no_libtorch(self):
        self.refused("found no lib/libtorch.so")
        for name in FILES:
            self.fill()
            (self.folder / name).unlink()
            self.refused(f"found no {name}")

    def test_too_old(self):
        self.fill('"2.6.0"')
        self.refused("needs LibTorch 2.7 or newer, found 2.6.0")

    def test_no_version(self):
        self.fill('"unknown"')
        self.refused("does not say its version")

    def test_other_strings(self):
        self.fill(symbol=OLD_ABI)
        self.refused("_GLIBCXX_USE_CXX11_ABI=0")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    CMAKE, SOURCE = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
