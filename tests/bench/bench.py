#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev bench NAME: measures and prints; the last line is JSON. No benchmark fails on a time.

  size          memory of the coordinator during a large upload and of an idle daemon; time of
                `skerry node list`
  detection     seconds from a kill, and from a stop, to the grant of the expert elsewhere
  train         our training step against PyTorch eager and torch.compile of the same model, in
                turns on one thread each, by processor time; starts no turn that would not end
                within --minutes M (7)
                [--model S/2|small|pixart-S/2] [--precision fp32|bf16] [--kernels fast|reference]
                [--batch-size N]; of pixart-S/2 the other model is diffusers' own
  encode        images a second of `dataset add --vae` against diffusers' AutoencoderKL of the same
                weights (Stable Diffusion's shape, random), and captions a second of --text-encoder
                against transformers' T5 encoder (Flan-T5-base's shape, random), in turns on one
                thread each, by processor time
                [--image-size N] (64)   [--tokens N] (25)
  memory        bytes that a training step holds beside its state, and its time, with and without
                gradient checkpointing; bytes of the state, full and lean, and the time that a lean
                one costs; in turns
                [--model …] [--precision …] [--kernels …] [--batch-size N]
  stall         the cost of a round of 60 s beside its steps: its snapshot, the slowdown while the
                checkpoint is stored, and the loader's part of a step
                [--model …] [--precision …] [--batch-size N]
  router        the analytic router against one trained for --minutes M (7), by noise level on
                held-out images: cross-entropy, accuracy, latency; and the trained one's gain in
                its second half
                [--dataset DIR]   (a dataset folder; default: Fashion-MNIST, K = 8)
  prompts       how near the shares of experts for prompts in new words are to those of their class,
                in total variation, with captions by templates of Fashion-MNIST, K = 8
  quality       K experts against one model of the same training cost, by their samples and by
                held-out velocity error: Fréchet distance, nearest training image, routes and
                routers. Takes hours; its own options: quality --help
  storage       one checkpoint of 503 MB into RocksDB and back; and sealed as a node does, over
                plain writes with a sync, in turns
  checkpoint    the same checkpoint stored durably and read back verified, against torch.save with
                a sync and torch.load of the same tensors, in turns; the ratio to plain writes with
                a sync
                [--megabytes N]
  export        diffusers' results from an exported ensemble against the engine's: largest absolute
                differences
  fleet         --nodes N with CURVE connections that beat once a second, 16 of them with a lease:
                latency, and the coordinator's load; then it is killed and restarted under that load
  interference  steps of a trainer with a core of its own while a joining node fetches 1 GiB from
                another node, against steps without, in turns; latency of heartbeats meanwhile
                [--model …]
  placement     the scheduler on 1,000 drawn fleets of unlike cards: the time until all experts are
                trained, beside a lower bound, and the time of one schedule of 1,000 experts
  fanout        128 MiB from the coordinator to 16 nodes, each at an upload limit of 16 MB/s, on a
                virtual network: copies that the coordinator sends, and the time against one node's
  fanout-real   as fanout, with 17 real programs on this machine
  transfer      four peers to one over CURVE: the exchange against as many bare ZeroMQ connections
                with the same message size and hash, sink in memory, in turns; then into a file
  dashboard     the page in Chromium: the first picture, and a commit's way to the page; /metrics of
                1,000 nodes
  gossip        rounds for 100 records to reach 10,000 simulated nodes, and an idle node's traffic
                (4 GB of memory)
"""

import argparse
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import Cluster, inflate, write_idx  # noqa: E402


def memory_mib(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text).group(1)) / 1024


class PeakOfAnonymous(threading.Thread):
    """Samples RssAnon of a process: the kernel keeps a peak of the whole resident set only."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.on = pid, 0.0, True

    def run(self):
        while self.on:
            self.peak = max(self.peak, memory_mib(self.pid, "RssAnon"))
            time.sleep(0.005)


def size(args):
    with Cluster(args.bin) as cluster:
        cluster.start_coordinator()
        daemon = cluster.start_daemon("idle")
        times = []
        for _ in range(30):
            start = time.monotonic()
            cluster.run("node", "list")
            times.append((time.monotonic() - start) * 1000)
        # An ingested folder by hand, since only its size matters: 500 MB of
        # shards.
        folder = cluster.root / "big"
        write_idx(cluster.root / "images", 400)
        subprocess.run(
            [
                cluster.bin / "skerry-engine",
                "ingest",
                cluster.root / "images",
                "--out",
                folder,
                "--partitions",
                "1",
            ],
            check=True,
            capture_output=True,
        )
        inflate(folder, args.megabytes * 1000 * 1000)
        watch = PeakOfAnonymous(cluster.coordinator.pid)
        watch.start()
        start = time.monotonic()
        cluster.run("dataset", "add", "big", folder, "--partitions", "1")
        seconds = time.monotonic() - start
        watch.on = False
        watch.join()
        return {
            "upload_megabytes": args.megabytes,
            "upload_seconds": round(seconds, 2),
            "coordinator_peak_anonymous_mib": round(watch.peak, 1),
            "idle_daemon_anonymous_mib": round(memory_mib(daemon.pid, "RssAnon"), 1),
            "node_list_ms_median": round(statistics.median(times), 1),
            "node_list_ms_min": round(min(times), 1),
        }


def detection(args):
    killed, stopped = [], []
    with Cluster(args.bin, engine=pathlib.Path(args.bin) / "skerry-fake-engine") as cluster:
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        env = {"SKERRY_FAKE_STEP_MS": "50"}
        cluster.start_daemon("one", env=env)
        cluster.create_run("run", train={"steps": 1000000})
        holder = "one"
        for i in range(args.repeats * 2):
            spare = f"spare{i}"
            cluster.start_daemon(spare, env=env)
            count = len(cluster.events(kind="granted"))
            cluster.wait(
                lambda: cluster.experts("run")[0]["node"] == holder
                and cluster.experts("run")[0]["loss"] is not None,
                "a commit",
            )
            silent = i % 2 == 1
            start = time.time()
            if silent:
                cluster.daemons[holder].signal(signal.SIGSTOP)
            else:
                cluster.daemons[holder].kill()
            grant = cluster.wait(
                lambda: (g := cluster.events(kind="granted"))[count:] and g[count], "the next grant"
            )
            from datetime import datetime

            seconds = (
                datetime.fromisoformat(grant["time"].replace("Z", "+00:00")).timestamp() - start
            )
            (stopped if silent else killed).append(round(seconds, 2))
            cluster.daemons[holder].kill()
            holder = grant["node"]
    return {
        "killed_seconds": killed,
        "killed_median": statistics.median(killed),
        "stopped_seconds": stopped,
        "stopped_median": statistics.median(stopped),
    }


SHAPES = {
    "S/2": {
        "image_size": 32,
        "channels": 3,
        "patch_size": 2,
        "width": 384,
        "depth": 12,
        "heads": 6,
        "batch_size": 8,
    },
    "small": {
        "image_size": 32,
        "channels": 3,
        "patch_size": 4,
        "width": 192,
        "depth": 6,
        "heads": 3,
        "batch_size": 64,
    },
}
# With captions of Flan-T5-base, of 25 tokens.
SHAPES["pixart-S/2"] = SHAPES["S/2"] | {"caption_dim": 768, "caption_tokens": 25}
RIVALS = (
    "eager/sdpa",
    "compile/sdpa",
    "compile/math",
    "compile/bmm",
)  # as train_rival.py names them


class Timed:
    """A program that answers a line with seconds."""

    def __init__(self, command):
        self.program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self):
        line = self.program.stdout.readline()
        if not line:
            sys.exit(f"{self.program.args[0]} ended with {self.program.wait()}")
        return line.strip()

    def ask(self, words):
        print(words, file=self.program.stdin, flush=True)
        return float(self.line())

    def close(self):
        self.program.stdin.close()
        self.program.wait()


def encode(args):
    import tempfile

    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    script = pathlib.Path(__file__).parent / "encode_rival.py"
    figures = {}
    for what, size, batch in (("images", args.image_size, 16), ("text", args.tokens, 40)):
        with tempfile.TemporaryDirectory(prefix="skerry-bench-") as folder:
            rival = Timed([python, "-B", script, what, folder, str(size)])
            print(f"{what}: {rival.line()}", flush=True)
            ours = Timed([pathlib.Path(args.bin) / "encode_bench", what, folder, str(size)])
            for each in (ours, rival):
                each.ask("1")  # the first batch also prepares
            turns = []
            for turn in range(max(5, args.repeats)):
                order = [("ours", ours), ("theirs", rival)][:: 1 if turn % 2 else -1]
                turns.append({name: program.ask("1") for name, program in order})
                print(f"turn {turn}: {turns[-1]} s for a batch of {batch}", flush=True)
            for each in (ours, rival):
                each.close()
        figures[what] = {
            "size": size,
            "per_second": round(batch / statistics.median(t["ours"] for t in turns), 3),
            "their_per_second": round(batch / statistics.median(t["theirs"] for t in turns), 3),
            "ratio": round(statistics.median(t["theirs"] / t["ours"] for t in turns), 3),
        }
    return figures


def training(args):
    """What is trained, and a program that trains it when asked."""
    spec = SHAPES[args.model] | {"classes": 10, "precision": args.precision}
    if args.batch_size:
        spec["batch_size"] = args.batch_size
    options = [
        word
        for key, value in (spec | {"kernels": args.kernels}).items()
        for word in ("--" + key.replace("_", "-"), str(value))
    ]
    return spec, lambda *more: Timed([pathlib.Path(args.bin) / "train_bench", *options, *more])


def take_turns(arms, args):
    """Processor seconds of a step of each arm, one figure a turn.

    The first turn is one step, which determines how many make a turn.
    """
    end = time.monotonic() + 60 * args.minutes
    seconds, longest = {name: [] for name in arms}, 0
    for turn in range(1 + args.repeats):
        began = time.monotonic()
        if turn > 0 and began + longest > end:
            break
        for name, run in arms.items():
            if turn == 0 and seconds["ours"] and time.monotonic() > end:
                print(f"no time left for {name}", flush=True)
                continue
            steps = max(1, round(args.turn_seconds / seconds[name][0])) if turn > 0 else 1
            seconds[name].append(run(steps) / steps)
            print(f"turn {turn}: {name} {seconds[name][-1]:.3f} s a step", flush=True)
        if turn > 0:
            longest = max(longest, time.monotonic() - began)
        else:
            arms = {name: run for name, run in arms.items() if seconds[name]}
            longest = sum(max(args.turn_seconds, 1.5 * seconds[name][0]) for name in arms)
    return {name: times[1:] or times for name, times in seconds.items() if times}


def ratios(seconds):
    return {
        name: statistics.median(theirs / mine for theirs, mine in zip(times, seconds["ours"]))
        for name, times in seconds.items()
    }


def train(args):
    spec, program = training(args)
    ours = program()
    fingerprint = ours.line()
    print(fingerprint)
    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    rival = Timed(
        [python, "-B", pathlib.Path(__file__).parent / "train_rival.py", json.dumps(spec)]
    )
    arms = {"ours": ours.ask} | {
        name: (lambda n, name=name: rival.ask(f"{name} {n}")) for name in RIVALS
    }
    seconds = take_turns(arms, args)
    for each in (ours, rival):
        each.close()
    ratio = ratios(seconds)
    for name, times in seconds.items():
        print(
            f"{name:14} {spec['batch_size'] / statistics.median(times):8.2f} images/s in "
            f"{len(times)} turns   ours is {ratio[name]:.2f} times that"
        )
    compiled = [ratio[name] for name in RIVALS[1:] if name in ratio]
    return {
        "model": args.model,
        "precision": args.precision,
        "kernels": args.kernels,
        "batch_size": spec["batch_size"],
        "fingerprint": fingerprint,
        "turns": len(seconds["ours"]),
        "images_per_second": round(spec["batch_size"] / statistics.median(seconds["ours"]), 2),
        "ratio_to_eager": round(ratio.get("eager/sdpa", 0), 3) or None,
        "ratio_to_compile": round(ratio.get("compile/sdpa", 0), 3) or None,
        "ratio_to_compile_with_its_best_attention": round(min(compiled), 3) if compiled else None,
    }


def prompts(args):
    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    script = pathlib.Path(__file__).parent / "prompt_shares.py"
    engine = pathlib.Path(args.bin) / "skerry-engine"
    command = [python, "-B", script, engine, args.dataset or "/usr/share/datasets/fashion-mnist"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def memory(args):
    spec, program = training(args)
    arms = {
        "ours": program(),
        "checkpointed": program("--gradient-checkpointing"),
        "lean": program("--state", "lean"),
    }
    for each in arms.values():
        print(each.line())
    held = {name: each.ask("memory") for name, each in arms.items()}
    state = {name: each.ask("bytes") for name, each in arms.items()}
    seconds = take_turns({name: each.ask for name, each in arms.items()}, args)
    for each in arms.values():
        each.close()
    return {
        "model": args.model,
        "precision": args.precision,
        "kernels": args.kernels,
        "batch_size": spec["batch_size"],
        "step_megabytes": round(held["ours"] / 1e6, 1),
        "step_megabytes_checkpointed": round(held["checkpointed"] / 1e6, 1),
        "memory_saved": round(1 - held["checkpointed"] / held["ours"], 3),
        "more_time": round(ratios(seconds)["checkpointed"] - 1, 3),
        "state_megabytes": round(state["ours"] / 1e6, 1),
        "state_megabytes_lean": round(state["lean"] / 1e6, 1),
        "more_time_lean": round(ratios(seconds)["lean"] - 1, 3),
    }


ROUND_SECONDS = 60  # run.toml's default


def stall(args):
    """The cost of a round beside its steps.

    Measures the snapshot, for which training stops; the slowdown while another program on the same
    processors stores the checkpoint as the daemon does; and the time to draw the images, which is
    done during the step before.
    """
    import tempfile

    spec, program = training(args)
    trainer = program()
    fingerprint = trainer.line()
    print(fingerprint)
    size = int(trainer.ask("bytes"))
    trainer.ask("snapshot")  # the first takes the memory
    step = trainer.ask("wall 1")
    steps = max(2, round(args.turn_seconds / step))
    data = trainer.ask(f"data {steps}") / trainer.ask(f"wall {steps}")
    snapshots, lost, stores = [], [], []
    with tempfile.TemporaryDirectory(
        prefix="skerry-bench-", dir=os.environ.get("TMPDIR")
    ) as folder:
        daemon = Timed(
            [pathlib.Path(args.bin) / "storage_bench", folder, str(round(size / 2**20)), "node"]
        )
        daemon.line()
        # A turn is longer than what is stored beside it, or some of what is
        # lost would not be seen.
        steps = max(steps, math.ceil(2 * daemon.ask("write") / step))
        daemon.ask("drop")
        for turn in range(max(7, args.repeats)):
            took = {}
            for storing in ((True, False) if turn % 2 == 0 else (False, True)):
                if storing:
                    print("write", file=daemon.program.stdin, flush=True)
                took[storing] = trainer.ask(f"wall {steps}")
                if storing:
                    stores.append(float(daemon.line()))
                    daemon.ask("drop")
                    os.sync()
            lost.append(took[True] - took[False])
            snapshots.append(trainer.ask("snapshot"))
            print(
                f"turn {turn}: {steps} steps {took[False]:.2f} s, {took[True]:.2f} s while a "
                f"checkpoint is stored ({stores[-1]:.2f} s), "
                f"snapshot {snapshots[-1]:.2f} s",
                flush=True,
            )
        for each in (trainer, daemon):
            each.close()
    snapshot, beside = statistics.median(snapshots), statistics.median(lost)
    return {
        "model": args.model,
        "precision": args.precision,
        "batch_size": spec["batch_size"],
        "fingerprint": fingerprint,
        "checkpoint_bytes": size,
        "turns": len(lost),
        "snapshot_seconds": round(snapshot, 3),
        "lost_while_stored_seconds": round(beside, 3),
        "store_seconds": round(statistics.median(stores), 3),
        "round_seconds": ROUND_SECONDS,
        "stall_share": round((snapshot + beside) / ROUND_SECONDS, 4),
        "snapshot_share": round(snapshot / ROUND_SECONDS, 4),
        "loader_share": round(data, 4),
    }


ROUTER = {
    "width": 96,
    "depth": 4,
    "heads": 4,
    "patch-size": 4,
    "batch-size": 128,
    "learning-rate": 5e-4,
    "ema": 0.999,
}
FASHION = "/usr/share/datasets/fashion-mnist"


def router(args):
    import tempfile

    engine = pathlib.Path(args.bin) / "skerry-engine"

    def run(*words):
        done = subprocess.run([str(engine), *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"skerry-engine {words[0]}: {done.stderr.strip()}")
        return done.stdout

    with tempfile.TemporaryDirectory(
        prefix="skerry-bench-", dir=os.environ.get("TMPDIR")
    ) as folder:
        dataset = args.dataset
        if not dataset:
            dataset = pathlib.Path(folder) / "dataset"
            run("ingest", FASHION, "--out", dataset, "--partitions", 8)
        options = [word for key, value in ROUTER.items() for word in (f"--{key}", value)]

        def train(steps, *more):
            began = time.monotonic()
            run(
                "train",
                "--standalone",
                "--router",
                "--dataset",
                dataset,
                "--steps",
                steps,
                *options,
                *more,
            )
            return time.monotonic() - began

        def evaluate(weights):
            measured = json.loads(run("evaluate", dataset, "--learned", weights, "-o", "json"))
            return measured["router"], measured["learned_router"]

        half, whole = (pathlib.Path(folder) / name for name in ("half", "whole"))
        step = (train(60, "--out", half) - train(20, "--out", half)) / 40
        steps = max(100, int(60 * args.minutes / step))
        print(f"{steps} steps of {ROUTER['batch-size']}", flush=True)
        train(steps, "--stop-after", steps // 2, "--out", half)
        train(steps, "--resume", half, "--out", whole)
        analytic, learned = evaluate(whole)
        before = evaluate(half)[1]
    print("   t   accuracy: analytic, learned   cross-entropy: analytic, learned")
    levels = []
    for a, b in zip(analytic["levels"], learned["levels"]):
        print(
            f"{a['t']:5.2f} {a['accuracy']:18.3f} {b['accuracy']:8.3f} {a['cross_entropy']:24.3f} "
            f"{b['cross_entropy']:8.3f}"
        )
        levels.append(
            {
                "t": a["t"],
                "analytic": round(a["cross_entropy"], 4),
                "learned": round(b["cross_entropy"], 4),
            }
        )
    # How far beyond what is allowed: 5 % or 0.01 nats.
    beyond = max(
        each["analytic"] - max(1.05 * each["learned"], each["learned"] + 0.01) for each in levels
    )
    return {
        "steps": steps,
        "images": analytic["images"],
        "levels": levels,
        "mean_cross_entropy": round(analytic["mean_cross_entropy"], 4),
        "mean_cross_entropy_learned": round(learned["mean_cross_entropy"], 4),
        "mean_cross_entropy_learned_at_half": round(before["mean_cross_entropy"], 4),
        "analytic_beyond_tolerance": round(beyond, 4),
        "microseconds_per_image": round(analytic["microseconds_per_image"], 1),
        "microseconds_per_image_learned": round(learned["microseconds_per_image"], 1),
        "ratio_of_cost": round(
            analytic["microseconds_per_image"] / learned["microseconds_per_image"], 4
        ),
    }


def storage(args):
    import tempfile

    with tempfile.TemporaryDirectory(
        prefix="skerry-bench-", dir=os.environ.get("TMPDIR")
    ) as folder:
        done = subprocess.run(
            [pathlib.Path(args.bin) / "storage_bench", folder],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def forget(folder):
    """Reads of what lies in the folder go to the disk again."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def checkpoint(args):
    """Reads from the disk: the page cache is dropped first.

    "node" trains, and resumes by mapping the checkpoint. "coordinator" keeps it in its store, and
    reads it for peers.
    """
    import tempfile

    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(
        prefix="skerry-bench-", dir=os.environ.get("TMPDIR")
    ) as folder:
        programs = {}
        for who in ("node", "coordinator"):
            (pathlib.Path(folder) / who).mkdir()
            programs[who] = Timed(
                [
                    pathlib.Path(args.bin) / "storage_bench",
                    f"{folder}/{who}",
                    str(args.megabytes),
                    who,
                ]
            )
            size = int(programs[who].line())
        os.rename(f"{folder}/node/tensors.safetensors", f"{folder}/tensors.safetensors")
        programs["torch"] = Timed(
            [python, "-B", pathlib.Path(__file__).parent / "checkpoint_rival.py", folder]
        )
        print(f"{size / 1e6:.0f} MB, torch {programs['torch'].line()}", flush=True)
        turns = []
        for turn in range(max(7, args.repeats)):
            # Each goes first in some of the turns: the disk still writes what
            # the one before left.
            took = {}
            order = list(programs)
            for who in order[turn % 3 :] + order[: turn % 3]:
                took[who, "write"] = programs[who].ask("write")
                forget(folder)
                took[who, "read"] = programs[who].ask("read")
            took["plain", "write"] = programs["torch"].ask("raw")
            forget(folder)
            took["plain", "read"] = programs["torch"].ask("raw read")
            for who in programs:
                programs[who].ask("clear" if who == "torch" else "drop")
            os.sync()
            turns.append(took)
            print(
                f"turn {turn}, MB/s: "
                + "; ".join(
                    f"{what} "
                    + ", ".join(
                        f"{who} {size / 1e6 / took[who, what]:.0f}" for who in (*programs, "plain")
                    )
                    for what in ("write", "read")
                ),
                flush=True,
            )
        for each in programs.values():
            each.close()
    rate = lambda what: round(
        size / 1e6 / statistics.median(t["node", what] for t in turns)
    )  # noqa: E731
    ratio = lambda who, what, to: round(
        statistics.median(t[to, what] / t[who, what] for t in turns), 3
    )  # noqa: E731
    return {
        "bytes": size,
        "pairs": len(turns),
        "write_ratio": ratio("node", "write", "torch"),
        "read_ratio": ratio("node", "read", "torch"),
        "coordinator_write_ratio": ratio("coordinator", "write", "torch"),
        "coordinator_read_ratio": ratio("coordinator", "read", "torch"),
        "write_megabytes_per_second": rate("write"),
        "read_megabytes_per_second": rate("read"),
        "share_of_plain_writes": ratio("node", "write", "plain"),
        "share_of_plain_reads": ratio("node", "read", "plain"),
    }


def export(args):
    oracle = pathlib.Path(__file__).parent.parent / "oracle" / "export_oracle.py"
    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    done = subprocess.run(
        [python, "-B", oracle, pathlib.Path(args.bin) / "export-transcript", "--measure"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stdout.strip() or done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])


def printed_by(args, name):
    done = subprocess.run(
        [pathlib.Path(args.bin) / name], check=True, capture_output=True, text=True
    )
    print(done.stdout.rsplit("\n", 2)[0])
    return json.loads(done.stdout.strip().splitlines()[-1])


def gossip(args):
    return printed_by(args, "gossip_bench")


def dashboard(args):
    from dashboard_times import measure

    return {"metrics": printed_by(args, "dashboard_bench"), **measure(args)}


def placement(args):
    return printed_by(args, "placement_bench")


def fanout(args):
    return printed_by(args, "fanout_bench")


def transfer(args):
    return printed_by(args, "transfer_bench")


def add_noise(cluster, megabytes, partitions=1):
    """The dataset "noise": a few images and so much noise, in shards of 64 MiB."""
    folder = cluster.root / "noise"
    write_idx(cluster.root / "images", 400)
    cluster.engine_run(
        "ingest", cluster.root / "images", "--out", folder, "--partitions", partitions
    )
    inflate(folder, megabytes << 20)
    cluster.run("dataset", "add", "noise", folder, "--partitions", partitions)


def noise_transfers(cluster):
    return [
        e
        for e in cluster.events(kind="transfer")
        if re.search(r"shard-0-1\d+\S+ of dataset noise", e["reason"])
    ]


def whole_shards(data):
    """Of the noise, in a node's data folder."""
    return [
        path
        for path in (data / "objects").glob("*")
        if path.suffix != ".partial" and path.stat().st_size > 50 << 20
    ]


def seconds_of(event):
    from datetime import datetime

    return datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


def coordinators_share(event):
    """Of a transfer, as its event tells it."""
    from_it = re.search(r"from.* the coordinator(?: \((\d+) %\))?", event["reason"])
    return 0 if from_it is None else int(from_it.group(1) or 100) / 100


def fanout_real(args):
    """As fanout, with real programs on one machine: all nodes need the same shard at once.

    Each has an upload line of 16 MB/s.
    """
    limit = ["--upload-limit", "16MB/s"]
    with Cluster(
        args.bin,
        engine=pathlib.Path(args.bin) / "skerry-fake-engine",
        coordinator_args=limit,
        daemon_args=limit,
    ) as cluster:
        cluster.start_coordinator()
        add_noise(cluster, 128)
        shards = len(list((cluster.root / "noise").glob("shard-0-1???.safetensors")))
        took, copies, node = {}, 0, 0
        for count in (1, 16):
            names = [f"node{node + i}" for i in range(count)]
            node += count
            for name in names:
                cluster.start_daemon(name, env={"SKERRY_FAKE_STEP_MS": "1000"})
            before = len(noise_transfers(cluster))
            start = time.time()
            for name in names:
                cluster.create_run(f"of-{name}", dataset="noise", train={"steps": 1000000})
            came = cluster.wait(
                lambda: (t := noise_transfers(cluster)[before:]) and len(t) >= count * shards and t,
                "all to have it",
                *(cluster.daemons[name] for name in names),
                limit=580,
            )
            took[count] = max(map(seconds_of, came)) - start
            copies = sum(map(coordinators_share, came)) / shards
            print(
                f"{count} nodes: {took[count]:.1f} s, {copies:.2f} copies from the coordinator",
                flush=True,
            )
            for name in names:
                cluster.daemons[name].stop()
        return {
            "nodes": 16,
            "coordinator_copies": round(copies, 2),
            "ratio_16_to_1": round(took[16] / took[1], 2),
            "seconds": round(took[16], 1),
        }


def interference(args):
    """The trainer has the last core for itself; coordinator, nodes and a beating fleet have the
    first.

    Measures steps of the trainer while a joining node fetches 1 GiB from another, and without, in
    turns.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed")
    os.sched_setaffinity(0, cores[-1:])
    _, program = training(args)
    trainer = program()
    print(trainer.line())
    os.sched_setaffinity(0, cores[:1])
    trainer.ask("1")

    def steps(until):
        times = []
        while not times or not until():
            start = time.monotonic()
            trainer.ask("1")
            times.append(time.monotonic() - start)
        return times

    with Cluster(
        args.bin,
        engine=pathlib.Path(args.bin) / "skerry-fake-engine",
        coordinator_args=["--lease-seconds", "2"],
    ) as cluster:
        cluster.start_coordinator()
        add_noise(cluster, 1024)
        token = cluster.json("token", "create", "--role", "node", "--uses", 50)["token"]
        beats = FleetPart(args, token, 0, 20)
        beats.hear()
        for each in cluster.items("node", "list"):
            if each["role"] == "node":
                cluster.run("node", "cordon", each["id"])  # they beat, and have no disk to fetch to
        cluster.start_daemon("giver", env={"SKERRY_FAKE_STEP_MS": "1000"})
        cluster.create_run("first", dataset="noise", train={"steps": 1000000})
        shards = len(list((cluster.root / "noise").glob("shard-0-1???.safetensors")))
        cluster.wait(
            lambda: len(noise_transfers(cluster)) >= shards, "the first node to have it", limit=580
        )
        cluster.create_run("second", dataset="noise", train={"steps": 1000000})
        ratios_, worst, latencies = [], 0, []
        for turn in range(max(10, args.repeats)):
            ends = time.monotonic() + 10
            calm = steps(lambda: time.monotonic() > ends)
            name = f"taker{turn}"
            beats.tell(f"measure {MEASURE_SECONDS}")
            cluster.join(token, name, env={"SKERRY_FAKE_STEP_MS": "1000"})
            # Not by its events: of many within a minute the last ones are told
            # together, later.
            busy = steps(lambda: len(whole_shards(cluster.root / name)) >= shards)
            latencies += [microseconds / 1000 for microseconds in json.loads(beats.hear())]
            cluster.daemons.pop(name).kill()
            shutil.rmtree(cluster.root / name)
            ratios_.append(statistics.median(busy) / statistics.median(calm))
            worst = max(worst, max(busy) / statistics.median(calm))
            print(
                f"turn {turn}: {len(calm)} steps of {statistics.median(calm):.3f} s, {len(busy)} "
                f"of {statistics.median(busy):.3f} s beside, ratio {ratios_[-1]:.3f}",
                flush=True,
            )
        beats.popen.stdin.close()
        beats.popen.wait()
    trainer.close()
    latencies.sort()
    return {
        "turns": len(ratios_),
        "step_time_ratio": round(statistics.median(ratios_), 3),
        "longest_step_over_median": round(worst, 2),
        "heartbeat_p99_ms": round(latencies[int(len(latencies) * 0.99)], 1),
    }


LEASES = 16
LEASE_SECONDS = 8  # with its grace
NODES_OF_PROCESS = 500
MEASURE_SECONDS = 10


class FleetPart:
    """A process of many nodes: fleet_bench.cc."""

    def __init__(self, args, token, first, count):
        self.popen = subprocess.Popen(
            [pathlib.Path(args.bin) / "fleet_bench", token, str(first), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def hear(self):
        line = self.popen.stdout.readline().strip()
        if not line:
            sys.exit(f"a part of the fleet left with {self.popen.wait()}")
        return line


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_seconds():
    return int(pathlib.Path("/proc/stat").read_text().split()[4]) / os.sysconf("SC_CLK_TCK")


def leases(cluster):
    return {e["index"]: (e["node"], e["epoch"]) for e in cluster.experts("run") if e["node"]}


def fleet(args):
    # A coordinator keeps four descriptors ready for each node that it is
    # configured for, and some for itself (protocol/zmq_server.cc). The nodes
    # here need one each, and two where one takes another's place.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most, limited = (hard - 384) // 2, ["the number asked for"]
    nodes = args.nodes
    if nodes > most:
        nodes, limited = most, [
            f"descriptors: {hard} for a process (ulimit -Hn) suffice for {most} nodes"
        ]
    print(f"{nodes} nodes, {os.cpu_count()} cores, {hard} descriptors for a process", flush=True)
    with Cluster(
        args.bin,
        engine=pathlib.Path(args.bin) / "skerry-fake-engine",
        coordinator_args=["--connections", min(nodes + 16, (hard - 384) // 4)],
    ) as cluster:
        cluster.start_coordinator()
        start = time.monotonic()
        cluster.add_dataset(partitions=min(LEASES, nodes), images=1600)
        token = cluster.json("token", "create", "--role", "node", "--uses", nodes)["token"]
        parts = [
            FleetPart(args, token, first, min(NODES_OF_PROCESS, nodes - first))
            for first in range(0, nodes, NODES_OF_PROCESS)
        ]
        try:
            for part in parts:
                part.hear()
            print(
                f"all enrolled, connected and answered after {time.monotonic() - start:.1f} s",
                flush=True,
            )
            cluster.create_run("run", train={"steps": 1000000})
            cluster.wait(
                lambda: len(leases(cluster)) == min(LEASES, nodes),
                "the leases",
                cluster.coordinator,
            )

            pid, cores = cluster.coordinator.pid, os.cpu_count()
            cpu, idle, start = cpu_seconds(pid), idle_seconds(), time.monotonic()
            for part in parts:
                part.tell(f"measure {MEASURE_SECONDS}")
            took = sorted(us / 1000 for part in parts for us in json.loads(part.hear()))
            seconds = time.monotonic() - start
            used = (cpu_seconds(pid) - cpu) / seconds
            spare = (idle_seconds() - idle) / seconds / cores
            if spare < 0.1:
                limited.append(
                    f"CPU: {spare:.0%} of the {cores} cores were idle, which the fleet shares "
                    "with its coordinator"
                )
            rss = memory_mib(pid, "VmRSS")
            print(
                f"{len(took) / seconds:.0f} heartbeats a second answered; {spare:.0%} of the CPU "
                "idle",
                flush=True,
            )

            before = leases(cluster)
            cluster.coordinator.kill()
            killed = time.monotonic()
            for part in parts:
                part.tell("killed")
            cluster.start_coordinator()
            served = max(int(part.hear().split()[1]) for part in parts) / 1e9 - killed
            print(f"all served {served:.2f} s after the kill", flush=True)
            time.sleep(2 * LEASE_SECONDS)  # a lease that was not renewed has run out by now
            after = leases(cluster)
            lost = [e for e in before if after.get(e) != before[e]]
        finally:
            for part in parts:
                part.popen.stdin.close()
                part.popen.wait()
    return {
        "nodes": nodes,
        "heartbeats": len(took),
        "p50_ms": round(statistics.median(took), 2),
        "p99_ms": round(took[int(len(took) * 0.99)], 2),
        "coordinator_cpu": round(used, 3),
        "coordinator_rss": round(rss, 1),
        "leases": len(before),
        "seconds_to_all_served": round(served, 2),
        "leases_lost": len(lost),
        "limited_by": "; ".join(limited),
    }


def run_quality(before, after):
    """It needs the Python of LibTorch, and takes its own options."""
    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    os.execv(
        python, [python, "-B", str(pathlib.Path(__file__).parent / "quality.py"), *before, *after]
    )


def main():
    if "quality" in sys.argv:
        at = sys.argv.index("quality")
        run_quality(sys.argv[1:at], sys.argv[at + 1 :])
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--model", choices=SHAPES, default="small")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--kernels", choices=("fast", "reference"), default="fast")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--turn-seconds", type=float, default=2)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=25)
    parser.add_argument("--dataset")
    parser.add_argument(
        "--dry-run", action="store_true", help=argparse.SUPPRESS
    )  # of ./dev: whether the options are right
    args = parser.parse_args()
    benches = {
        "size": size,
        "detection": detection,
        "train": train,
        "prompts": prompts,
        "encode": encode,
        "memory": memory,
        "stall": stall,
        "router": router,
        "storage": storage,
        "export": export,
        "fleet": fleet,
        "checkpoint": checkpoint,
        "dashboard": dashboard,
        "gossip": gossip,
        "placement": placement,
        "fanout": fanout,
        "fanout-real": fanout_real,
        "interference": interference,
        "transfer": transfer,
    }
    if args.name not in benches:
        print(__doc__)
        sys.exit(0 if args.name is None else f"no benchmark '{args.name}'")
    if args.dry_run:
        return
    print(json.dumps({"bench": args.name, **benches[args.name](args)}))


if __name__ == "__main__":
    main()
