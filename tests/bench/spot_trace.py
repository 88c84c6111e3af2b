#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goodput of Skerry and of one data-parallel job on the trace of a spot market.

usage: spot_trace.py --trace FILE [--bin DIR] [--picture PNG]

Skerry's rows are the real coordinator and daemons on a virtual clock
(skerry-simulate --trace). The other rows are our model of a job that restarts
and of one that goes on without the lost machines. The model charges what the
constants below say, and lets the job scale without loss.
--picture needs matplotlib.

The last line is JSON.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

# Seconds. The restarts are Parcae's published cost model.
RENDEZVOUS = 6.6
AFTER_REMOVAL = (54.3, 95.4)  # of one machine, of 32 at once
AFTER_ADDITION = (28.8, 42.9)  # of one machine, of 16 at once
LONGEST_WAIT = 600  # of an addition, for a restart that takes it in
NOTICED = 5  # after a removal
HEALS = 40  # a machine that joins a job that goes on
CHECKPOINT = 10

ROWS = [  # name, options of skerry-simulate
    ("K = 8", ["--experts", "8"]),
    ("K = 8, notice of 30 s", ["--experts", "8", "--notice", "30"]),
    ("K = 16", ["--experts", "16"]),
    ("K = 16, notice of 30 s", ["--experts", "16", "--notice", "30"]),
    ("K = 32", ["--experts", "32"]),
    ("K = 32, notice of 30 s", ["--experts", "32", "--notice", "30"]),
    ("XL lean, K = 8", ["--reload", "90"]),
    ("XL lean, K = 8, notice of 120 s", ["--reload", "90", "--notice", "120"]),
]


def read(path):
    """(second, +1 or -1) of each change. skerry-simulate has checked the file."""
    changes = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            time, change, _ = line.split(",")
            changes.append((int(time) / 1000, 1 if change == "add" else -1))
    return changes


def seconds_of(changes):
    """Each second before the last change: machines that are there, added and removed just now."""
    at, live = 0, 0
    for second in range(int(changes[-1][0])):
        added = removed = 0
        while at < len(changes) and changes[at][0] <= second:
            added += changes[at][1] > 0
            removed += changes[at][1] < 0
            at += 1
        live += added - removed
        yield second, live, added, removed


def between(bounds, share):
    return bounds[0] + (bounds[1] - bounds[0]) * min(max(share, 0), 1)


def restarting(changes, every):
    """A removal ends the job, which goes on from its last checkpoint."""
    useful = unsaved = total = members = since = 0
    stopped_until = 0
    waiting_since = None
    for second, live, added, removed in seconds_of(changes):
        total += live
        if added and waiting_since is None:
            waiting_since = second
        waited = waiting_since is not None and second - waiting_since > LONGEST_WAIT
        if removed or waited:
            if removed:
                useful -= unsaved
                stopped_until = second + between(AFTER_REMOVAL, (removed - 1) / 31)
            else:
                stopped_until = second + between(AFTER_ADDITION, (live - members) / 16)
            members, waiting_since, since, unsaved = live, None, 0, 0
        if second < stopped_until:
            continue
        since += 1
        if since % (every + CHECKPOINT) < every:
            useful += members
            unsaved += members
        else:
            unsaved = 0
    return useful / total


def going_on(changes):
    """A removal stalls the others and costs a step; a machine that joins stalls nobody."""
    useful = total = 0
    stalled_until = 0
    joining = []
    for second, live, added, removed in seconds_of(changes):
        total += live
        if removed:
            stalled_until = second + NOTICED + RENDEZVOUS + 1
        joining = [until for until in joining if until > second] + [second + HEALS] * added
        if second >= stalled_until:
            useful += max(0, live - len(joining))
    return useful / total


def simulate(args, options):
    """The figures of a run, and a line a minute: hours, machines, could train, train."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as file:
        command = ["--trace", args.trace, "--samples", file.name, *options]
        done = subprocess.run(
            [pathlib.Path(args.bin) / "skerry-simulate", *command],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(done.returncode)
        lines = [line.split(",") for line in file.read().splitlines()[1:]]
    samples = [(int(line[0]) / 3600, *map(float, line[1:])) for line in lines]
    return json.loads(done.stdout.splitlines()[-1]), samples


def draw(pictures, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(pictures), 1, figsize=(12, 3 * len(pictures)), sharex=True, layout="constrained"
    )
    for each, (name, samples) in zip(axes, pictures.items()):
        hours, machines, could, train = zip(*samples)
        each.fill_between(hours, machines, step="post", color="0.88", label="machines")
        each.step(hours, could, where="post", color="black", linewidth=1, label="could train")
        each.step(hours, train, where="post", color="tab:blue", linewidth=0.8, label="train")
        each.set(title=name, ylabel="machines", ylim=(0, 34), xlim=(0, hours[-1]))
        each.grid(alpha=0.3)
    axes[0].legend(loc="lower right", fontsize="small", ncols=3)
    axes[-1].set(xlabel="hours")
    figure.savefig(path, dpi=90)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--picture")
    args = parser.parse_args()
    told, pictures = {}, {}
    for name, options in ROWS:
        told[name], samples = simulate(args, options)
        print(f"{name}: {told[name]}", flush=True)
        if name.endswith("30 s"):
            pictures[name] = samples
    changes = read(args.trace)
    told["one job that restarts, a checkpoint every 300 s"] = restarting(changes, 300)
    told["one job that restarts, a checkpoint every 60 s"] = restarting(changes, 60)
    told["one job that goes on, as torchft does"] = going_on(changes)
    for name, share in list(told.items())[len(ROWS) :]:
        print(f"{name}: {share:.4f}")
    if args.picture:
        draw(pictures, args.picture)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
