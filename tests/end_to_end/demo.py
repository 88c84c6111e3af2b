#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev demo: one whole run on this machine, through a killed node, to a picture.

What it starts are the real programs, as separate processes that talk over loopback.
"""

import argparse
import json
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster import Cluster, Failure  # noqa: E402

SAMPLING = ["--steps", 15, "--solver", "heun", "--guidance", 2, "--route", "ancestral"]
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
WARMUP = 50
RUN = """name = "demo"
dataset = "demo"
seed = 1
[model]
width = 128
depth = 4
heads = 4
patch_size = 4
[train]
steps = {steps}
batch_size = 64
learning_rate = 1e-3
schedule = "cosine"
warmup_steps = {warmup}
ema = 0.995
threads = 1
kernels = "fast"
[checkpoint]
round_seconds = 12
[schedule]
turn_rounds = 3
"""


def generated_images(folder, per_class=600):
    """Ten classes of small drawings, if the real images are not available.

    A class is a shape; an image varies its place and size.
    """
    import struct
    import zlib
    import random

    draw = random.Random(1)

    def png(path, rows):
        raw = b"".join(b"\0" + bytes(row) for row in rows)

        def chunk(kind, data):
            return (
                struct.pack(">I", len(data))
                + kind
                + data
                + struct.pack(">I", zlib.crc32(kind + data))
            )

        path.write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(raw))
            + chunk(b"IEND", b"")
        )

    shapes = {
        "disc": lambda x, y: x * x + y * y < 1,
        "ring": lambda x, y: 0.5 < x * x + y * y < 1,
        "square": lambda x, y: max(abs(x), abs(y)) < 0.8,
        "frame": lambda x, y: 0.5 < max(abs(x), abs(y)) < 0.85,
        "bar": lambda x, y: abs(y) < 0.3 and abs(x) < 1,
        "pole": lambda x, y: abs(x) < 0.3 and abs(y) < 1,
        "cross": lambda x, y: min(abs(x), abs(y)) < 0.25 and max(abs(x), abs(y)) < 1,
        "wedge": lambda x, y: abs(x) < (1 + y) / 2 and y < 1,
        "diamond": lambda x, y: abs(x) + abs(y) < 1,
        "slash": lambda x, y: abs(x - y) < 0.35 and max(abs(x), abs(y)) < 1,
    }
    for name, inside in shapes.items():
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            size, cx, cy = draw.uniform(6, 11), draw.uniform(11, 17), draw.uniform(11, 17)
            light = draw.randrange(140, 256)
            png(
                folder / name / f"{i}.png",
                [
                    [light if inside((c - cx) / size, (r - cy) / size) else 0 for c in range(28)]
                    for r in range(28)
                ],
            )
    return folder


def epoch_words(epoch):
    return f"{epoch >> 48}.{epoch & (1 << 48) - 1}"


class Story:
    def __init__(self):
        self.start = time.monotonic()

    def __call__(self, line):
        seconds = int(time.monotonic() - self.start)
        print(f"[{seconds // 60}:{seconds % 60:02d}] {line}", flush=True)


def progress(cluster, run, tell, last):
    """One line when the ensemble has moved by five percent more."""
    shown = cluster.json("run", "show", run)
    done = sum(e["step"] for e in shown["experts"]) / max(
        1, sum(e["steps_target"] for e in shown["experts"])
    )
    if done - last >= 0.05 or (shown["state"] == "done" and last < 1):
        cells = " ".join(
            f"#{e['index']}:{e['step']}" + (f"({e['node']})" if e["node"] else "")
            for e in shown["experts"]
        )
        eta = shown["eta_seconds"]
        tell(
            f"{done:4.0%} trained and committed   {cells}"
            + (f"   about {eta / 60:.1f} min left" if eta else "")
        )
        return done, shown
    return last, shown


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    parser.add_argument(
        "--out", default="demo-out", help="where the run, the ensemble and the picture go"
    )
    parser.add_argument(
        "--steps", type=int, default=600, help="optimiser steps of each of the four experts"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the coordinator and the nodes running after the picture, until Ctrl-C",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help=argparse.SUPPRESS
    )  # of ./dev: whether the options are right
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    if out.exists() and not (out / "skerry-demo").exists():
        sys.exit(f"{out} exists and is not from an earlier demo: choose another with --out DIR")
    if args.steps < WARMUP:
        parser.error(f"argument --steps: expected at least {WARMUP}, found {args.steps}")
    if args.dry_run:
        return
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / "skerry-demo").touch()
    tell = Story()

    images = FASHION if FASHION.exists() else None
    if images is None:
        tell(
            "Fashion-MNIST (Debian's dataset-fashion-mnist) is not here: drawing a set of simple "
            "shapes instead"
        )
        images = generated_images(out / "images")

    with Cluster(args.bin, out / "cluster") as cluster:
        cluster.start_coordinator()
        tell(f"a coordinator is up on 127.0.0.1:{cluster.port}")
        tell(f"turning {images} into four partitions: similar images go to the same expert")
        ingested = out / "dataset"
        cluster.engine_run("ingest", images, "--out", ingested, "--partitions", 4)
        cluster.run("dataset", "add", "demo", ingested, "--partitions", 4)
        dataset = cluster.json("dataset", "show", "demo")
        tell(
            f"{dataset['samples']} images in partitions of "
            f"{', '.join(map(str, dataset['partition_samples']))}"
        )
        for name in ("anna", "bert", "cleo"):
            cluster.start_daemon(name)
        tell("three nodes joined: anna, bert and cleo; there are four experts, so they take turns")
        (out / "run.toml").write_text(RUN.format(steps=args.steps, warmup=WARMUP))
        cluster.run("run", "create", "-f", out / "run.toml")

        victim = cluster.wait_event(kind="committed", limit=600)
        name, expert = victim["node"], victim["expert"]
        done, _ = progress(cluster, "demo", tell, -1)

        # Some way into the next round, so that there is something to lose.
        def is_training_on():
            e = cluster.experts("demo")[expert]
            return (
                e["node"] == name and e["phase"] == "training" and e["live_step"] > e["step"] and e
            )

        before = cluster.wait(is_training_on, f"{name} to train on", cluster.coordinator)
        cluster.daemons[name].kill()
        tell(
            f"KILLED {name} (SIGKILL) while it trained expert {expert}: step "
            f"{before['live_step']}, committed {before['step']}"
        )
        lost = cluster.wait_event(kind="lease_lost", expert=expert)
        tell(f"the coordinator noticed: {lost['reason']}")
        again = cluster.wait(
            lambda: [
                e
                for e in cluster.events(kind="granted", expert=expert)
                if e["number"] > lost["number"]
            ],
            f"expert {expert} to be granted again",
        )[0]
        tell(
            f"expert {expert} went to {again['node']} at epoch {epoch_words(again['epoch'])}, "
            f"from step {again['step']}: {again['reason']}"
        )

        shown = {"state": "running"}
        while shown["state"] not in ("done", "failed", "stopped"):
            done, shown = progress(cluster, "demo", tell, done)
            time.sleep(1)
        if shown["state"] != "done":
            raise Failure(f"the run ended {shown['state']}: {shown['reason']}")
        cluster.run("ensemble", "fetch", "demo", "-o", out / "ensemble")
        tell(f"the ensemble is fetched and verified: {out}/ensemble")
        picture = out / "samples.png"
        cluster.run("sample", out / "ensemble", "-n", 100, *SAMPLING, "--seed", 1, "-o", picture)
        agreement = label_agreement(cluster, out)
        tell(f"sampled {picture}")
        tell(f"{agreement:.2f} of 300 samples have a nearest real image with the label asked for")
        minutes = (time.monotonic() - tell.start) / 60
        print(f"""
In {minutes:.1f} minutes four experts learned {dataset['samples']} images on three nodes, \
one of which was killed on the way;
nothing but its unfinished round was lost.

  the picture        {picture.resolve()}   (a column is a class)
  label agreement    {agreement:.2f} of the samples have a nearest real image (of 5,000) \
with the label asked for
  sample again       {args.bin}/skerry sample {out}/ensemble -n 64 --route top2 -o more.png
  what happened      {out}/cluster/*.log
""")
        if args.keep:
            stay(cluster, args.bin)
    if agreement < 0.6:
        sys.exit("label agreement is below 0.6: the ensemble did not learn what it should")


def stay(cluster, programs):
    print(
        f"""The coordinator and the nodes keep running until Ctrl-C. In another terminal:

  export SKERRY_CONTEXT={cluster.cli_env()["SKERRY_CONTEXT"]} \
PATH={pathlib.Path(programs).resolve()}:$PATH
  skerry run show demo
""",
        flush=True,
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print("ending them")


def real_images(dataset, path, count):
    """The first images of every shard, `count` in all, as one file to compare with."""
    shards = sorted(dataset.glob("shard-*.safetensors"))
    images, labels, each = b"", b"", count // len(shards)
    for shard in shards:
        data = shard.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        shape = header["images"]["shape"]
        size = shape[1] * shape[2] * shape[3]
        images += data[start + header["images"]["data_offsets"][0] :][: each * size]
        labels += data[start + header["labels"]["data_offsets"][0] :][: each * 4]
    total = len(labels) // 4
    header = json.dumps(
        {
            "images": {
                "dtype": "U8",
                "shape": [total, *shape[1:]],
                "data_offsets": [0, len(images)],
            },
            "labels": {
                "dtype": "I32",
                "shape": [total],
                "data_offsets": [len(images), len(images) + len(labels)],
            },
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + images + labels)
    return path


def label_agreement(cluster, out, count=300):
    real = real_images(out / "dataset", out / "real-images.safetensors", 5000)
    done = cluster.engine_run(
        "sample",
        out / "ensemble",
        "-n",
        count,
        *SAMPLING,
        "--seed",
        2,
        "--json",
        "--nearest",
        real,
        "--nearest-count",
        5000,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])["label_agreement"]


if __name__ == "__main__":
    try:
        main()
    except Failure as problem:
        sys.exit(f"the demo failed: {problem}")
