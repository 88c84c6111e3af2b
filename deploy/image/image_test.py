#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The images of `./dev image`: unpacked and started in namespaces, a node joins and commits.

The network is this machine's, the process table and the mounts are their own.
The LibTorch of the build is mounted into the node's.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/end_to_end"))
from cluster import Cluster, Process  # noqa: E402

BIN = pathlib.Path(os.environ.get("SKERRY_BIN", "build/bin"))
RELEASE = pathlib.Path(os.environ.get("SKERRY_RELEASE", "build/release"))
TORCH = pathlib.Path(os.environ.get("SKERRY_TEST_TORCH") or "/nowhere").resolve()
SMALL_MOST = 60_000_000  # bytes, compressed

# $1: the root; $2: its /workspace; $3: a folder that it sees at the same path.
ENTER = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs tmp "$1/tmp"
mkdir -p "$1/dev" "$1$3"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/workspace"
[ "$3" = / ] || mount --bind "$3" "$1$3"
root=$1
shift 3
exec chroot "$root" "$@"
"""


def why_not():
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("umoci") is None or shutil.which("skopeo") is None:
        return "umoci and skopeo are not installed"
    for name in ("skerry-small", "skerry-node"):
        if not list(RELEASE.glob(f"{name}_*.oci.tar")):
            return f"there is no {name} in {RELEASE}: run ./dev image"
    return None


class Container:
    def __init__(self, name, folder):
        (self.archive,) = RELEASE.glob(f"{name}_*.oci.tar")
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        layout = folder / f"{name}-oci"
        subprocess.run(
            ["skopeo", "copy", f"oci-archive:{self.archive}", f"oci:{layout}:test"], **quiet
        )
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:test", folder / name], **quiet)
        self.root = folder / name / "rootfs"
        config = json.loads((folder / name / "config.json").read_text())
        self.args = config["process"]["args"]
        self.env = dict(each.split("=", 1) for each in config["process"]["env"])

    def command(self, workspace, env, args=None, also="/"):
        settings = [f"{name}={value}" for name, value in {**self.env, **env}.items()]
        workspace.mkdir(parents=True, exist_ok=True)
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--"),
            *("bash", "-c", ENTER, "enter", self.root, workspace, also),
            *("env", "-i", *settings, *(args or self.args)),
        ]


class Fleet(Cluster):
    """One whose coordinator and nodes are containers; its /workspace is a folder of ours."""

    def start_coordinator(self):
        image = self.images["skerry-small"]
        env = {"SKERRY_LISTEN": f"127.0.0.1:{self.port}"}
        command = image.command(self.root, env)
        self.coordinator = Process("coordinator", command, self.root / "coordinator.log")
        self.await_coordinator()

    def start_node(self, name, token):
        image = self.images["skerry-node"]
        env = {
            "SKERRY_TOKEN": token,
            "SKERRY_NAME": name,
            "SKERRY_PEER_LISTEN": "127.0.0.1:0",
            "SKERRY_SPOT": "off",
            "SKERRY_TORCH": TORCH,
        }
        command = image.command(self.root / name, env, also=TORCH.parent)
        self.daemons[name] = Process(name, command, self.root / f"{name}.log")
        return self.daemons[name]


@unittest.skipIf(why_not(), why_not())
class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="skerry-images-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.images = {name: Container(name, cls.folder) for name in ("skerry-small", "skerry-node")}

    def run_once(self, name, env, args=None):
        command = self.images[name].command(self.folder / "workspace", env, args)
        return subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=120
        )

    def test_the_small_one_is_small(self):
        self.assertLessEqual(self.images["skerry-small"].archive.stat().st_size, SMALL_MOST)

    def test_no_image_has_keys_or_a_source_of_packages_of_ours(self):
        for image in self.images.values():
            self.assertEqual([], list((image.root / "etc/ssh").glob("ssh_host_*")))
            self.assertEqual([], list((image.root / "etc/apt").rglob("skerry*")))

    def test_what_is_wrong_is_one_line_and_its_status(self):
        for env, part in (
            ({}, "SKERRY_TOKEN"),
            ({"SKERRY_TOKEN": "t", "RUNPOD_TCP_PORT_7610": "x"}, "RUNPOD_TCP_PORT_7610"),
            ({"SKERRY_TOKEN": "t", "SKERRY_DATA": "/proc/skerry"}, "volume"),
        ):
            done = self.run_once("skerry-node", env)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(part, done.stderr)

    def test_the_programs_start(self):
        for name, program in (("skerry-small", "skerry"), ("skerry-node", "skerryd")):
            args = [*self.images[name].args[:-1], program, "--version"]
            done = self.run_once(name, {}, args)
            self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless((TORCH / "lib").exists(), "this build has no LibTorch to lend")
    def test_a_node_joins_and_commits(self):
        with Fleet(BIN) as fleet:
            fleet.images = self.images
            fleet.start_coordinator()
            fleet.add_dataset(partitions=1)
            token = fleet.json("token", "create", "--role", "node")["token"]
            begin = time.monotonic()
            node = fleet.start_node("anna", token)
            fleet.wait(lambda: "running" in node.log_text(), "anna to run", node)
            print(f"from the entry point to running: {time.monotonic() - begin:.1f} s")
            fleet.create_run("first", train={"steps": 20, "threads": 1})
            fleet.wait_event(kind="committed")
            # A token that is spent turns another machine away for good.
            late = fleet.start_node("late", token)
            fleet.wait(lambda: not late.alive(), "the second node to be refused")
            self.assertEqual(late.popen.returncode, 78, late.tail())
            self.assertIn("token", late.tail(1))
            # SIGTERM to the container drains the node.
            (tini,) = node.children()
            os.kill(tini, 15)
            node.popen.wait(120)
            self.assertEqual(node.popen.returncode, 0, node.tail())
            (shown,) = fleet.items("node", "list")
            self.assertEqual(shown["state"], "left")


if __name__ == "__main__":
    if why_not():
        print(f"skipped: {why_not()}")
        sys.exit(77)
    unittest.main()
