# SPDX-License-Identifier: Apache-2.0
"""./dev crash --stops: stops programs (SIGSTOP), continues them and cuts them off.

Kills none of them: no program may end.

Stopped for longer than ZeroMQ's heartbeats last, a program loses every connection. Continued, it
dials all of them anew at once, as a machine does after a suspend or a network outage.
"""

import random
import signal
import time

from cluster import free_ports
from machine import Packets
from proxy import Proxy
from real import RealStory
from story import Failure, Story

LONGEST = 8.0  # seconds that a program stands still: leases (1 s) and heartbeats (3 s) run out
SETTLE = 20.0  # seconds of faults between two looks at what was promised


class StopsStory(Story):
    seconds = 600  # of one story: what grows with time is to show

    def __init__(self, *args):
        super().__init__(*args)
        self.peers = {}  # daemon -> packets of the port where others dial it
        if self.proxy is None:
            self.proxy = Proxy(self.tools.loop, free_ports(3), self.port)
            self.coordinator_args += ["--advertise", f"127.0.0.1:{self.proxy.first}"]

    def live(self, until, stop):
        try:
            self.be_born()
            while time.monotonic() < until and not stop.is_set():
                self.suffer()
                self.heal()
                self.judge_events()
            self.examine()
            self.await_progress("after the disks were looked at")
        finally:
            self.close()

    def command_of(self, name):
        port = free_ports(3)
        if self.tools.machine.packets:
            self.peers[name] = Packets(port)
        return [*super().command_of(name), "--peer-listen", f"127.0.0.1:{port}"]

    def suffer(self):
        blows = [(self.stop_some, 70), (self.cut, 10), (self.hold, 10)]
        if self.tools.machine.packets:
            blows += [(self.cut_off_peer, 10), (self.cut_off_coordinator, 5)]
        until = time.monotonic() + SETTLE
        while time.monotonic() < until:
            self.restart_those_that_may_end()
            self.random.choices(*zip(*blows))[0]()
            time.sleep(self.random.uniform(0, 1))

    def stop_some(self):
        """Some at once, each continued at a moment of its own."""
        programs = [self.coordinator, *self.daemons.values()]
        stopped = {
            program: self.random.uniform(0.05, LONGEST)
            for program in self.random.sample(
                programs, self.random.choice([1, 1, 2, 3, len(programs)])
            )
        }
        self.say(
            "stop",
            *(f"{program.name} for {seconds:.2f} s," for program, seconds in stopped.items()),
        )
        self.tally.add("stops", len(stopped))
        for program in stopped:
            program.pause(True)
        began = time.monotonic()
        for program, seconds in sorted(stopped.items(), key=lambda each: each[1]):
            time.sleep(max(0, began + seconds - time.monotonic()))
            program.pause(False)

    def cut_off_peer(self):
        self.cut_off(self.random.choice(sorted(self.daemons)), self.peers)

    def cut_off_coordinator(self):
        self.cut_off("coordinator", {"coordinator": self.packets})

    def cut_off(self, name, packets):
        """No packet of its ports arrives, as when a cable is pulled."""
        seconds = self.random.uniform(0.5, LONGEST)
        self.say("cut off the ports of", name, f"for {seconds:.2f} s")
        self.tally.add("cut_offs")
        packets[name].drop(100, self.random.choice([["dport"], ["sport"], ["dport", "sport"]]))
        time.sleep(seconds)
        packets[name].clear()

    def close(self):
        for packets in self.peers.values():
            packets.clear()
        super().close()


class RealStops(RealStory):
    """The same for daemons with the real engine.

    The weights must equal those of an undisturbed run, byte by byte.
    """

    def strike(self, cluster):
        programs = [cluster.coordinator, *cluster.daemons.values()]
        for program in programs:
            if not program.alive():
                raise Failure(
                    f"{program.name} ended by itself with {program.popen.returncode}; its log "
                    f"ends:\n{program.tail()}"
                )
        stopped = self.random.sample(programs, self.random.choice([1, 1, 2, 3]))
        self.tally.add("stops", len(stopped))
        try:
            for program in stopped:
                program.signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.05, LONGEST))
        finally:
            for program in stopped:
                program.signal(signal.SIGCONT)
        time.sleep(self.random.uniform(0, 4))
