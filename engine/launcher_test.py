#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed skerry-engine: which LibTorch it takes, which it refuses, how it installs one."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LAUNCHER = pathlib.Path(sys.argv.pop(1))
NEEDED, SECOND = "2.11.0", "2.10.0"
MINOR = NEEDED.rpartition(".")[0]
PROGRAM = '#!/bin/sh\necho "{minor}|$LD_LIBRARY_PATH|$*"\nexit 5\n'
PIP = """#!/bin/sh
if [ "$1" = config ]; then
  [ -z "$PIP_INDEX_URL" ] || echo ":env:.index-url='$PIP_INDEX_URL'"
  exit 0
fi
[ -z "$PIP_FAILS" ] || exit 1
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/torch-1.dist-info" "$2/torch"
echo "Requires-Dist: nvidia-some==1; platform_system" >"$2/torch-1.dist-info/METADATA"
echo "$*" >>"$2/pip-ran"
"""
PYTHON = """#!/bin/sh
case "$*" in
  *find_spec*) echo "$PYTHON_TORCH" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "{pip}" "$3/bin/pip" ;;
esac
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        text = LAUNCHER.read_text().replace("/var/lib/skerry", f"{self.root}/var")
        text = text.replace("/sys/module/nvidia/version", f"{self.root}/driver")
        text, changed = re.subn(
            r"^readonly VERSIONS=\([^)@\n]+\)$",
            f"readonly VERSIONS=({NEEDED} {SECOND})",
            text,
            flags=re.MULTILINE,
        )
        self.assertEqual(changed, 1)
        self.program("usr/bin/skerry-engine", text)
        for minor in ("2.11", "2.10"):
            name = f"usr/libexec/skerry/torch-{minor}/skerry-engine"
            self.program(name, PROGRAM.replace("{minor}", minor))
        pip = self.program("pip", PIP)
        self.program("stubs/python3", PYTHON.replace("{pip}", str(pip)))
        self.free_mb(9000)

    def free_mb(self, number):
        self.program("stubs/df", f"#!/bin/sh\necho ' Avail'\necho ' {number}MB'\n")

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def driver(self, version, capability="9.0"):
        (self.root / "driver").write_text(f"{version}\n")
        self.program("stubs/nvidia-smi", f"#!/bin/sh\necho {capability}\n")

    def torch(self, name, version=NEEDED, cuda=None):
        folder = self.root / name
        (folder / "lib").mkdir(parents=True)
        (folder / "lib/libtorch.so").touch()
        config = folder / "share/cmake/Torch/TorchConfigVersion.cmake"
        config.parent.mkdir(parents=True)
        config.write_text(f'set(PACKAGE_VERSION "{version}")\n')
        if cuda:
            (folder / "version.py").write_text(f"cuda: Optional[str] = '{cuda}'\n")
        return folder

    def run_it(self, *words, **env):
        stubs = f"{self.root}/stubs:{os.environ['PATH']}"
        return subprocess.run(
            [self.root / "usr/bin/skerry-engine", *words],
            env={"PATH": stubs, "HOME": str(self.root / "home"), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def expect_torch(self, folder, minor=MINOR, **env):
        done = self.run_it("train", "--channel", "3", **env)
        self.assertEqual((done.returncode, done.stderr), (5, ""))
        self.assertEqual(done.stdout, f"{minor}|{folder}/lib|train --channel 3\n")

    def expect_refusal(self, status, *parts, words=("train",), **env):
        done = self.run_it(*words, **env)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_the_named_one_wins(self):
        named, own = self.torch("named"), self.torch("own")
        self.expect_torch(named, SKERRY_TORCH=str(named), PYTHON_TORCH=str(own))

    def test_a_python_installation_may_be_named(self):
        folder = self.torch("venv/lib/python3.11/site-packages/torch")
        self.expect_torch(folder, SKERRY_TORCH=str(self.root / "venv"))

    def test_the_images_own_then_the_data_folder(self):
        data = self.torch("data/torch/torch")
        self.expect_torch(data, SKERRY_DATA=str(self.root / "data"))
        own = self.torch("own", MINOR + ".9+cu130")
        self.expect_torch(own, SKERRY_DATA=str(self.root / "data"), PYTHON_TORCH=str(own))

    def test_another_minor_is_passed_over_while_there_is_one_that_fits(self):
        old, user = self.torch("old", "2.7.1"), self.torch("home/.local/share/skerry/torch")
        self.expect_torch(user, PYTHON_TORCH=str(old))

    def test_another_minor_is_refused_with_both_versions(self):
        old = str(self.torch("old", "2.7.1"))
        both = "needs 2.11 or 2.10"
        self.expect_refusal(78, "2.7.1", both, "skerry-engine setup", PYTHON_TORCH=old)
        self.expect_refusal(78, "2.7.1", MINOR, "SKERRY_TORCH", SKERRY_TORCH=old)

    def test_the_engine_is_that_of_the_torch(self):
        own = self.torch("own", "2.10.1+cu128")
        self.torch("data/torch")
        data = str(self.root / "data")
        self.expect_torch(own, "2.10", SKERRY_DATA=data, PYTHON_TORCH=str(own))
        self.expect_torch(own, "2.10", SKERRY_TORCH=str(own))

    def test_one_that_the_driver_does_not_serve_is_passed_over(self):
        new = self.torch("new", cuda="13.0")
        old = self.torch("data/torch", SECOND, cuda="12.8")
        env = {"PYTHON_TORCH": str(new), "SKERRY_DATA": str(self.root / "data")}
        for version in ("580.65", "580.105.08", "1000.1"):
            self.driver(version)
            self.expect_torch(new, **env)
        for version in ("525.60.13", "570.124.06", "580.9"):
            self.driver(version)
            self.expect_torch(old, "2.10", **env)
        self.driver("570.124.06")
        self.expect_torch(new, CUDA_VISIBLE_DEVICES="", **env)
        # The engine itself explains the last resort, and one that is named.
        self.driver("510.1")
        self.expect_torch(new, **env)
        self.driver("570.124.06")
        self.expect_torch(new, SKERRY_TORCH=str(new))

    def test_blackwell_needs_a_newer_driver(self):
        new, old = self.torch("new", cuda="13.0"), self.torch("data/torch", SECOND, cuda="12.8")
        env = {"PYTHON_TORCH": str(new), "SKERRY_DATA": str(self.root / "data")}
        self.driver("570.1", "12.0")
        self.expect_torch(old, "2.10", **env)
        self.driver("565.57.01", "12.0")
        self.expect_torch(new, **env)

    def test_setup_installs_what_the_driver_serves(self):
        for version, torch in (("580.65.06", NEEDED), ("570.124.06", SECOND)):
            self.driver(version)
            done = self.run_it("setup", SKERRY_DATA=str(self.root / version))
            self.assertEqual(done.returncode, 0, done.stderr)
            ran = (self.root / version / "torch/pip-ran").read_text()
            self.assertIn(f"--no-deps torch=={torch}\n", ran)
        self.driver("510.47.03")
        self.expect_refusal(78, "510.47.03", "525.60.13", "CUDA_VISIBLE_DEVICES", words=("setup",))
        self.assertEqual(self.run_it("setup", CUDA_VISIBLE_DEVICES="-1").returncode, 0)

    def test_setup_is_not_content_with_one_that_the_driver_does_not_serve(self):
        self.torch("data/torch", cuda="13.0")
        self.driver("570.124.06")
        data = self.root / "data"
        done = self.run_it("setup", "--if-missing", SKERRY_DATA=str(data))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"torch=={SECOND}\n", (data / "torch/pip-ran").read_text())

    def test_none_is_refused(self):
        self.expect_refusal(78, MINOR, "skerry-engine setup")
        self.expect_refusal(78, "/nowhere", "SKERRY_TORCH", SKERRY_TORCH="/nowhere")

    def test_what_the_image_has_for_libraries_stays_behind_it(self):
        named = self.torch("named")
        done = self.run_it(SKERRY_TORCH=str(named), LD_LIBRARY_PATH="/cuda")
        self.assertEqual(done.stdout, f"{MINOR}|{named}/lib:/cuda|\n")

    def test_setup_installs_what_is_linked_and_leaves_nothing_else(self):
        data = self.root / "data"
        done = self.run_it("setup", SKERRY_DATA=str(data))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([p.name for p in data.iterdir()], ["torch"])
        ran = (data / "torch/pip-ran").read_text()
        self.assertIn(f"--no-deps torch=={NEEDED}\n", ran)
        self.assertIn("--requirement", ran)

    def test_setup_does_nothing_if_missing_is_not_so(self):
        self.torch("data/torch")
        before = sorted((self.root / "data").rglob("*"))
        data = str(self.root / "data")
        self.assertEqual(self.run_it("setup", "--if-missing", SKERRY_DATA=data).returncode, 0)
        self.assertEqual(before, sorted((self.root / "data").rglob("*")))

    def test_a_failed_setup_keeps_what_was_there(self):
        self.torch("data/torch")
        done = self.run_it("setup", SKERRY_DATA=str(self.root / "data"), PIP_FAILS="1")
        self.assertEqual(done.returncode, 75)
        self.assertIn("PyPI", done.stderr)
        self.assertEqual([p.name for p in (self.root / "data").iterdir()], ["torch"])
        self.expect_torch(self.root / "data/torch", SKERRY_DATA=str(self.root / "data"))

    def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(self):
        self.free_mb(4999)
        data = {"SKERRY_DATA": str(self.root / "data")}
        self.expect_refusal(
            78, str(self.root / "data"), "4999 MB", "5 GB", "--into", words=("setup",), **data
        )
        self.assertEqual(list((self.root / "data").iterdir()), [])
        # Builds for the CPU are smaller.
        done = self.run_it("setup", PIP_INDEX_URL="https://cpu", **data)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_options_of_setup(self):
        self.expect_refusal(78, "--nonsense", words=("setup", "--nonsense"))
        self.expect_refusal(78, "--into", words=("setup", "--into"))
        self.expect_refusal(78, "/proc/none", words=("setup", "--into", "/proc/none/torch"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
