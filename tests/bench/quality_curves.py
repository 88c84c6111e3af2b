# SPDX-License-Identifier: Apache-2.0
"""Draws the results of ./dev bench quality.

For each K: the Fréchet distance over training, the velocity error and the routers.
"""

import matplotlib
from quality_comparison import split_arm

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

STYLES = {None: "-", "analytic": "-", "learned": "--"}
COLOURS = {
    "monolith": "black",
    "ancestral": "tab:blue",
    "top1": "tab:green",
    "top2": "tab:orange",
    "full": "tab:red",
}


def style(arm):
    """An arm's route is its colour; dashed: by the learned router; dotted: on random partitions."""
    kind, route, router = split_arm(arm)
    return {
        "color": COLOURS["monolith" if router is None else route],
        "linestyle": ":" if kind == "random" else STYLES[router],
        "marker": ".",
        "label": arm,
    }


def draw(told, path):
    figure, rows = pyplot.subplots(
        len(told["partitions"]),
        3,
        figsize=(16, 5 * len(told["partitions"])),
        squeeze=False,
        layout="constrained",
    )
    share = [(point + 1) / told["points"] for point in range(told["points"])]
    for partitions, (distance, velocity, router) in zip(told["partitions"], rows):
        prefix = f"{partitions}/"
        arms = {
            name.removeprefix(prefix): arm
            for name, arm in told["arms"].items()
            if name == "monolith" or name.startswith(prefix)
        }
        steps = [each * told["steps"] for each in share]
        for name, arm in arms.items():
            distance.plot(steps[-len(arm["over_training"]) :], arm["over_training"], **style(name))
            if arm["velocity"]:
                velocity.plot(
                    [float(t) for t in arm["velocity"]],
                    list(arm["velocity"].values()),
                    **style(name),
                )
        distance.set(
            title=f"K = {partitions}: Fréchet distance to held-out images, "
            f"mean of {len(told['seeds'])} seeds",
            xlabel="steps of each expert",
            yscale="log",
        )
        velocity.set(title="velocity error on held-out images", xlabel="t (1: noise)")
        if found := told["router_cross_entropy"].get(str(partitions)):
            router.plot(share, found["learned"], marker=".", label="learned")
            router.axhline(found["analytic"], color="black", label="analytic")
        router.set(
            title="routers: mean cross-entropy on held-out images (nats)",
            xlabel="share of the learned router's training",
        )
        for axes in (distance, velocity, router):
            axes.grid(alpha=0.3)
            if axes.has_data():
                axes.legend(fontsize="small")
    figure.savefig(path, dpi=90)
