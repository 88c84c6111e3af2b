#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev bench quality: K experts against one model of the same shape and training cost.

Compares samples and velocity. The monolith's batch is divided among the experts, who take as many
steps. The monolith gets the best of several learning rates, by the figure that judges it. The
experts use the same rate unless an option sets another. The monolith also gets as many more steps
as the learned router's training costs. All models are unlabelled.

Samples are compared with held-out images by their Fréchet distance in the features of a fixed
classifier (classifiers/), and with the training images by the distance to the nearest. Finished
work is kept in --work: the same command resumes there. The last line is JSON. Arms:

  monolith                         one model
  ancestral                        one expert a sample, drawn at the start; needs no router
  top1, top2, full                 the analytic router's best experts, or all, mixed at every step
  learned-top1, -top2, -full       the same with the learned router
  random-ancestral, -full          images divided at random instead of by likeness; full by the
                                   analytic router
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

try:
    import torch
    from quality_comparison import (
        ARMS,
        CLUSTERS,
        MODELS,
        MONOLITH,
        Comparison,
        read_json,
        write_json,
    )
    from quality_curves import draw
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}; ./dev setup installs it beside LibTorch")
    sys.exit(77)

IMAGES = {"fashion-mnist": "/usr/share/datasets/fashion-mnist", "cifar-10": None}
# What the kept results depend on; seeds, K, learning rates and arms may be
# added.
SETTINGS = [
    "dataset",
    "model",
    "patch_size",
    "steps",
    "batch_size",
    "router_share",
    "router_rate",
    "schedule",
    "ema",
    "clip",
    "precision",
    "state",
    "weight_norm",
    "samples",
    "solver_steps",
    "points",
]


class Runner:
    """Runs the unfinished tasks, and estimates the remaining time from those done so far."""

    def __init__(self, minutes):
        self.start, self.done, self.limit = time.monotonic(), 0.0, 60 * minutes

    def run(self, tasks, cost_after):
        tasks = waiting(tasks)
        for place, task in enumerate(tasks):
            spent = time.monotonic() - self.start
            left = cost_after + sum(each.cost for each in tasks[place:])
            guess = f", about {spent * left / self.done / 60:.0f} min left" if self.done else ""
            if spent > self.limit:
                sys.exit(
                    f"[{spent / 60:.0f} min{guess}] stopped by --minutes; the same command goes "
                    f"on with: {task.label}"
                )
            print(f"[{spent / 60:.0f} min{guess}] {task.label}", flush=True)
            task.make()
            self.done += task.cost


def waiting(tasks):
    return list({task.output: task for task in tasks if not task.output.exists()}.values())


def mean(results, key):
    return statistics.mean(result[key] for result in results)


def summary(comparison, rate):
    """Of each arm the mean over the seeds; the name of an arm of K experts is K/arm."""
    args, arms = comparison.args, {}
    for seed in args.seeds:
        for ensemble, names in comparison.ensembles(seed, rate).items():
            for name in names:
                key = name if name == MONOLITH else f"{ensemble.partitions}/{name}"
                results = [
                    read_json(comparison.result(ensemble, point, name))
                    for point in comparison.measured_at(name)
                ]
                velocity = read_json(comparison.result(ensemble, args.points, "velocity"))
                arms.setdefault(key, []).append((results, velocity))
    monolith = statistics.mean(results[-1]["frechet"] for results, _ in arms[MONOLITH])
    found = {}
    for key, runs in arms.items():
        last = [results[-1] for results, _ in runs]
        found[key] = {
            "frechet": round(mean(last, "frechet"), 3),
            "ratio": round(mean(last, "frechet") / monolith, 3),
            "by_seed": [round(each["frechet"], 3) for each in last],
            "over_training": [
                round(mean([results[point] for results, _ in runs], "frechet"), 3)
                for point in range(len(runs[0][0]))
            ],
            "nearest_median": round(mean(last, "nearest_median"), 2),
            "nearest_5th": round(mean(last, "nearest_5th"), 2),
            "sampling_seconds": round(mean(last, "sampling_seconds"), 1),
            "velocity": velocity_of(key, [v for _, v in runs]),
        }
    return found


def velocity_of(key, measured):
    """Held-out velocity error by t; an ancestral sample's expert is that of the image's own
    partition.

    `evaluate` supports neither top-2 nor a learned router.
    """
    column = {
        "monolith": "full",
        "ancestral": "own",
        "top1": "top1",
        "full": "full",
        "random-ancestral": "own",
        "random-full": "full",
    }
    name = column.get(key.rpartition("/")[2])
    levels = [each["velocity"]["levels"] for each in measured]
    return (
        {} if name is None else {str(at[0]["t"]): round(mean(at, name), 4) for at in zip(*levels)}
    )


def routers(comparison, rate):
    """Mean cross-entropy of each on the test half, by K.

    For the learned one, also at each point of its training.
    """
    args, found = comparison.args, {}
    for partitions in args.partitions:

        def at(point):
            paths = [
                comparison.result(
                    comparison.experts(seed, CLUSTERS, partitions, rate), point, "velocity"
                )
                for seed in args.seeds
            ]
            return [
                result
                for result in map(read_json, filter(pathlib.Path.exists, paths))
                if "learned_router" in result
            ]

        if measured := at(args.points):
            found[str(partitions)] = {
                "analytic": round(
                    mean([each["router"] for each in measured], "mean_cross_entropy"), 4
                ),
                "learned": [
                    round(
                        mean([each["learned_router"] for each in at(point)], "mean_cross_entropy"),
                        4,
                    )
                    for point in range(1, 1 + args.points)
                ],
            }
    return found


def print_table(arms, floor):
    print(
        f"\nfloor {floor['frechet']:.2f} (images of training in the samples' place); nearest "
        "image of training to a held-out one "
        f"{floor['nearest_median']:.1f} (5 %: {floor['nearest_5th']:.1f})"
    )
    print(
        f"{'arm':20} {'Fréchet':>8} {'ratio':>6} {'nearest':>8} {'5 %':>6}   velocity error by t  "
        " over training"
    )
    for name, arm in arms.items():
        velocity = " ".join(f"{error:.4f}" for error in arm["velocity"].values())
        print(
            f"{name:20} {arm['frechet']:8.2f} {arm['ratio']:6.3f} {arm['nearest_median']:8.1f} "
            f"{arm['nearest_5th']:6.1f}   {velocity:20}   "
            + " ".join(f"{each:.1f}" for each in arm["over_training"])
        )


def numbers(kind):
    return lambda text: [kind(word) for word in text.split(",")]


def arm_names(text):
    names = text.split(",")
    if unknown := set(names) - set(ARMS):
        raise argparse.ArgumentTypeError(
            f"no arm {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}"
        )
    return names


def parse(words):
    parser = argparse.ArgumentParser(
        prog="./dev bench quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help=argparse.SUPPRESS
    )
    parser.add_argument("--dataset", choices=IMAGES, default="fashion-mnist")
    parser.add_argument(
        "--images",
        help="folder of its files; for cifar-10 five tars, of which train-000004.tar is held out",
    )
    parser.add_argument(
        "--work", type=pathlib.Path, required=True, help="folder for what is finished"
    )
    parser.add_argument("--partitions", type=numbers(int), default=[4, 8], help="K, as 4,8")
    parser.add_argument(
        "--arms",
        type=arm_names,
        default=ARMS,
        help="those of the experts to measure, as ancestral,top1",
    )
    parser.add_argument(
        "--on-the-way",
        type=arm_names,
        default=ARMS,
        help="those to measure at each of --points; the others at the last alone",
    )
    parser.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--patch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4000, help="of each expert")
    parser.add_argument(
        "--batch-size", type=int, default=128, help="of the monolith; K experts share it"
    )
    parser.add_argument(
        "--rates",
        type=numbers(float),
        default=[5e-4, 1e-3, 2e-3],
        help="learning rates of the monolith, who gets the best",
    )
    parser.add_argument(
        "--learning-rate", type=float, help="of the experts; without it the monolith's"
    )
    parser.add_argument(
        "--router-share",
        type=float,
        default=0.04,
        help="of the cost of training, for the learned router",
    )
    parser.add_argument("--router-rate", type=float, default=5e-4, help="its learning rate")
    parser.add_argument("--schedule", default="cosine")
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--clip", type=float, default=1)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--state", default="full", help="full or lean")
    parser.add_argument(
        "--weight-norm",
        action="store_true",
        help="hold the rows of attention and MLP at one length; not the router's",
    )
    parser.add_argument("--points", type=int, default=4, help="so often on the way all is measured")
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--solver-steps", type=int, default=50, help="of Euler's method")
    parser.add_argument(
        "--sample-batch", type=int, default=100, help="images at once; more on a card"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--curves",
        type=pathlib.Path,
        help="picture (PNG) of the figures over training, by t and of the routers",
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin nothing new after so long"
    )
    parser.add_argument(
        "--device", type=int, default=0, help="CUDA device where there is one; -1: the CPU"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help=argparse.SUPPRESS
    )  # of ./dev: whether the options are right
    args = parser.parse_args(words)
    args.images = args.images or IMAGES[args.dataset]
    if args.images is None:
        parser.error(f"{args.dataset} needs --images DIR")
    if any(args.batch_size % k for k in args.partitions):
        parser.error("--batch-size must be a multiple of each of --partitions")
    if args.dry_run:
        sys.exit()
    return args


def keep_settings(args):
    """Results of other settings are not mixed in."""
    path, now = args.work / "settings.json", {name: getattr(args, name) for name in SETTINGS}
    if not path.exists():
        return write_json(path, now)
    before = read_json(path)
    before.setdefault("weight_norm", False)  # older than the option
    if changed := [name for name in SETTINGS if before.get(name) != now[name]]:
        sys.exit(
            f"{args.work} holds a comparison with another {', '.join(changed)}: choose another "
            "--work, or remove it"
        )


def main():
    args = parse(sys.argv[1:])
    keep_settings(args)
    torch.set_num_threads(args.threads)
    comparison, runner = Comparison(args), Runner(args.minutes)
    first = {task.output for task in comparison.rate_tasks()}
    rest = waiting(
        comparison.other_tasks(args.rates[0])
    )  # which rate is best hardly changes what they cost
    runner.run(
        comparison.rate_tasks(),
        cost_after=sum(task.cost for task in rest if task.output not in first),
    )
    reached = comparison.reached_by_rate()
    rate = min(reached, key=reached.get)
    print(
        "the monolith by learning rate:",
        ", ".join(f"{each:g}: {distance:.1f}" for each, distance in reached.items()),
        flush=True,
    )
    runner.run(comparison.other_tasks(rate), cost_after=0)
    arms, floor = summary(comparison, rate), read_json(args.work / "floor.json")
    print_table(arms, floor)
    settings = {name: getattr(args, name) for name in [*SETTINGS, "partitions", "seeds"]}
    ratios = {
        str(k): arms[f"{k}/ancestral"]["ratio"] for k in args.partitions if f"{k}/ancestral" in arms
    }
    told = {
        "bench": "quality",
        **settings,
        "monolith_by_rate": reached,
        "learning_rate": args.learning_rate or rate,
        "floor": floor,
        "router_cross_entropy": routers(comparison, rate),
        "arms": arms,
        "ratio": ratios,
    }
    if args.curves:
        draw(told, args.curves)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
