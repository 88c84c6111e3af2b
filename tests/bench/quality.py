#!/usr/bin/env python3
"""./dev bench quality: K experts against one model of the same shape that cost as much to train, by samples and by velocity.

The monolith's batch is shared out among the experts, who take as many steps. It gets the best of several learning rates, by the
figure it is judged by, and so many steps more as the learned router's training costs. All models are unlabelled. Samples
are compared with held-out images by their Fréchet distance in the features of a fixed classifier (classifiers/), and with the
training images by the distance to the nearest. What is finished is kept in --work: the same command goes on there.
The last line is JSON. Arms:

  monolith                         one model
  ancestral                        of each sample one expert, drawn at the start; needs no router
  top1, top2, full                 the analytic router's best experts, or all, mixed at every step
  learned-top1, -top2, -full       the same with the learned router
  random-ancestral, -full          the images shared out at random instead of by likeness; full by the analytic router
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

try:
    import numpy as np
    from quality_measure import CLASSIFIERS, Classifier, frechet, nearest, read_images, read_pngs, write_unlabelled
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}; ./dev setup installs it beside LibTorch")
    sys.exit(77)

# At 28² in patches of 4: .7, 4.2 and 9.8 million parameters.
MODELS = {"tiny": (32, 2, 2), "sketch": (96, 4, 4), "small": (192, 6, 3), "large": (256, 8, 4)}  # width, depth, heads
IMAGES = {"fashion-mnist": "/usr/share/datasets/fashion-mnist", "cifar-10": None}
ROUTES = {"ancestral": 1, "top1": 1, "top2": 2, "full": None}  # experts that a step asks; None: all
ARMS = ["monolith", *ROUTES, "learned-top1", "learned-top2", "learned-full", "random-ancestral", "random-full"]
MONOLITH, CLUSTERS, RANDOM = "monolith", "clusters", "random"
TRAINING_PASSES = 3  # a training step costs as much as so many forward passes
ROUTER_RATE = 5e-4
# What the kept results depend on; seeds, K and arms may be added.
SETTINGS = ["dataset", "model", "patch_size", "steps", "batch_size", "learning_rate", "monolith_rates", "router_share", "schedule", "ema",
            "clip", "precision", "samples", "solver_steps", "points"]


@dataclasses.dataclass
class Task:
    label: str
    output: pathlib.Path  # there when it is done
    cost: float           # in multiply-adds
    make: object          # called to write the output


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
        return f"{MONOLITH}-{self.rate:g}" if self.kind == MONOLITH else f"{self.kind}-{self.partitions}"


def forward_cost(width, depth, tokens):
    """Multiply-adds of one image through a DiT; embedding and last layer are left out."""
    return depth * (12 * tokens * width * width + 2 * tokens * tokens * width + 6 * width * width)


def split_arm(arm):
    """The ensemble, the route and the router of an arm."""
    kind, _, route = arm.rpartition("-")
    if arm == MONOLITH:
        return MONOLITH, "ancestral", None
    return RANDOM if kind == RANDOM else CLUSTERS, route, "learned" if kind == "learned" else "analytic"


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1))
    os.replace(partial, path)


def keep_averaged(checkpoint, path, router):
    """The mean weights of a checkpoint as a file of an ensemble folder, where an expert's have no prefix."""
    data = checkpoint.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, body, kept = json.loads(data[8:start]), bytearray(), {}
    for name, tensor in header.items():
        if name == "__metadata__":
            kept[name] = tensor
        elif name.startswith("ema/"):
            begin, end = tensor["data_offsets"]
            kept[name if router else name[4:]] = tensor | {"data_offsets": [len(body), len(body) + end - begin]}
            body += data[start + begin:start + end]
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
        self.device = f"cuda:{args.device}" if args.device >= 0 and has_cuda() else "cpu"
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
        return Ensemble(seed, MONOLITH, 1, rate, round(self.args.steps / (1 - self.args.router_share)))

    def experts(self, seed, kind, partitions):
        return Ensemble(seed, kind, partitions, self.args.learning_rate, self.args.steps)

    def router_steps(self):
        share = self.args.router_share
        return max(self.args.points, round(share / (1 - share) * self.args.steps * self.cost / self.router_cost))

    def folder(self, ensemble, point):
        return self.work / f"seed-{ensemble.seed}" / ensemble.name / f"point-{point}"

    def dataset(self, ensemble):
        return self.work / (f"{ensemble.kind}-{ensemble.partitions}" if ensemble.kind == RANDOM else f"dataset-{ensemble.partitions}")

    def engine(self, *words):
        done = subprocess.run([self.args.bin / "skerry-engine", *map(str, words)], capture_output=True, text=True)
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
            np.save(features, np.random.default_rng(0).standard_normal((len(self.training), 8)).astype(np.float32))
            more = ["--features", features]
        self.engine("ingest", source, "--out", self.dataset(ensemble), "--partitions", ensemble.partitions, *more)

    def train(self, ensemble, point, expert, output):
        """One point further; expert None is the router. What training goes on from lies beside the points, the last alone."""
        router = expert is None
        width, depth, heads = self.shape
        steps = self.router_steps() if router else ensemble.steps
        state = self.work / f"seed-{ensemble.seed}" / ensemble.name / ("router.state" if router else f"expert-{expert}.state")
        options = {"dataset": self.dataset(ensemble), "out": state, "seed": ensemble.seed, "steps": steps,
                   "stop-after": steps * point // self.args.points, "width": self.router_width if router else width, "depth": depth,
                   "heads": heads, "patch-size": self.args.patch_size,
                   "batch-size": self.args.batch_size // (1 if router else ensemble.partitions),
                   "learning-rate": ROUTER_RATE if router else ensemble.rate, "schedule": self.args.schedule, "warmup-steps": steps // 20,
                   "clip": self.args.clip, "ema": self.args.ema, "kernels": "fast", "precision": self.args.precision,
                   "threads": self.args.threads, "device": self.args.device}
        options |= {"resume": state} if point > 1 else {}
        state.parent.mkdir(parents=True, exist_ok=True)
        self.engine("train", "--standalone", *(["--router"] if router else ["--expert", expert]),
                    *(word for key, value in options.items() for word in (f"--{key}", value)))
        self.frame(ensemble, self.folder(ensemble, point))
        keep_averaged(state, output, router)

    def frame(self, ensemble, folder):
        """What an ensemble folder has beside weights."""
        dataset = self.dataset(ensemble).resolve()
        index, (width, depth, heads) = json.loads((dataset / "dataset.json").read_text()), self.shape
        (folder / "router").mkdir(parents=True, exist_ok=True)
        for name in ["router", *(f"partition-{k}" for k in range(ensemble.partitions))]:
            link = folder / "router" / f"{name}.safetensors"
            link.unlink(missing_ok=True)
            link.symlink_to(dataset / link.name)
        write_json(folder / "ensemble.json", {
            "format": 1, "classes": index["classes"], "image_size": index["image_size"], "channels": index["channels"],
            "experts": [{"index": k} for k in range(ensemble.partitions)],
            "model": {"width": width, "depth": depth, "heads": heads, "patch_size": self.args.patch_size}})

    # What is measured.

    def distance(self, ensemble, point, arm, output):
        _, route, router = split_arm(arm)
        pictures = self.work / "pictures.partial"
        shutil.rmtree(pictures, ignore_errors=True)
        began = time.monotonic()
        self.engine("sample", self.folder(ensemble, point), "-n", self.args.samples, "--steps", self.args.solver_steps, "--solver", "euler",
                    "--labels", "none", "--seed", ensemble.seed, "--route", route, *(["--router", router] if router else []),
                    "--each", pictures, "--batch-size", self.args.sample_batch, "--threads", self.args.threads, "--device", self.args.device)
        seconds = time.monotonic() - began
        images = read_pngs(pictures)
        apart = nearest(images, self.training, self.device)
        write_json(output, {"frechet": frechet(self.classifier.features(images), self.held_out_features),
                            "nearest_median": float(np.median(apart)), "nearest_5th": float(np.percentile(apart, 5)),
                            "samples": len(images), "sampling_seconds": round(seconds, 1)})
        shutil.rmtree(pictures)

    def velocity(self, ensemble, point, output):
        folder = self.folder(ensemble, point)
        learned = folder / "router" / "learned.safetensors"
        write_json(output, json.loads(self.engine(
            "evaluate", self.dataset(ensemble), "--velocity", folder, *(["--learned", learned] if learned.exists() else []),
            "--threads", self.args.threads, "--device", self.args.device, "-o", "json")))

    def floor(self, output):
        """What a perfect sampler would reach: as many images of training in the samples' place."""
        rows = np.random.default_rng(0).permutation(len(self.training))[:self.args.samples]
        apart = nearest(self.held_out, self.training, self.device)
        write_json(output, {"frechet": frechet(self.classifier.features(self.training[rows]), self.held_out_features),
                            "nearest_median": float(np.median(apart)), "nearest_5th": float(np.percentile(apart, 5)),
                            "accuracy": self.classifier.about["accuracy"]})

    # The tasks, in an order in which each finds what it needs.

    def result(self, ensemble, point, name):
        return self.work / f"seed-{ensemble.seed}" / "measured" / f"{ensemble.name}-{name}-{point}.json"

    def training_tasks(self, ensemble, with_router):
        dataset = self.dataset(ensemble)
        yield Task(f"ingest {dataset.name}", dataset / "dataset.json", 0, lambda: self.ingest(ensemble))
        each = TRAINING_PASSES * self.args.batch_size / self.args.points
        for point in range(1, 1 + self.args.points):
            folder = self.folder(ensemble, point)
            wanted = {k: (folder / f"expert_{k}" / "diffusion_pytorch_model.safetensors",
                          each * ensemble.steps * self.cost / ensemble.partitions) for k in range(ensemble.partitions)}
            if with_router:
                wanted[None] = folder / "router" / "learned.safetensors", each * self.router_steps() * self.router_cost
            for expert, (output, cost) in wanted.items():
                what = "router" if expert is None else f"expert {expert}"
                yield Task(f"seed {ensemble.seed}: train {ensemble.name}, {what}, {point} of {self.args.points}", output, cost,
                           lambda point=point, expert=expert, output=output: self.train(ensemble, point, expert, output))

    def distance_task(self, ensemble, point, arm):
        _, route, _ = split_arm(arm)
        cost = self.args.samples * self.args.solver_steps * (ROUTES[route] or ensemble.partitions) * self.cost
        output = self.result(ensemble, point, arm)
        return Task(f"seed {ensemble.seed}: sample {ensemble.name}, {arm}, {point} of {self.args.points}", output, cost,
                    lambda: self.distance(ensemble, point, arm, output))

    def measuring_tasks(self, ensemble, arms):
        for point in range(1, 1 + self.args.points):
            output = self.result(ensemble, point, "velocity")
            yield Task(f"seed {ensemble.seed}: velocity of {ensemble.name}, {point} of {self.args.points}", output, 0,
                       lambda point=point, output=output: self.velocity(ensemble, point, output))
            for arm in arms:
                yield self.distance_task(ensemble, point, arm)

    def rate_tasks(self):
        """Those that say which learning rate suits the monolith; the first seed's."""
        yield Task("the floor", self.work / "floor.json", 0, lambda: self.floor(self.work / "floor.json"))
        for rate in self.args.monolith_rates:
            ensemble = self.monolith(self.args.seeds[0], rate)
            yield from self.training_tasks(ensemble, with_router=False)
            yield self.distance_task(ensemble, self.args.points, MONOLITH)

    def best_rate(self):
        def reached(rate):
            return read_result(self.result(self.monolith(self.args.seeds[0], rate), self.args.points, MONOLITH))["frechet"]
        return min(self.args.monolith_rates, key=reached)

    def ensembles(self, seed, rate):
        """With the arms of each."""
        found = {self.monolith(seed, rate): [MONOLITH]}
        for partitions in self.args.partitions:
            for kind in (CLUSTERS, RANDOM):
                arms = [arm for arm in self.args.arms if split_arm(arm)[0] == kind]
                if arms:
                    found[self.experts(seed, kind, partitions)] = arms
        return found

    def other_tasks(self, rate):
        for seed in self.args.seeds:
            for ensemble, arms in self.ensembles(seed, rate).items():
                yield from self.training_tasks(ensemble, any(arm.startswith("learned") for arm in arms))
                yield from self.measuring_tasks(ensemble, arms)


class Runner:
    """Does what is not done yet, and says how long the rest may take by what was done since it began."""

    def __init__(self, minutes):
        self.start, self.done, self.limit = time.monotonic(), 0.0, 60 * minutes

    def run(self, tasks, cost_after):
        tasks = waiting(tasks)
        for place, task in enumerate(tasks):
            spent = time.monotonic() - self.start
            left = cost_after + sum(each.cost for each in tasks[place:])
            guess = f", about {spent * left / self.done / 60:.0f} min left" if self.done else ""
            if spent > self.limit:
                sys.exit(f"[{spent / 60:.0f} min{guess}] stopped by --minutes; the same command goes on with: {task.label}")
            print(f"[{spent / 60:.0f} min{guess}] {task.label}", flush=True)
            task.make()
            self.done += task.cost


def waiting(tasks):
    return list({task.output: task for task in tasks if not task.output.exists()}.values())


def read_result(path):
    return json.loads(path.read_text())


def has_cuda():
    import torch
    return torch.cuda.is_available()


def mean(results, key):
    return statistics.mean(result[key] for result in results)


def summary(comparison, rate):
    """Of each arm the mean over the seeds; the name of an arm of K experts is K/arm."""
    args, arms = comparison.args, {}
    for seed in args.seeds:
        for ensemble, names in comparison.ensembles(seed, rate).items():
            for name in names:
                key = name if name == MONOLITH else f"{ensemble.partitions}/{name}"
                results = [read_result(comparison.result(ensemble, point, name)) for point in range(1, 1 + args.points)]
                velocity = read_result(comparison.result(ensemble, args.points, "velocity"))
                arms.setdefault(key, []).append((results, velocity))
    monolith = statistics.mean(results[-1]["frechet"] for results, _ in arms[MONOLITH])
    found = {}
    for key, runs in arms.items():
        last = [results[-1] for results, _ in runs]
        found[key] = {"frechet": round(mean(last, "frechet"), 3), "ratio": round(mean(last, "frechet") / monolith, 3),
                      "by_seed": [round(each["frechet"], 3) for each in last],
                      "over_training": [round(mean([results[point] for results, _ in runs], "frechet"), 3) for point in range(args.points)],
                      "nearest_median": round(mean(last, "nearest_median"), 2), "nearest_5th": round(mean(last, "nearest_5th"), 2),
                      "sampling_seconds": round(mean(last, "sampling_seconds"), 1), "velocity": velocity_of(key, [v for _, v in runs])}
    return found


def velocity_of(key, measured):
    """Held-out velocity error by t; an ancestral sample's expert is that of the image's own partition. `evaluate` knows no
    top-2 and no learned router."""
    column = {"monolith": "full", "ancestral": "own", "top1": "top1", "full": "full", "random-ancestral": "own", "random-full": "full"}
    name = column.get(key.rpartition("/")[2])
    levels = [each["velocity"]["levels"] for each in measured]
    return {} if name is None else {str(at[0]["t"]): round(mean(at, name), 4) for at in zip(*levels)}


def routers(comparison):
    """Mean cross-entropy of each on the test half, by K."""
    args, found = comparison.args, {}
    for partitions in args.partitions:
        paths = [comparison.result(comparison.experts(seed, CLUSTERS, partitions), args.points, "velocity") for seed in args.seeds]
        measured = [result for result in map(read_result, filter(pathlib.Path.exists, paths)) if "learned_router" in result]
        if measured:
            found[str(partitions)] = {"analytic": round(mean([each["router"] for each in measured], "mean_cross_entropy"), 4),
                                      "learned": round(mean([each["learned_router"] for each in measured], "mean_cross_entropy"), 4)}
    return found


def print_table(arms, floor):
    print(f"\nfloor {floor['frechet']:.2f} (images of training in the samples' place); nearest image of training to a held-out one "
          f"{floor['nearest_median']:.1f} (5 %: {floor['nearest_5th']:.1f})")
    print(f"{'arm':20} {'Fréchet':>8} {'ratio':>6} {'nearest':>8} {'5 %':>6}   velocity error by t   over training")
    for name, arm in arms.items():
        velocity = " ".join(f"{error:.4f}" for error in arm["velocity"].values())
        print(f"{name:20} {arm['frechet']:8.2f} {arm['ratio']:6.3f} {arm['nearest_median']:8.1f} {arm['nearest_5th']:6.1f}   {velocity:20}   "
              + " ".join(f"{each:.1f}" for each in arm["over_training"]))


def numbers(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def arm_names(text):
    names = text.split(",")
    if unknown := set(names) - set(ARMS):
        raise argparse.ArgumentTypeError(f"no arm {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    return names


def parse(words):
    parser = argparse.ArgumentParser(prog="./dev bench quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help=argparse.SUPPRESS)
    parser.add_argument("--dataset", choices=IMAGES, default="fashion-mnist")
    parser.add_argument("--images", help="folder of its files; for cifar-10 five tars, of which train-000004.tar is held out")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for what is finished")
    parser.add_argument("--partitions", type=numbers(int), default=[4, 8], help="K, as 4,8")
    parser.add_argument("--arms", type=arm_names, default=ARMS, help="those of the experts to measure, as ancestral,top1")
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--patch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4000, help="of each expert")
    parser.add_argument("--batch-size", type=int, default=128, help="of the monolith; K experts share it")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of the experts")
    parser.add_argument("--monolith-rates", type=numbers(float), default=[5e-4, 1e-3, 2e-3])
    parser.add_argument("--router-share", type=float, default=0.04, help="of the cost of training, for the learned router")
    parser.add_argument("--schedule", default="cosine")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--clip", type=float, default=1)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--points", type=int, default=4, help="so often on the way all is measured")
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--solver-steps", type=int, default=50, help="of Euler's method")
    parser.add_argument("--sample-batch", type=int, default=100, help="images at once; more on a card")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--device", type=int, default=0, help="CUDA device where there is one; -1: the CPU")
    args = parser.parse_args(words)
    args.images = args.images or IMAGES[args.dataset]
    if args.images is None:
        parser.error(f"{args.dataset} needs --images DIR")
    if any(args.batch_size % k for k in args.partitions):
        parser.error("--batch-size must be a multiple of each of --partitions")
    return args


def keep_settings(args):
    """Results of other settings are not mixed in."""
    path, now = args.work / "settings.json", {name: getattr(args, name) for name in SETTINGS}
    if not path.exists():
        return write_json(path, now)
    before = read_result(path)
    if changed := [name for name in SETTINGS if before.get(name) != now[name]]:
        sys.exit(f"{args.work} holds a comparison with another {', '.join(changed)}: choose another --work, or remove it")


def main():
    args = parse(sys.argv[1:])
    keep_settings(args)
    import torch
    torch.set_num_threads(args.threads)
    comparison, runner = Comparison(args), Runner(args.minutes)
    first = {task.output for task in comparison.rate_tasks()}
    rest = waiting(comparison.other_tasks(args.monolith_rates[0]))  # which rate is best hardly changes what they cost
    runner.run(comparison.rate_tasks(), cost_after=sum(task.cost for task in rest if task.output not in first))
    rate = comparison.best_rate()
    print(f"the monolith's learning rate: {rate:g}", flush=True)
    runner.run(comparison.other_tasks(rate), cost_after=0)
    arms, floor = summary(comparison, rate), read_result(args.work / "floor.json")
    print_table(arms, floor)
    settings = {name: getattr(args, name) for name in SETTINGS}
    ratios = {str(k): arms[f"{k}/ancestral"]["ratio"] for k in args.partitions if f"{k}/ancestral" in arms}
    print(json.dumps({"bench": "quality", **settings, "seeds": args.seeds, "floor": floor, "monolith_rate": rate,
                      "router_cross_entropy": routers(comparison), "arms": arms, "ratio": ratios}))


if __name__ == "__main__":
    main()
