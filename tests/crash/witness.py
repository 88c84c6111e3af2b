# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements to daemons, kept outside the programs, against the coordinator's state.

A daemon's log is the witness: it has "committed step N" only after the coordinator acknowledged the
commit. Lost steps are trained again, to the same bytes. So an acknowledgement needs a commit that
precedes it by the wall clock that all programs share.
"""

import collections
import datetime
import re
import threading
import time

COMMITTING = re.compile(r"skerryd \S+/(\d+): committing steps (\d+) to (\d+)")
COMMITTED = re.compile(r"skerryd \S+/(\d+): committed step (\d+)")
GIVEN_UP = re.compile(r"skerryd \S+/(\d+): .*(uncommitted steps dropped|going on from step)")


class Witness:
    """Reads every line of every daemon as it is written. Any thread."""

    def __init__(self):
        self.news = threading.Condition()
        self.acknowledged = collections.defaultdict(
            dict
        )  # expert -> step -> when it was first read, in seconds of 1970
        self.last = {}  # expert -> when its latest acknowledgement was read
        self.open = {}  # (daemon, expert) -> (when, to step): sent and not answered

    def read(self, daemon, line):
        with self.news:
            if found := COMMITTING.search(line):
                self.open[daemon, int(found[1])] = (time.monotonic(), int(found[3]))
            elif found := COMMITTED.search(line):
                expert = int(found[1])
                self.acknowledged[expert].setdefault(int(found[2]), time.time())
                self.last[expert] = time.monotonic()
                self.open.pop((daemon, expert), None)
            elif found := GIVEN_UP.search(line):
                self.open.pop((daemon, int(found[1])), None)
            else:
                return
            self.news.notify_all()

    def started(self, daemon):
        with self.news:
            for key in [key for key in self.open if key[0] == daemon]:
                del self.open[key]

    def in_flight(self, daemons, since):
        """What these daemons have sent after `since` and wait for."""
        with self.news:
            return {
                key: value
                for key, value in self.open.items()
                if key[0] in daemons and value[0] > since
            }

    def still(self, before):
        with self.news:
            return any(self.open.get(key) == value for key, value in before.items())

    def snapshot(self):
        with self.news:
            return {expert: dict(steps) for expert, steps in self.acknowledged.items()}


def lost(acknowledged, events, run):
    """Acknowledged steps that the coordinator's events do not have, or only from a later commit."""
    known = {
        (event["expert"], event["step"]): datetime.datetime.fromisoformat(event["time"]).timestamp()
        for event in reversed(events)
        if event["kind"] == "committed" and event["run"] == run
    }
    out = []
    for expert, steps in sorted(acknowledged.items()):
        for step, read in sorted(steps.items()):
            if (expert, step) not in known:
                out.append(
                    f"expert {expert}: step {step} was acknowledged, and the coordinator does not "
                    "know it"
                )
            elif (late := known[expert, step] - read) > 0:
                out.append(
                    f"expert {expert}: step {step} was acknowledged {late:.3f} s before the "
                    "commit that the coordinator "
                    "knows: an earlier one was lost"
                )
    return out


def lost_on_disk(acknowledged, checkpoints, keep):
    """Latest acknowledged steps whose checkpoint is missing on the coordinator's disk.

    A checkpoint may be replaced by `keep` later ones.
    """
    out = []
    for expert, steps in sorted(acknowledged.items()):
        there = {c["step"] for c in checkpoints if c["expert"] == expert}
        newest = max(steps)
        if newest not in there and len([step for step in there if step > newest]) < keep:
            out.append(
                f"expert {expert}: the checkpoint of acknowledged step {newest} is not on the "
                "coordinator's disk "
                f"(it has {sorted(there)})"
            )
    return out


SPAN = re.compile(r"steps (\d+) to (\d+)")


def broken_rules(events, run, experts):
    """Checks S2, S3 and S5 on the events: epochs grow, each commit starts where the last one ended.
    """
    out = []
    step, epoch = [0] * experts, [0] * experts
    numbers = [event["number"] for event in events]
    if numbers != sorted(set(numbers)):
        out.append("the events' numbers do not grow")
    for event in events:
        if event.get("run") != run or event["kind"] not in ("granted", "committed"):
            continue
        expert = event["expert"]
        if event["kind"] == "granted":
            if event["epoch"] <= epoch[expert]:
                out.append(
                    f"expert {expert}: granted in epoch {event['epoch']} after epoch "
                    f"{epoch[expert]} (event {event['number']})"
                )
            epoch[expert] = event["epoch"]
            continue
        span = SPAN.search(event["reason"])
        if event["epoch"] != epoch[expert]:
            out.append(
                f"expert {expert}: a commit of epoch {event['epoch']} in epoch {epoch[expert]} "
                f"(event {event['number']})"
            )
        if int(span[1]) != step[expert] or int(span[2]) != event["step"]:
            out.append(
                f"expert {expert}: {span[0]} committed on step {step[expert]} (event "
                f"{event['number']})"
            )
        step[expert] = event["step"]
    return out
