#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev crash: strikes the real programs with faults and checks that nothing is lost.

  --minutes M   kills the programs again and again; the last line is JSON
  --stops       stops the programs (SIGSTOP), continues them and cuts them off; none may end
  --planted     kills a coordinator that acknowledges what is not durable; the check must find it

Several clusters run side by side. Each has a coordinator and daemons, with a fake engine that
trains a hash chain. Faults strike at random moments: SIGKILL, SIGSTOP, failing and full disks,
resets, delays and lost packets. Then the cluster is left to heal and is checked:

- Every step acknowledged to a daemon is in the coordinator's events and whole on its disk.
- Its weights are those of an undisturbed run.
- Every expert resumes.

Verdicts depend on no time but the hang limit.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import machine
import proxy
from real import STEPS, RealStory
from stops import RealStops, StopsStory
from story import HANG_LIMIT, Failure, Lost, PlantedStory, Story, Stuck, Tally, EXPERTS
from cluster import write_idx

PLANTED_BUG = "acknowledged_before_sync"  # of tests/planted/planted.h


class Tools:
    """What all stories share."""

    def __init__(self, args):
        self.bin = pathlib.Path(args.bin).resolve()
        self.story = PlantedStory if args.planted else StopsStory if args.stops else Story
        self.real_story = RealStops if args.stops else RealStory
        self.coordinator = pathlib.Path(
            args.coordinator or self.bin / "skerry-coordinator"
        ).resolve()
        programs = [
            self.bin / name
            for name in (
                "skerry",
                "skerryd",
                "skerry-engine",
                "skerry-fake-engine",
                "skerry-inspect-store",
            )
        ]
        for program in [self.coordinator, *programs]:
            if not program.exists():
                sys.exit(f"{program} is missing: ./dev build")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="skerry-crash-"))
        self.machine = machine.Machine(self.root)
        preload = self.bin / "skerry_fail_disk.so"
        self.fail_disk = preload if preload.exists() else None
        if self.fail_disk is None and args.planted:
            sys.exit(f"{preload} is missing: ./dev build")
        if self.fail_disk is None:
            self.machine.skipped.append("failing disks (skerry_fail_disk.so is not built)")
        self.loop = proxy.Loop()
        self.dataset = self.root / "dataset"
        write_idx(self.root / "images", 200)
        subprocess.run(
            [
                self.bin / "skerry-engine",
                "ingest",
                self.root / "images",
                "--out",
                self.dataset,
                "--partitions",
                str(EXPERTS),
            ],
            check=True,
            capture_output=True,
        )


class Soak:
    def __init__(self, args, tools):
        self.args, self.tools, self.tally = args, tools, Tally()
        self.until = time.monotonic() + args.minutes * 60
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.next_seed = args.seed
        self.failures = []

    def run(self):
        threads = [threading.Thread(target=self.tell_stories) for _ in range(self.args.clusters)]
        if self.args.real:
            threads.append(threading.Thread(target=self.tell_real_story))
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # what was done so far counts
            self.stop.set()
            for thread in threads:
                thread.join()
        return self.result()

    def tell_stories(self):
        while time.monotonic() < self.until and not self.stop.is_set():
            with self.lock:
                seed, self.next_seed = self.next_seed, self.next_seed + 1
            self.tell(
                lambda seed=seed: self.tools.story(
                    seed, self.tools, self.tally, self.args.hang_seconds
                ),
                seed,
                min(self.until, time.monotonic() + self.tools.story.seconds),
            )

    def tell_real_story(self):
        self.tell(
            lambda: self.tools.real_story(
                self.args.seed, self.tools, self.tally, self.args.real_steps
            ),
            self.args.seed,
            self.until,
        )

    def tell(self, make, seed, until):
        story = None
        try:
            story = make()
            story.live(until, self.stop)
            self.tally.add("stories")
            story.forget()
        except Exception as error:  # a story that fails stops the soak, whatever it was
            self.stop.set()
            with self.lock:
                self.failures.append(error)
                self.tell_failure(story, seed, error)

    def tell_failure(self, story, seed, error):
        kind = (
            "lost" if isinstance(error, Lost) else "stuck" if isinstance(error, Stuck) else "failed"
        )
        self.tally.add(kind)
        expected = isinstance(error, Failure)
        print(
            f"\n*** {kind}: story {seed}: {error if expected else traceback.format_exc()}",
            file=sys.stderr,
        )
        if story is None or (self.args.planted and kind == "lost"):  # the latter is as it should be
            return
        transcript = (
            (story.root / "transcript").read_text().splitlines()
            if (story.root / "transcript").exists()
            else []
        )
        print(
            "\n".join(transcript[-25:]),
            f"\nEverything it left is in {story.root}: transcript (what was done, when), "
            "coordinator.log, d*.log (lines carry the "
            f"time), and the data folders;\nskerry-inspect-store {story.root}/coordinator "
            "coordinator 7 reads what is on a disk.\n"
            "The same faults in the same order, at other moments: ./dev crash "
            f"{'--stops ' * self.args.stops}--seed {seed} --clusters 1 --minutes 1",
            file=sys.stderr,
            flush=True,
        )

    def result(self):
        counts = self.tally.counts
        kills = max(1, counts["coordinator_kills"] + counts["daemon_kills"])
        return {
            "crash": "planted" if self.args.planted else "stops" if self.args.stops else "soak",
            "minutes": self.args.minutes,
            "seed": self.args.seed,
            **{
                name: counts[name]
                for name in (
                    "coordinator_kills",
                    "daemon_kills",
                    "acknowledged",
                    "lost",
                    "stuck",
                    "failed",
                )
            },
            "in_flight_share": round(counts["kills_in_flight"] / kills, 2),
            **{
                name: counts[name]
                for name in (
                    "stories",
                    "examinations",
                    "stops",
                    "cut_offs",
                    "disk_failures",
                    "disks_filled",
                    "connections_reset",
                    "delays",
                    "holds",
                    "packet_losses",
                    "real_kills",
                    "real_runs",
                    "libzmq_aborts",
                )
            },
            "skipped": self.tools.machine.skipped,
        }


def positive(kind):
    """An argparse type: a number above zero."""

    def parse(word):
        value = kind(word)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, found {word}")
        return value

    parse.__name__ = kind.__name__  # argparse names it where the word is no number
    return parse


def main():
    parser = argparse.ArgumentParser(
        prog="./dev crash",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--minutes", type=positive(float), default=2)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first story; the others count on from it"
    )
    parser.add_argument(
        "--clusters", type=int, default=3, help="that live side by side; 0 with --real: it alone"
    )
    parser.add_argument(
        "--real",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="also one run of the real engine, its weights compared (in ten minutes or more)",
    )
    parser.add_argument(
        "--real-steps",
        type=positive(int),
        default=STEPS,
        help="that it trains each expert; fewer where a step is slow",
    )
    parser.add_argument("--hang-seconds", type=positive(float), default=HANG_LIMIT)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--stops", action="store_true", help="stop, continue and cut off; no program may end"
    )
    kinds.add_argument(
        "--planted",
        action="store_true",
        help=f"with a coordinator of a planted build: it has the bug {PLANTED_BUG}, "
        "and must lose something",
    )
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)  # of a planted build
    parser.add_argument(
        "--dry-run", action="store_true", help=argparse.SUPPRESS
    )  # of ./dev: whether the options are right
    args = parser.parse_args()
    if args.dry_run:
        return
    if args.real is None:
        args.real = args.minutes >= 10 and not args.planted and not args.stops
    machine.isolate()
    if args.planted:
        os.environ["SKERRY_PLANTED_BUG"] = PLANTED_BUG
    tools = Tools(args)
    for skipped in tools.machine.skipped:
        print(f"skipped here: {skipped}", file=sys.stderr)
    soak = Soak(args, tools)
    result = soak.run()
    as_it_should = (
        (result["lost"] > 0 and not result["stuck"] and not result["failed"])
        if args.planted
        else not soak.failures
    )
    if as_it_should:
        shutil.rmtree(tools.root, ignore_errors=True)
    print(json.dumps(result))
    sys.exit(0 if as_it_should else 1)


if __name__ == "__main__":
    main()
