#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small classifier in whose features ./dev bench quality compares images.

Writes it to classifiers/. It sees only the training images; the accuracy in the file is that on the
held-out ones. Its file is committed: distances are comparable only in the same features.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
from quality_measure import CLASSIFIERS, Classifier, network, read_images, scaled
from torch.nn import functional

WIDTHS = {"fashion-mnist": (16, 32, 64), "cifar-10": (16, 32, 64)}
SOURCE = {
    "fashion-mnist": "Fashion-MNIST, MIT licence, © 2017 Zalando SE, https://tech.zalando.com",
    "cifar-10": "CIFAR-10, Krizhevsky 2009 (Learning Multiple Layers of Features from Tiny "
    "Images), without a stated licence",
}
BATCH = 128
SHIFT = 2  # pixels


def varied(images, draw):
    """Mirrored by half and moved by up to SHIFT pixels, a whole batch alike."""
    if draw.random() < 0.5:
        images = images.flip(3)
    dy, dx = draw.integers(0, 2 * SHIFT + 1, 2)
    size = images.shape[2]
    return functional.pad(images, [SHIFT] * 4, value=-1)[:, :, dy : dy + size, dx : dx + size]


def train(net, images, labels, epochs, rate, draw):
    steps = epochs * (len(images) // BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    labels, start = torch.from_numpy(labels.astype(np.int64)), time.monotonic()
    for epoch in range(epochs):
        order, losses = draw.permutation(len(images)), []
        for begin in range(0, len(images) - BATCH + 1, BATCH):
            rows = order[begin : begin + BATCH]
            loss = functional.cross_entropy(net(varied(scaled(images[rows]), draw)), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(
            f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.3f}, "
            f"{time.monotonic() - start:.0f} s",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", choices=WIDTHS)
    parser.add_argument("images", type=pathlib.Path, help="folder of its files")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--out", type=pathlib.Path, default=CLASSIFIERS)
    args = parser.parse_args()
    torch.set_num_threads(1)  # part of what the weights depend on
    torch.manual_seed(0)
    images, labels = read_images(args.dataset, args.images, held_out=False)
    about = {
        "dataset": args.dataset,
        "channels": images.shape[1],
        "size": images.shape[2],
        "classes": int(labels.max()) + 1,
        "widths": WIDTHS[args.dataset],
        "epochs": args.epochs,
        "trained_on": SOURCE[args.dataset],
    }
    net = network(about["channels"], about["size"], about["classes"], about["widths"])
    train(net, images, labels, args.epochs, args.rate, np.random.default_rng(0))
    path = args.out / f"{args.dataset}.npz"
    weights = {name: value.numpy().astype(np.float16) for name, value in net.state_dict().items()}

    def write():
        np.savez_compressed(path, about=json.dumps(about), **weights)

    write()
    about["accuracy"] = Classifier(path).accuracy(
        *read_images(args.dataset, args.images, held_out=True)
    )  # as it is in the file
    write()
    print(
        f"{path}: {path.stat().st_size} bytes, accuracy {about['accuracy']:.4f} on the held-out "
        "images"
    )


if __name__ == "__main__":
    main()
