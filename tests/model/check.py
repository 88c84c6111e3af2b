#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks lease.pml with spin.

  check.py claims          no order of events within the sizes below breaks a claim, and every line
                           of the model is reached
  check.py liveness        and the work gets done
  check.py planted NAME    the model with this bug breaks the claim that the bug is about
  check.py planted         the names of the bugs

Prints spin's result and the sizes of each search; `--show` prints the events of a broken claim.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "lease.pml"
BUGS_OF_THE_CODE = MODEL.parents[2] / "tests/planted/planted.h"
MEMORY_MIB = 2000
DEPTH = 200_000

# What each search bounds; the rest has the model's own sizes. Together they
# hold every kind of fault, and in pairs.
QUIET = {"CRASHES": 0, "NODE_CRASHES": 0, "BREAKS": 0}
SEARCHES = {
    "silence and a restart": {**QUIET, "CRASHES": 1},
    "silence and a killed daemon": {**QUIET, "NODE_CRASHES": 1},
    "silence and a broken connection": {**QUIET, "BREAKS": 1},
    "silence and a daemon that lies": {**QUIET, "LIES": 1},
    "a crash, a killed daemon and a broken connection": {"STEPS": 1, "GRANTS": 1},
    "a restored backup": {**QUIET, "RESTORES": 1, "STEPS": 1, "GRANTS": 1},
}
LIVENESS = {"LIVENESS": 1, "STEPS": 1, "GRANTS": 1, "BREAKS": 0}

# A bug, the claim that it breaks, and where it does.
PLANTED = {
    "epoch_not_persisted": ("S7", {**QUIET, "CRASHES": 1}),
    "renewal_before_durable": ("S7", QUIET),
    "epoch_not_raised": ("S3", QUIET),
    "generation_not_raised": ("S3", {**QUIET, "RESTORES": 1}),
    "restored_leases_kept": ("S3", {**QUIET, "RESTORES": 1}),
    "margin_too_small": ("S1", QUIET),
    "lease_from_answer": ("S1", QUIET),
    "commits_past_lease": ("S1", QUIET),
    "recovery_window_ignored": (
        "L4",
        {**QUIET, "CRASHES": 1, "BREAKS": 1, "STEPS": 1, "GRANTS": 1},
    ),
    "reconnect_ignored": ("L4", {**QUIET, "BREAKS": 1}),
    "lapsed_forgotten": ("L5", LIVENESS),
    "incarnation_ignored": ("S1", {**QUIET, "NODE_CRASHES": 1}),
    "acknowledged_before_sync": ("S7", QUIET),
    "stale_epoch_accepted": ("S2", QUIET),
    "parent_not_checked": ("S5", {**QUIET, "LIES": 1}),
    "duplicate_applied": ("S5", {**QUIET, "BREAKS": 1}),
    "holder_not_checked": ("S1", {**QUIET, "LIES": 1}),
}


class Failure(Exception):
    pass


def run(command, folder):
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Search:
    """The model at some sizes, as spin's own program, in a folder that lives as long as this."""

    def __init__(self, sizes, bug=None):
        self.defines = [f"-D{name}={value}" for name, value in sizes.items()] + (
            [f"-DBUG={bug}"] if bug else []
        )
        self.liveness = "LIVENESS" in sizes
        self.folder = tempfile.TemporaryDirectory(prefix="skerry-model-")
        code, said = run(["spin", "-a", *self.defines, MODEL], self.folder.name)
        if code or "Error" in said:
            raise Failure(f"spin does not understand the model:\n{said}")
        kind = [] if self.liveness else ["-DSAFETY"]
        code, said = run(
            [
                "gcc",
                "-w",
                "-O1",
                *kind,
                "-DCOLLAPSE",
                f"-DMEMLIM={MEMORY_MIB}",
                "-o",
                "pan",
                "pan.c",
            ],
            self.folder.name,
        )
        if code:
            raise Failure(f"spin's program does not compile:\n{said}")

    def pan(self, depth=DEPTH):
        flags = [f"-m{depth}", *(["-a"] if self.liveness else [])]
        return run(["./pan", *flags], self.folder.name)[1]

    def go(self):
        """What was found: states, seconds, mebibytes, broken (a claim, or nothing), unreached."""
        said = self.pan()
        errors = re.search(r"errors: (\d+)", said)
        if not errors or "memory limit" in said or "max search depth too small" in said:
            raise Failure(
                f"the search did not end within {MEMORY_MIB} MiB and {DEPTH} steps:\n{said[-2000:]}"
            )
        found = {
            "states": int(float(re.search(r"([\d.e+]+) states, stored", said)[1])),
            "seconds": float(re.search(r"elapsed time ([\d.e+-]+)", said)[1]),
            "mebibytes": round(float(re.search(r"([\d.]+)\s+total actual memory", said)[1])),
            "broken": self.broken() if int(errors[1]) else None,
        }
        return found, unreached(said)

    def events(self):
        trail = next(pathlib.Path(self.folder.name).glob("*.trail"))
        return run(["spin", "-k", trail, "-p", "-g", *self.defines, MODEL], self.folder.name)[1]

    def broken(self):
        """The claim of the assertion that failed: on its line, or alone on the one before."""
        if self.liveness:
            return "L5"
        at = re.search(r"lease\.pml:(\d+), Error: assertion violated", self.events())
        if not at:
            return "stuck: nobody can do anything"
        before, line = MODEL.read_text().splitlines()[int(at[1]) - 2 : int(at[1])]
        mark = r"/\* ([SL]\d+) \*/"
        claim = re.search(mark, line) or re.fullmatch(rf"\s*{mark}\s*", before)
        return claim[1] if claim else f"line {at[1]}"


def unreached(said):
    """(process, state) → line, of what spin says it never came to."""
    found, process = {}, None
    for line in said.splitlines():
        if heading := re.match(r"unreached in (?:proctype|init|claim) ?(\S*)", line):
            process = heading[1]
        elif entry := re.match(r"\s+\S*lease\.pml:(\d+), state (\d+), \"(.*)\"", line):
            found[process, int(entry[2])] = (int(entry[1]), entry[3])
    return found


def print_found(name, search, found):
    print(
        f"{name}: {' '.join(d[2:] for d in search.defines)}: {found['states']} states, "
        f"{found['seconds']} s, "
        f"{found['mebibytes']} MiB: {found['broken'] or 'every claim holds'}",
        flush=True,
    )


def check_claims(show):
    known, reached, total = {}, set(), 0
    for name, sizes in SEARCHES.items():
        search = Search(sizes)
        found, never = search.go()
        print_found(name, search, found)
        if found["broken"]:
            if show:
                print(search.events())
            raise Failure(f"{name}: {found['broken']} is broken")
        total += found["states"]
        everything = unreached(search.pan(depth=1))
        for state, (line, text) in everything.items():
            known.setdefault(line, text)
            if state not in never:
                reached.add(line)
    dead = sorted(set(known) - reached)
    for line in dead:
        print(f"never reached: lease.pml:{line}: {known[line]}")
    dead = [line for line in dead if known[line] != "-end-"]  # no process ever ends
    if dead:
        raise Failure("parts of the model are never reached: what they claim is not checked")
    print(
        json.dumps(
            {"searches": len(SEARCHES), "states": total, "broken": 0, "lines_reached": len(reached)}
        )
    )


def check_liveness(show):
    search = Search(LIVENESS)
    found, _ = search.go()
    print_found("liveness", search, found)
    if found["broken"]:
        if show:
            print(search.events())
        raise Failure("L5 is broken")


def check_planted(bug, show):
    if f'{{"{bug}",' not in BUGS_OF_THE_CODE.read_text():
        raise Failure(
            f"{bug} is not a bug of {BUGS_OF_THE_CODE.name}: the model and the code call it by "
            "one name"
        )
    claim, sizes = PLANTED[bug]
    search = Search(sizes, bug)
    found, _ = search.go()
    print_found(bug, search, found)
    if show and found["broken"]:
        print(search.events())
    if found["broken"] != claim:
        raise Failure(f"with {bug} planted, {claim} should be broken")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("claims", "liveness", "planted"))
    parser.add_argument("bug", nargs="?", choices=sorted(PLANTED))
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    if args.what == "planted" and args.bug is None:
        print("\n".join(PLANTED))
        return
    try:
        if args.what == "claims":
            check_claims(args.show)
        elif args.what == "liveness":
            check_liveness(args.show)
        else:
            check_planted(args.bug, args.show)
    except Failure as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
