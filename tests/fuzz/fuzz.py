#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs libFuzzer on every target, two at a time, and ends with one line of JSON; see ./dev fuzz.

  fuzz.py --bin skerry-fuzz [--minutes M] [TARGET …]   fuzzes; keeps each finding beside the
                                                       program, with the command
  fuzz.py --bin skerry-fuzz --planted [TARGET …]       plants each decoder's bug and checks that
                                                       its target finds it

Exit status 1 if an input broke a promise, a target accepted nothing, or a planted bug was missed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE / "corpus"
JOBS = 2
INPUT_BYTES = 8192  # every seed fits, and every limit on a size but those of whole files
MEMORY_MIB = 1024
HANG_SECONDS = 20  # one input
# Speed: no stacks of allocations (run an input alone to see them), no filling
# of them, and a quarantine that fits into a cache.
ASAN = (
    "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=0:"
    "max_malloc_fill_size=0:detect_stack_use_after_return=0"
)
PLANTED_SECONDS = 120  # for one planted bug, at most; all but a few are found in one

printing = threading.Lock()


def say(line):
    with printing:
        print(line, flush=True)


def figures(log):
    """(executions, edges, accepted) as libFuzzer and our main print them."""

    def last(pattern):
        found = re.findall(pattern, log)
        return int(found[-1]) if found else 0

    return (
        last(r"stat::number_of_executed_units: +(\d+)"),
        last(r"\bcov: (\d+)"),
        last(r"stat::accepted: (\d+)"),
    )


def libfuzzer(program, target, seconds, corpus, artifacts, planted=False):
    """Runs one target; gives (exit code, log)."""
    artifacts.mkdir(parents=True, exist_ok=True)
    corpus.mkdir(parents=True, exist_ok=True)
    folders = [str(corpus), str(SEEDS / target)]  # new inputs go to the first one
    command = [
        str(program),
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-timeout={HANG_SECONDS}",
        f"-artifact_prefix={artifacts}/",
        "-print_final_stats=1",
        "-verbosity=1",
        "-print_funcs=0",
        "-reload=0",
        "-len_control=100",
    ]
    if planted:
        command.append("-seed=1")
    with tempfile.TemporaryDirectory(prefix="skerry-fuzz-") as scratch:
        environment = dict(
            os.environ,
            FUZZ_TARGET=target,
            TMPDIR=scratch,
            ASAN_OPTIONS=ASAN,
            **({"FUZZ_PLANTED": "1"} if planted else {}),
        )
        done = subprocess.run(
            command + folders,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    return done.returncode, done.stdout


def fuzz(program, target, seconds):
    artifacts = program.parent.parent / "found" / target
    code, log = libfuzzer(
        program, target, seconds, program.parent.parent / "corpus" / target, artifacts
    )
    executions, edges, accepted = figures(log)
    result = {"executions": executions, "edges": edges, "accepted": accepted, "crashed": code != 0}
    say(
        f"{target:12} {executions:12,} executions {edges:6,} edges {accepted:12,} accepted"
        + ("  BROKEN" if code else "")
    )
    if code:
        kept = re.findall(r"Test unit written to (\S+)", log)
        shown = [line for line in log.splitlines() if not line.startswith(("#", "stat::"))][-40:]
        again = f"again: FUZZ_TARGET={target} {program} {kept[-1]}" if kept else "no input was kept"
        say(
            "\n".join(shown)
            + f"\n{again}\nonce it is fixed, keep the input as {SEEDS / target}/found-WHAT"
        )
    elif accepted == 0:
        say(f"{target}: no input was accepted, so nothing behind the first checks was tested")
    return result


def find_planted(program, target):
    with tempfile.TemporaryDirectory(prefix="skerry-planted-") as folder:
        fresh = pathlib.Path(folder)
        code, log = libfuzzer(
            program, target, PLANTED_SECONDS, fresh / "corpus", fresh / "found", planted=True
        )
    executions, _, _ = figures(log)
    reason = re.search(r"invariant broken: .*|ERROR: .*|runtime error: .*|terminate called.*", log)
    say(
        f"{target:12} {'found' if code else 'NOT FOUND'} after {executions:,} executions"
        + (f": {reason.group(0)[:100]}" if code and reason else "")
    )
    return executions if code else None


def names(program):
    asked = subprocess.run(
        [str(program)],
        env=dict(os.environ, FUZZ_TARGET=""),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return asked.stderr.split("one of:")[1].split()


def main():
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bin", type=pathlib.Path, default=pathlib.Path("build-fuzz/bin/skerry-fuzz")
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("targets", nargs="*")
    parser.add_argument(
        "--dry-run", action="store_true", help=argparse.SUPPRESS
    )  # of ./dev: whether the options are right
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.targets) - {path.name for path in SEEDS.iterdir()}):
        parser.error(
            f"unknown target {unknown[0]}: "
            f"{' '.join(sorted(path.name for path in SEEDS.iterdir()))}"
        )
    if arguments.dry_run:
        return 0
    program = arguments.bin.resolve()
    targets = arguments.targets or names(program)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        if arguments.planted:
            needed = dict(zip(targets, pool.map(lambda t: find_planted(program, t), targets)))
            found = sum(executions is not None for executions in needed.values())
            print(
                json.dumps({"planted": len(targets), "found": found, "executions_to_find": needed})
            )
            return 0 if found == len(targets) else 1
        seconds = max(1, int(arguments.minutes * 60 * arguments.jobs / len(targets)))
        results = dict(zip(targets, pool.map(lambda t: fuzz(program, t, seconds), targets)))
    crashes = sum(result.pop("crashed") for result in results.values())
    executions = sum(result["executions"] for result in results.values())
    print(json.dumps({"executions": executions, "crashes": crashes, "targets": results}))
    return 1 if crashes or any(result["accepted"] == 0 for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
