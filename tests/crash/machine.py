# SPDX-License-Identifier: Apache-2.0
"""Faults that need the machine's permission: a network and mounts of our own.

Nothing outside them is touched.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

ISOLATED = "SKERRY_CRASH_ISOLATED"
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def works(*command):
    try:
        return (
            subprocess.run(
                [str(c) for c in command], capture_output=True, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except OSError:
        return False


def isolate():
    """Restarts this program in namespaces of its own if the machine allows it, for root and others.
    """
    if ISOLATED in os.environ or not works(*UNSHARE, "ip", "link", "set", "lo", "up"):
        return
    os.environ[ISOLATED] = "1"
    os.execvp(
        UNSHARE[0],
        [
            *UNSHARE,
            "sh",
            "-c",
            'ip link set lo up && exec "$0" "$@"',
            sys.executable,
            "-B",
            *sys.argv,
        ],
    )


class Machine:
    def __init__(self, folder):
        self.skipped = []
        self.disks = self.packets = False
        if ISOLATED not in os.environ:
            self.skipped += [
                "full disks (no mount namespace)",
                "lost packets (no network namespace)",
            ]
            return
        probe = pathlib.Path(folder) / "probe"
        probe.mkdir()
        self.disks = works("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", probe)
        if self.disks:
            subprocess.run(["umount", probe], check=True)
        else:
            self.skipped.append("full disks (tmpfs cannot be mounted)")
        self.packets = shutil.which("nft") is not None and works(
            "nft", "add", "table", "inet", "probe"
        )
        if not self.packets:
            self.skipped.append("lost packets (nft is missing or not allowed)")


class Packets:
    """Drops part of what goes to (`dport`) or comes from (`sport`) three ports."""

    def __init__(self, first):
        self.table, self.ports = f"skerry{first}", f"{{ {first}, {first + 1}, {first + 2} }}"
        self.on = False

    def drop(self, percent, sides):
        some = "" if percent >= 100 else f"numgen random mod 100 < {percent}"
        rules = "\n".join(f"tcp {side} {self.ports} {some} drop" for side in sides)
        self.clear()
        subprocess.run(
            ["nft", "-f", "-"],
            check=True,
            capture_output=True,
            text=True,
            input=f"table inet {self.table} {{\nchain lossy {{\n"
            f"type filter hook input priority 0\n{rules}\n}}\n}}\n",
        )
        self.on = True

    def clear(self):
        if self.on:
            subprocess.run(
                ["nft", "delete", "table", "inet", self.table], check=True, capture_output=True
            )
        self.on = False


class Disk:
    """A small file system of its own below a folder."""

    def __init__(self, folder, mebibytes):
        self.folder, self.filler = pathlib.Path(folder), pathlib.Path(folder) / "filler"
        self.filled = False
        self.folder.mkdir(mode=0o700)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", folder],
            check=True,
        )

    def fill(self, leave):
        """All but `leave` bytes."""
        self.filled = True
        at = os.statvfs(self.folder)
        with open(self.filler, "wb") as out:
            if (most := at.f_bavail * at.f_frsize - leave) > 0:
                with contextlib.suppress(
                    OSError
                ):  # a program took some of it meanwhile: full all the same
                    os.posix_fallocate(out.fileno(), 0, most)

    def free(self):
        self.filler.unlink(missing_ok=True)
        self.filled = False

    def close(self):
        subprocess.run(["umount", "-l", self.folder], check=True)
