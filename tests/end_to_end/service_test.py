#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs as services: their units, their messages to a service manager, and as process 1."""

import configparser
import ctypes
import errno
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from case import BIN, EndToEnd
from cluster import Process

UNITS = pathlib.Path(__file__).resolve().parents[2] / "systemd"
SECCOMP_ALLOW, SECCOMP_ERRNO, COMPARE_EQUAL = 0x7FFF0000, 0x00050000, 4


def unit(name):
    """The last value of each key, which is all that these tests need."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(UNITS / f"{name}.service")
    return parser["Service"]


def system_calls(group):
    """A group of system calls, such as @system-service, by name."""
    lines = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", group],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    names = [
        line.strip()
        for line in lines[1:]
        if line.startswith("    ") and not line.strip().startswith("#")
    ]
    return {
        each for name in names for each in (system_calls(name) if name.startswith("@") else [name])
    }


class Argument(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def confinement(service):
    """A function that confines the calling process.

    It applies the unit's RestrictAddressFamilies and SystemCallFilter.
    """
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    filters = []
    families = {getattr(socket, name) for name in service["RestrictAddressFamilies"].split()}
    by_family = ctypes.c_void_p(library.seccomp_init(SECCOMP_ALLOW))
    for family in set(range(46)) - {int(f) for f in families}:
        equal = Argument(arg=0, op=COMPARE_EQUAL, a=family, b=0)
        library.seccomp_rule_add(
            by_family,
            SECCOMP_ERRNO | errno.EAFNOSUPPORT,
            library.seccomp_syscall_resolve_name(b"socket"),
            1,
            equal,
        )
    filters.append(by_family)
    if "SystemCallFilter" in service:
        by_name = ctypes.c_void_p(library.seccomp_init(SECCOMP_ERRNO | errno.EPERM))
        # What a manager needs itself to start the program is allowed by its
        # default group.
        for name in (
            system_calls(service["SystemCallFilter"])
            | system_calls("@default")
            | {"seccomp", "prctl"}
        ):
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:
                library.seccomp_rule_add(by_name, SECCOMP_ALLOW, number, 0)
        filters.append(by_name)

    def confine():
        for each in filters:
            if library.seccomp_load(each) != 0:
                os._exit(126)

    return confine


class Manager:
    """The socket on which a service manager listens."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(120)  # a hang limit
        # A sanitizer looks for leaks with ptrace, which the unit forbids.
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": self.path,
            "WATCHDOG_USEC": "300000",
            "ASAN_OPTIONS": "detect_leaks=0",
        }

    def hears(self, word):
        while True:
            said = self.socket.recv(4096).decode()
            if word in said:
                return said


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(EndToEnd):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skerry-units-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_are_accepted(self):
        for name in ("skerry-coordinator", "skerry-dashboard", "skerryd"):
            text = (UNITS / f"{name}.service").read_text().replace("/usr/bin/", f"{BIN}/")
            copy = self.folder / f"{name}.service"
            copy.write_text(text)
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True
            )
            self.assertEqual((done.returncode, done.stderr.strip()), (0, ""))

    def start(self, name, command):
        try:
            confine = confinement(unit(name))
        except OSError:
            self.skipTest("libseccomp is not installed")
        manager = Manager(self.folder)
        self.addCleanup(manager.socket.close)
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(
            [str(word) for word in command],
            env=manager.environment,
            preexec_fn=confine,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(log.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return manager, process

    def serves_as_its_unit_says(self, name, command):
        manager, process = self.start(name, command)
        try:
            manager.hears("READY=1")
            manager.hears("STATUS=")
            for _ in range(3):
                manager.hears("WATCHDOG=1")
            process.terminate()
            manager.hears("STOPPING=1")
        except TimeoutError:
            self.fail((self.folder / f"{name}.log").read_text())
        self.assertEqual(process.wait(), 0)

    def test_the_coordinator_runs_confined_and_feeds_its_watchdog(self):
        self.serves_as_its_unit_says(
            "skerry-coordinator",
            [
                BIN / "skerry-coordinator",
                "--data",
                self.folder / "data",
                "--listen",
                "0.0.0.0:0",
                "--advertise",
                "localhost:7600",
            ],
        )

    def test_the_daemon_runs_confined_and_feeds_its_watchdog(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        token = cluster.json("token", "create", "--role", "node")["token"]
        self.serves_as_its_unit_says(
            "skerryd",
            [
                BIN / "skerryd",
                "join",
                token,
                "--data",
                self.folder / "data",
                "--engine",
                cluster.engine,
            ],
        )


    def test_the_dashboard_runs_confined_with_a_credential_that_it_cannot_write(self):
        cluster = self.cluster()
        cluster.start_coordinator()
        token = cluster.json("token", "create", "--role", "viewer")["token"]
        credentials = self.folder / "credentials"
        credentials.mkdir()
        context = credentials / "context"
        cluster.run("login", token, "--context", context)
        context.chmod(0o400)
        credentials.chmod(0o500)
        self.addCleanup(credentials.chmod, 0o700)
        manager, process = self.start(
            "skerry-dashboard",
            [BIN / "skerry-dashboard", "--no-open", "--port", "0", "--context", context],
        )
        try:
            manager.hears("READY=1")
        except TimeoutError:
            self.fail((self.folder / "skerry-dashboard.log").read_text())
        self.assertIn("http://127.0.0.1:", (self.folder / "skerry-dashboard.log").read_text())
        process.terminate()
        self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertEqual(os.listdir(credentials), ["context"])


class ProcessOne(EndToEnd):
    """A process 1 has no default signal actions: what does not listen is not ended."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a process namespace")
        self.made = self.cluster()
        self.made.start_coordinator()
        self.token = self.made.json("token", "create", "--role", "node")["token"]

    def join(self):
        command = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            BIN / "skerryd",
            "join",
            self.token,
            "--data",
            self.made.root / "one",
            "--engine",
            self.made.engine,
        ]
        self.daemon = self.made.daemons["one"] = Process("one", command, self.made.root / "one.log")

    def leaves_when_told(self):
        os.kill(self.daemon.children()[0], signal.SIGTERM)
        self.assertEqual(self.daemon.popen.wait(300), 0, self.daemon.tail())

    def test_a_daemon_that_enrols_leaves_at_once(self):
        self.made.coordinator.kill()
        self.join()
        self.made.wait(lambda: "enrolling" in self.daemon.log_text(), "it to enrol", self.daemon)
        self.leaves_when_told()
        self.assertRegex(self.daemon.log_text(), "told to stop")

    def test_a_daemon_drains(self):
        self.join()
        self.made.wait(lambda: self.made.items("node", "list"), "it to join", self.daemon)
        self.leaves_when_told()
        self.assertRegex(self.daemon.log_text(), "drained")


if __name__ == "__main__":
    unittest.main()
