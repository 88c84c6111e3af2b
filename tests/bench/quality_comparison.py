# SPDX-License-Identifier: Apache-2.0
"""The ensembles that ./dev bench quality compares.

Tasks state how skerry-engine trains and measures each one, ordered so that each task finds its
inputs. A finished task's output appears atomically.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import torch
from quality_measure import (
    CLASSIFIERS,
    Classifier,
    frechet,
    nearest,
    read_images,
    read_pngs,
    write_unlabelled,
)

# At 28² in patches of 4, from the third on: .7, 4.2 and 9.8 million parameters.
MODELS = {
    "tiny": (32, 2, 2),
    "mini": (64, 3, 4),
    "sketch": (96, 4, 4),
    "small": (192, 6, 3),
    "large": (256, 8, 4),
}  # width, depth, heads
ROUTES = {"ancestral": 1, "top1": 1, "top2": 2, "full": None}  # experts that a step asks; None: all
ARMS = [
    "monolith",
    *ROUTES,
    "learned-top1",
    "learned-top2",
    "learned-full",
    "random-ancestral",
    "random-full",
]
MONOLITH, CLUSTERS, RANDOM = "monolith", "clusters", "random"
TRAINING_PASSES = 3  # a training step costs as much as so many forward passes
NEAREST_OF = 2000  # samples whose nearest image of training is looked for


@dataclasses.dataclass
class Task:
    label: str
    output: pathlib.Path  # there when it is done
    cost: float  # in multiply-adds
    make: object  # called to write the output


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Models that one seed trains on one partition of the images."""

    seed: int
    kind: str
    partitions: int
    rate: float
    steps: int

    @property
    def name(self):
        return (
            f"{self.kind}-{self.rate:g}"
            if self.kind == MONOLITH
            else f"{self.kind}-{self.partitions}-{self.rate:g}"
        )


def forward_cost(width, depth, tokens):
    """Multiply-adds of one image through a DiT; embedding and last layer are left out."""
    return depth * (12 * tokens * width * width + 2 * tokens * tokens * width + 6 * width * width)


def split_arm(arm):
    """The ensemble, the route and the router of an arm."""
    kind, _, route = arm.rpartition("-")
    if arm == MONOLITH:
        return MONOLITH, "ancestral", None
    return (
        RANDOM if kind == RANDOM else CLUSTERS,
        route,
        "learned" if kind == "learned" else "analytic",
    )


def asks_learned(arms):
    return any(arm.startswith("learned") for arm in arms)


def read_json(path):
    return json.loads(path.read_text())


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1))
    os.replace(partial, path)


def keep_averaged(checkpoint, path, router):
    """A checkpoint's mean weights as a file of an ensemble folder, where names have no prefix."""
    data = checkpoint.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, body, kept = json.loads(data[8:start]), bytearray(), {}
    for name, tensor in header.items():
        if name == "__metadata__":
            kept[name] = tensor
        elif name.startswith("ema/"):
            begin, end = tensor["data_offsets"]
            values = data[start + begin : start + end]
            if tensor["dtype"] == "BF16":  # a lean state; F32 has the same bits first
                values = (np.frombuffer(values, np.uint16).astype(np.uint32) << 16).tobytes()
            kept[name if router else name[4:]] = {
                "dtype": "F32",
                "shape": tensor["shape"],
                "data_offsets": [len(body), len(body) + len(values)],
            }
            body += values
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(len(text).to_bytes(8, "little") + text + body)
    os.replace(partial, path)


class Comparison:
    def __init__(self, args):
        self.args, self.work = args, args.work
        self.images_folder = pathlib.Path(args.images)
        self.device = (
            f"cuda:{args.device}" if args.device >= 0 and torch.cuda.is_available() else "cpu"
        )
        self.classifier = Classifier(CLASSIFIERS / f"{args.dataset}.npz", self.device)
        self.training = read_images(args.dataset, self.images_folder, held_out=False)[0]
        self.held_out = read_images(args.dataset, self.images_folder, held_out=True)[0]
        self.held_out_features = self.classifier.features(self.held_out)
        self.shape = MODELS[args.model]
        tokens = (self.training.shape[2] // args.patch_size) ** 2
        self.cost = forward_cost(*self.shape[:2], tokens)
        self.router_width = max(4 * self.shape[2], self.shape[0] // 2)
        self.router_cost = forward_cost(self.router_width, self.shape[1], tokens)

    # What is trained.

    def monolith(self, seed, rate):
        """Its steps pay for the router's training as well as for the experts'."""
        return Ensemble(
            seed, MONOLITH, 1, rate, round(self.args.steps / (1 - self.args.router_share))
        )

    def experts(self, seed, kind, partitions, monolith_rate):
        return Ensemble(
            seed, kind, partitions, self.args.learning_rate or monolith_rate, self.args.steps
        )

    def router_steps(self):
        share = self.args.router_share
        return max(
            self.args.points,
            round(share / (1 - share) * self.args.steps * self.cost / self.router_cost),
        )

    def folder(self, ensemble, point):
        return self.work / f"seed-{ensemble.seed}" / ensemble.name / f"point-{point}"

    def dataset(self, ensemble):
        return self.work / (
            f"{ensemble.kind}-{ensemble.partitions}"
            if ensemble.kind == RANDOM
            else f"dataset-{ensemble.partitions}"
        )

    def engine(self, *words):
        done = subprocess.run(
            [self.args.bin / "skerry-engine", *map(str, words)], capture_output=True, text=True
        )
        if done.returncode != 0:
            sys.exit(f"skerry-engine {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def ingest(self, ensemble):
        source, more = self.work / "images", []
        if not source.exists():
            partial = self.work / "images.partial"
            write_unlabelled(self.args.dataset, self.images_folder, partial)
            partial.rename(source)
        if ensemble.kind == RANDOM:
            features = self.work / "random.npy"
            np.save(
                features,
                np.random.default_rng(0)
                .standard_normal((len(self.training), 8))
                .astype(np.float32),
            )
            more = ["--features", features]
        self.engine(
            "ingest",
            source,
            "--out",
            self.dataset(ensemble),
            "--partitions",
            ensemble.partitions,
            *more,
        )

    def train(self, ensemble, point, expert, output):
        """Trains to the next point; expert None is the router.

        The state to resume from lies beside the points, the last one only.
        """
        router = expert is None
        width, depth, heads = self.shape
        steps = self.router_steps() if router else ensemble.steps
        state = (
            self.work
            / f"seed-{ensemble.seed}"
            / ensemble.name
            / ("router.state" if router else f"expert-{expert}.state")
        )
        options = {
            "dataset": self.dataset(ensemble),
            "out": state,
            "seed": ensemble.seed,
            "steps": steps,
            "stop-after": steps * point // self.args.points,
            "width": self.router_width if router else width,
            "depth": depth,
            "heads": heads,
            "patch-size": self.args.patch_size,
            "batch-size": self.args.batch_size // (1 if router else ensemble.partitions),
            "learning-rate": self.args.router_rate if router else ensemble.rate,
            "schedule": self.args.schedule,
            "warmup-steps": steps // 20,
            "clip": self.args.clip,
            "ema": self.args.ema,
            "kernels": "fast",
            "precision": self.args.precision,
            "state": self.args.state,
            "threads": self.args.threads,
            "device": self.args.device,
        }
        options |= {"resume": state} if point > 1 else {}
        state.parent.mkdir(parents=True, exist_ok=True)
        self.engine(
            "train",
            "--standalone",
            *(["--router"] if router else ["--expert", expert]),
            *(["--weight-norm"] if self.args.weight_norm and not router else []),
            *(word for key, value in options.items() for word in (f"--{key}", value)),
        )
        self.frame(ensemble, self.folder(ensemble, point))
        keep_averaged(state, output, router)

    def frame(self, ensemble, folder):
        """What an ensemble folder has beside weights."""
        dataset = self.dataset(ensemble).resolve()
        index, (width, depth, heads) = (
            json.loads((dataset / "dataset.json").read_text()),
            self.shape,
        )
        (folder / "router").mkdir(parents=True, exist_ok=True)
        for name in ["router", *(f"partition-{k}" for k in range(ensemble.partitions))]:
            link = folder / "router" / f"{name}.safetensors"
            link.unlink(missing_ok=True)
            link.symlink_to(dataset / link.name)
        write_json(
            folder / "ensemble.json",
            {
                "format": 1,
                "classes": index["classes"],
                "image_size": index["image_size"],
                "channels": index["channels"],
                "experts": [{"index": k} for k in range(ensemble.partitions)],
                "model": {
                    "width": width,
                    "depth": depth,
                    "heads": heads,
                    "patch_size": self.args.patch_size,
                },
            },
        )

    # What is measured.

    def distance(self, ensemble, point, arm, output):
        _, route, router = split_arm(arm)
        pictures = output.with_suffix(".pictures")
        shutil.rmtree(pictures, ignore_errors=True)
        began = time.monotonic()
        self.engine(
            "sample",
            self.folder(ensemble, point),
            "-n",
            self.args.samples,
            "--steps",
            self.args.solver_steps,
            "--solver",
            "euler",
            "--labels",
            "none",
            "--seed",
            ensemble.seed,
            "--route",
            route,
            *(["--router", router] if router else []),
            "--each",
            pictures,
            "--batch-size",
            self.args.sample_batch,
            "--threads",
            self.args.threads,
            "--device",
            self.args.device,
        )
        seconds = time.monotonic() - began
        images = read_pngs(pictures)
        apart = nearest(images[:NEAREST_OF], self.training, self.device)
        write_json(
            output,
            {
                "frechet": frechet(self.classifier.features(images), self.held_out_features),
                "nearest_median": float(np.median(apart)),
                "nearest_5th": float(np.percentile(apart, 5)),
                "samples": len(images),
                "sampling_seconds": round(seconds, 1),
            },
        )
        shutil.rmtree(pictures)

    def velocity(self, ensemble, point, output):
        folder = self.folder(ensemble, point)
        learned = folder / "router" / "learned.safetensors"
        write_json(
            output,
            json.loads(
                self.engine(
                    "evaluate",
                    self.dataset(ensemble),
                    "--velocity",
                    folder,
                    *(["--learned", learned] if learned.exists() else []),
                    "--threads",
                    self.args.threads,
                    "--device",
                    self.args.device,
                    "-o",
                    "json",
                )
            ),
        )

    def floor(self, output):
        """What a perfect sampler would reach: as many images of training in the samples' place."""
        rows = np.random.default_rng(0).permutation(len(self.training))[: self.args.samples]
        apart = nearest(self.held_out[:NEAREST_OF], self.training, self.device)
        write_json(
            output,
            {
                "frechet": frechet(
                    self.classifier.features(self.training[rows]), self.held_out_features
                ),
                "nearest_median": float(np.median(apart)),
                "nearest_5th": float(np.percentile(apart, 5)),
                "accuracy": self.classifier.about["accuracy"],
            },
        )

    # The tasks, in an order in which each finds what it needs.

    def result(self, ensemble, point, name):
        return (
            self.work
            / f"seed-{ensemble.seed}"
            / "measured"
            / f"{ensemble.name}-{name}-{point}.json"
        )

    def training_tasks(self, ensemble, with_router):
        dataset = self.dataset(ensemble)
        yield Task(
            f"ingest {dataset.name}", dataset / "dataset.json", 0, lambda: self.ingest(ensemble)
        )
        each = TRAINING_PASSES * self.args.batch_size / self.args.points
        for point in range(1, 1 + self.args.points):
            folder = self.folder(ensemble, point)
            wanted = {
                k: (
                    folder / f"expert_{k}" / "diffusion_pytorch_model.safetensors",
                    each * ensemble.steps * self.cost / ensemble.partitions,
                )
                for k in range(ensemble.partitions)
            }
            if with_router:
                wanted[None] = (
                    folder / "router" / "learned.safetensors",
                    each * self.router_steps() * self.router_cost,
                )
            for expert, (output, cost) in wanted.items():
                what = "router" if expert is None else f"expert {expert}"
                yield Task(
                    f"seed {ensemble.seed}: train {ensemble.name}, {what}, {point} of "
                    f"{self.args.points}",
                    output,
                    cost,
                    lambda point=point, expert=expert, output=output: self.train(
                        ensemble, point, expert, output
                    ),
                )

    def distance_task(self, ensemble, point, arm):
        _, route, _ = split_arm(arm)
        cost = (
            self.args.samples
            * self.args.solver_steps
            * (ROUTES[route] or ensemble.partitions)
            * self.cost
        )
        output = self.result(ensemble, point, arm)
        return Task(
            f"seed {ensemble.seed}: sample {ensemble.name}, {arm}, {point} of {self.args.points}",
            output,
            cost,
            lambda: self.distance(ensemble, point, arm, output),
        )

    def measured_at(self, arm):
        """The points of training at which an arm is measured."""
        points = range(1, 1 + self.args.points)
        return points if arm == MONOLITH or arm in self.args.on_the_way else points[-1:]

    def measuring_tasks(self, ensemble, arms):
        for point in range(1, 1 + self.args.points):
            if point == self.args.points or asks_learned(
                arms
            ):  # on the way it tells of the learned router alone
                output = self.result(ensemble, point, "velocity")
                yield Task(
                    f"seed {ensemble.seed}: velocity of {ensemble.name}, {point} of "
                    f"{self.args.points}",
                    output,
                    0,
                    lambda point=point, output=output: self.velocity(ensemble, point, output),
                )
            for arm in arms:
                if point in self.measured_at(arm):
                    yield self.distance_task(ensemble, point, arm)

    def rate_tasks(self):
        """Those that say which learning rate suits the monolith; the first seed's."""
        yield Task(
            "the floor", self.work / "floor.json", 0, lambda: self.floor(self.work / "floor.json")
        )
        for rate in self.args.rates:
            ensemble = self.monolith(self.args.seeds[0], rate)
            yield from self.training_tasks(ensemble, with_router=False)
            yield self.distance_task(ensemble, self.args.points, MONOLITH)

    def reached_by_rate(self):
        """The monolith's distance with each learning rate."""
        paths = {
            rate: self.result(self.monolith(self.args.seeds[0], rate), self.args.points, MONOLITH)
            for rate in self.args.rates
        }
        return {rate: read_json(path)["frechet"] for rate, path in paths.items()}

    def ensembles(self, seed, rate):
        """With the arms of each."""
        found = {self.monolith(seed, rate): [MONOLITH]}
        for partitions in self.args.partitions:
            for kind in (CLUSTERS, RANDOM):
                arms = [arm for arm in self.args.arms if split_arm(arm)[0] == kind]
                if arms:
                    found[self.experts(seed, kind, partitions, rate)] = arms
        return found

    def other_tasks(self, rate):
        for seed in self.args.seeds:
            for ensemble, arms in self.ensembles(seed, rate).items():
                yield from self.training_tasks(ensemble, asks_learned(arms))
                yield from self.measuring_tasks(ensemble, arms)
