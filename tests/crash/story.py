# SPDX-License-Identifier: Apache-2.0
"""One cluster's life under faults: it starts, is struck many times, heals and is checked,
repeatedly.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import witness
from machine import Disk, Packets
from proxy import Proxy

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import Cluster, Failure, Process, free_ports, without_report  # noqa: E402

EXPERTS = 3
KEEP = 3
HANG_LIMIT = 300  # seconds without any progress although nothing is disturbed: stuck
SEED = 7  # of the run, as Cluster.create_run writes it

# libzmq 4.3.4 stops its process, rarely, when a connection breaks while its
# handshake asks who may enter.
LIBZMQ_ABORT = "Assertion failed: !_io_error"


class Lost(Failure):
    """Something acknowledged is missing or wrong."""


class Stuck(Failure):
    """Nothing is disturbed any more, and yet nothing goes on."""


class Tally:
    """What all stories have done, counted. Any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()

    def add(self, name, count=1):
        with self.lock:
            self.counts[name] += count


class Program(Process):
    """A process whose log is also read line by line as it is written."""

    def __init__(self, name, command, log, env=None, read=None):
        self.read_line, self.since, self.excused, self.stopped = read, 0.0, False, False
        super().__init__(name, command, log, env)

    def start(self, env=None):
        self.excused, self.stopped = bool(env), False
        self.popen = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(self.env or {}), **(env or {})},
        )
        self.since = time.monotonic()
        self.reader = threading.Thread(target=self._read, args=(self.popen.stdout,), daemon=True)
        self.reader.start()

    def _read(self, pipe):
        with open(self.log, "ab", buffering=0) as log:
            for line in pipe:
                log.write(line)
                if self.read_line:
                    self.read_line(self.name, line.decode(errors="replace"))

    def kill(self):
        super().kill()
        self.reader.join()  # every word it said has been read
        self.popen.stdout.close()

    def pause(self, on):
        if self.alive():
            self.signal(signal.SIGSTOP if on else signal.SIGCONT)
            self.stopped = on
            self.since = time.monotonic()


class Story(Cluster):
    seconds = 60  # of one

    def __init__(self, seed, tools, tally, hang_limit=HANG_LIMIT):
        self.random = random.Random(seed)
        self.seed, self.tools, self.tally, self.hang_limit = seed, tools, tally, hang_limit
        super().__init__(
            tools.bin, root=tools.root / f"story-{seed}", engine=tools.bin / "skerry-fake-engine"
        )
        self.witness = witness.Witness()
        self.began = time.monotonic()
        self.transcript = open(self.root / "transcript", "w")
        self.events_seen, self.joined = [], 0
        self.disks, self.names = {}, []
        small = tools.machine.disks and self.random.random() < 0.4
        if small:
            self.disks["coordinator"] = Disk(self.root / "coordinator", 160)
        self.small_nodes = small
        self.packets = Packets(self.port) if tools.machine.packets else None
        self.coordinator_args = ["--lease-seconds", "1"]
        self.proxy = None
        if self.random.random() < 0.5:
            self.proxy = Proxy(tools.loop, free_ports(3), self.port)
            self.coordinator_args += ["--advertise", f"127.0.0.1:{self.proxy.first}"]
        self.engine_env = {
            "SKERRY_FAKE_STEP_MS": "5",
            "SKERRY_FAKE_WEIGHTS": str(self.random.choice([256, 256, 16384])),
        }

    def say(self, *words):
        print(f"{time.monotonic() - self.began:8.3f}", *words, file=self.transcript, flush=True)

    # ---- birth

    def live(self, until, stop):
        try:
            self.be_born()
            while time.monotonic() < until and not stop.is_set():
                self.suffer()
                self.heal()
                self.examine()
        finally:
            self.close()

    def be_born(self):
        """The first start is killed too, at drawn moments, until one is left alone."""
        command = [
            self.tools.coordinator,
            "--data",
            self.root / "coordinator",
            "--listen",
            f"127.0.0.1:{self.port}",
            *self.coordinator_args,
        ]
        self.coordinator = Program("coordinator", command, self.root / "coordinator.log")
        for _ in range(self.random.randrange(4)):
            time.sleep(self.random.uniform(0, 0.1))
            self.end(self.coordinator, why="in its first start")
            self.coordinator.start()
        self.wait(
            lambda: (self.root / "coordinator/admin.toml").exists()
            and self.try_json("node", "list") is not None,
            "the coordinator to answer",
            self.coordinator,
            limit=self.hang_limit,
        )
        self.run("dataset", "add", "shapes", self.tools.dataset, "--partitions", EXPERTS)
        self.token = self.json(
            "token", "create", "--role", "node", "--uses", "100", "--ttl", "48h"
        )["token"]
        for _ in range(EXPERTS + self.random.randrange(2)):
            self.add_node()
        self.create_run(
            "run",
            train={"steps": 100_000_000},
            schedule={"turn_rounds": 2},
            checkpoint={"round_steps": self.random.choice([5, 10, 20]), "keep": KEEP},
        )
        self.await_progress("after its birth")

    def add_node(self):
        name = f"d{self.joined}"
        self.joined += 1
        if self.small_nodes:
            self.disks[name] = Disk(self.root / name, 96)
        self.daemons[name] = Program(
            name,
            self.command_of(name),
            self.root / f"{name}.log",
            self.engine_env,
            self.witness.read,
        )
        self.say("start", name, "anew")

    def command_of(self, name):
        return [
            self.bin / "skerryd",
            "join",
            self.token,
            "--data",
            self.root / name,
            "--name",
            name,
            "--engine",
            self.engine,
        ]

    # ---- faults

    def suffer(self):
        blows = [
            (self.kill_coordinator, 34),
            (self.kill_daemons, 44),
            (self.kill_both, 10),
            (self.stop_daemon, 4),
            (self.stop_coordinator, 3),
            (self.fail_disk, 8),
            (self.replace_node, 1),
        ]
        if self.proxy:
            blows += [(self.cut, 4), (self.delay, 3), (self.hold, 2)]
        if self.packets:
            blows += [(self.drop_packets, 4)]
        if self.disks:
            blows += [(self.fill_disk, 3)]
        for _ in range(self.random.randrange(4, 14)):
            self.restart_those_that_may_end()
            self.random.choices(*zip(*blows))[0]()

    def some_daemons(self, count):
        names = sorted(self.daemons)
        return [self.daemons[name] for name in self.random.sample(names, min(count, len(names)))]

    def in_flight(self, program):
        """Unanswered commits to a living coordinator that involve this program."""
        if not self.coordinator.alive() or self.coordinator.stopped:
            return {}
        names = set(self.daemons) if program is self.coordinator else {program.name}
        return self.witness.in_flight(names, self.coordinator.since)

    def aim(self, *programs):
        """Waits for a commit in flight, most often, and then for a drawn moment."""
        aimed = self.random.random() < 0.75
        after = self.random.uniform(0, 0.05 if aimed else 0.3)
        if aimed:
            with self.witness.news:
                self.witness.news.wait_for(
                    lambda: any(self.in_flight(program) for program in programs), timeout=1
                )
        time.sleep(after)

    def end(self, *programs, why=""):
        """SIGKILL to all at once, counted."""
        before = [self.in_flight(program) for program in programs]
        for program in programs:
            if program.alive():
                os.kill(program.pid, signal.SIGKILL)
        for program in programs:
            program.kill()
        if self.coordinator in programs:
            time.sleep(0.02)  # an answer that had left is read
        hits = sum(self.witness.still(each) for each in before)
        self.tally.add("coordinator_kills", programs.count(self.coordinator))
        self.tally.add("daemon_kills", len(programs) - programs.count(self.coordinator))
        self.tally.add("kills_in_flight", hits)
        self.say(
            "kill",
            *(program.name for program in programs),
            *[why] * bool(why),
            "(commit in flight)" if hits else "",
        )

    def strike(self, *programs, down=None):
        """Kills them at once, and starts them again after a while."""
        self.aim(*programs)
        self.end(*programs)
        time.sleep(self.draw_absence() if down is None else down)
        for program in programs:
            self.start_again(program)

    def draw_absence(self):
        longest = self.random.choices([0.1, 0.6, 2.5], [75, 18, 7])[0]
        return self.random.uniform(0, longest)

    def start_again(self, program, env=None):
        self.witness.started(program.name)
        program.start(env)
        if program.name in self.disks and self.disks[program.name].filled:
            program.excused = True

    def kill_coordinator(self):
        self.strike(self.coordinator)

    def kill_daemons(self):
        self.strike(*self.some_daemons(self.random.choice([1, 1, 1, 2, 3])))

    def kill_both(self):
        self.strike(self.coordinator, *self.some_daemons(self.random.choice([1, 2])))

    def stop(self, program, longest):
        seconds = self.random.uniform(0.05, longest)
        self.say("stop", program.name, f"for {seconds:.2f} s")
        self.tally.add("stops")
        program.pause(True)
        if self.random.random() < 0.5:
            time.sleep(seconds)
        else:  # something else happens meanwhile
            others = [p for p in [self.coordinator, *self.daemons.values()] if p is not program]
            self.strike(self.random.choice(others), down=seconds)
        program.pause(False)

    def stop_daemon(self):
        self.stop(self.some_daemons(1)[0], 3.0)

    def stop_coordinator(self):
        self.stop(self.coordinator, 2.5)

    def fail_disk(self):
        if self.tools.fail_disk is None:
            return
        program = self.coordinator if self.random.random() < 0.5 else self.some_daemons(1)[0]
        self.fail_disk_of(program, self.random.choice(["write", "torn", "sync", "sync", "space"]))

    def fail_disk_of(self, program, what):
        """One write or sync of one program fails.

        The program must exit by itself, and restart with all that it promised.
        """
        folder = self.root / program.name
        plan = {
            "LD_PRELOAD": str(self.tools.fail_disk),
            "SKERRY_FAIL_FOLDER": str(folder),
            "SKERRY_FAIL_WHAT": what,
            "SKERRY_FAIL_AT": str(self.random.randrange(1, 60)),
        }
        self.aim(program)
        self.end(
            program, why=f"to start it with a disk that fails: {what} {plan['SKERRY_FAIL_AT']}"
        )
        self.start_again(program, plan)
        self.tally.add("disk_failures")
        limit = time.monotonic() + self.random.uniform(0.5, 3)
        while program.alive() and time.monotonic() < limit:
            time.sleep(0.05)
        self.say(
            program.name, "goes on" if program.alive() else f"left with {program.popen.returncode}"
        )

    def replace_node(self):
        """A rented machine is gone with its disk; another joins."""
        if self.joined > 12:
            return
        gone = self.some_daemons(1)[0]
        self.aim(gone)
        self.end(gone, why="and lose its disk")
        del self.daemons[gone.name]
        self.drop_disk(gone.name)
        self.add_node()

    def drop_disk(self, name):
        if name in self.disks:
            self.disks.pop(name).close()
        shutil.rmtree(self.root / name, ignore_errors=True)

    def fill_disk(self):
        name = self.random.choice(sorted(self.disks))
        program = self.coordinator if name == "coordinator" else self.daemons[name]
        leave = self.random.choice([0, 1 << 16, 4 << 20, 33 << 20, 60 << 20])
        self.say("fill the disk of", name, "but for", leave)
        self.tally.add("disks_filled")
        self.disks[name].fill(leave)
        program.excused = True
        self.strike(
            self.random.choice([self.coordinator, *self.daemons.values()]),
            down=self.random.uniform(0, 1.5),
        )
        self.disks[name].free()

    def cut(self):
        self.say("reset every connection")
        self.tally.add("connections_reset")
        self.proxy.cut()

    def delay(self):
        self.say("delay")
        self.tally.add("delays")
        self.proxy.set_delay(self.random.choice([0.01, 0.05, 0.3]))
        self.strike(*self.some_daemons(1))
        self.proxy.set_delay(0)

    def hold(self):
        self.say("hold every byte back")
        self.tally.add("holds")
        self.proxy.hold(True)
        time.sleep(self.random.uniform(0.2, 2.5))
        self.proxy.hold(False)

    def drop_packets(self):
        percent = self.random.choice([10, 30, 60, 100])
        sides = self.random.choice([["dport"], ["sport"], ["dport", "sport"]])
        self.say("drop", percent, "% of packets by", *sides)
        self.tally.add("packet_losses")
        self.packets.drop(percent, sides)
        time.sleep(self.random.uniform(0, 1))
        self.strike(self.random.choice([self.coordinator, *self.daemons.values()]))
        self.packets.clear()

    def restart_those_that_may_end(self):
        for program in [self.coordinator, *self.daemons.values()]:
            if program.alive():
                continue
            if LIBZMQ_ABORT in program.tail(
                1
            ):  # as good as a kill: what was promised must hold all the same
                self.say(program.name, "was ended by an assertion of libzmq")
                self.tally.add("libzmq_aborts")
            elif not program.excused:
                raise Failure(
                    f"{program.name} left by itself with {program.popen.returncode}; its log "
                    f"ends:\n{program.tail()}"
                )
            program.kill()
            self.start_again(program)

    # ---- afterwards

    def heal(self):
        self.say("heal")
        if self.packets:
            self.packets.clear()
        for disk in self.disks.values():
            disk.free()
        for program in [self.coordinator, *self.daemons.values()]:
            if program.excused:
                self.end(program)
                self.start_again(program)
        self.await_progress("after everything was healed")

    def await_progress(self, when):
        """Every expert commits again, as the daemons' logs say."""
        since = time.monotonic()

        def reached():
            self.restart_those_that_may_end()
            return all(self.witness.last.get(expert, 0) > since for expert in range(EXPERTS))

        while True:
            with self.witness.news:
                if self.witness.news.wait_for(reached, timeout=1):
                    return
            self.expect_no_report()
            if time.monotonic() - since > self.hang_limit:
                missing = [e for e in range(EXPERTS) if self.witness.last.get(e, 0) <= since]
                raise Stuck(f"{when} expert(s) {missing} committed nothing for {self.hang_limit} s")

    def judge_events(self):
        acknowledged = self.witness.snapshot()
        after = self.events_seen[-1]["number"] if self.events_seen else 0
        self.events_seen += self.json("event", "list", "--after", after)["items"]
        self.judge(witness.lost(acknowledged, self.events_seen, "run"))
        self.judge(witness.broken_rules(self.events_seen, "run", EXPERTS))
        return acknowledged

    def examine(self):
        acknowledged = self.judge_events()
        self.aim(self.coordinator)
        self.end(self.coordinator)
        checkpoints = self.inspect(self.coordinator, "coordinator")
        self.judge(witness.lost_on_disk(self.witness.snapshot(), checkpoints, KEEP))
        self.start_again(self.coordinator)
        daemon = self.some_daemons(1)[0]
        self.aim(daemon)
        self.end(daemon)
        self.inspect(daemon, "node")
        self.start_again(daemon)
        self.say("examined:", sum(map(len, acknowledged.values())), "acknowledged so far")
        self.tally.add("examinations")

    def inspect(self, program, kind):
        """Checks every object on a killed program's disk: each chunk's hash, each checkpoint's
        content.
        """
        done = without_report(
            subprocess.run(
                [self.bin / "skerry-inspect-store", self.root / program.name, kind, str(SEED)],
                capture_output=True,
                text=True,
            )
        )
        if done.returncode != 0:
            raise Lost(f"the disk of {program.name} is wrong:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    @staticmethod
    def judge(complaints):
        if complaints:
            raise Lost("\n".join(complaints))

    def close(self):
        for program in [*self.daemons.values(), self.coordinator]:
            if program and program.alive():
                program.signal(signal.SIGCONT)
            if program:
                program.kill()
        if self.packets:
            self.packets.clear()
        if self.proxy:
            self.proxy.close()
        self.tally.add("acknowledged", sum(map(len, self.witness.snapshot().values())))
        self.transcript.close()
        self.expect_no_report()

    def forget(self):
        for disk in self.disks.values():
            disk.close()
        shutil.rmtree(self.root, ignore_errors=True)


class PlantedStory(Story):
    """Of a coordinator with a planted bug: syncs that fail, which is when it shows."""

    def suffer(self):
        for _ in range(4):
            self.restart_those_that_may_end()
            self.fail_disk_of(self.coordinator, "sync")
