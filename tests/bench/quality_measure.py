# SPDX-License-Identifier: Apache-2.0
"""The measures by which ./dev bench quality compares sets of images.

They are the features of a small fixed classifier, the Fréchet distance of two sets in them, and the
distance of each image of a set to its nearest in another. Images are uint8 [n, channels, size,
size].
"""

import gzip
import io
import json
import os
import pathlib
import tarfile

import numpy as np
import torch
from PIL import Image
from torch import nn

CLASSIFIERS = pathlib.Path(__file__).parent / "classifiers"
FEATURES = 64
HELD_OUT_TAR = "train-000004.tar"


def read_idx(folder, name):
    (path,) = folder.glob(name + "*")
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    shape = [int.from_bytes(data[4 * i : 4 * i + 4], "big") for i in range(1, 1 + data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def read_tars(paths):
    images, labels = [], []
    for path in paths:
        with tarfile.open(path) as tar:
            for member in tar:
                data = tar.extractfile(member).read()
                if member.name.endswith(".cls"):
                    labels.append(int(data))
                else:
                    images.append(pixels_of(io.BytesIO(data)))
    return np.stack(images), np.array(labels, np.uint8)


def pixels_of(file):
    pixels = np.asarray(Image.open(file))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def read_pngs(folder):
    return np.stack([pixels_of(path) for path in sorted(folder.glob("*.png"))])


def training_tars(folder):
    return sorted(path for path in folder.glob("*.tar") if path.name != HELD_OUT_TAR)


def read_images(dataset, folder, held_out):
    """Images and labels: those of training, or those that no training sees."""
    if dataset == "cifar-10":
        return read_tars([folder / HELD_OUT_TAR] if held_out else training_tars(folder))
    part = "t10k" if held_out else "train"
    return read_idx(folder, part + "-images-idx3-ubyte")[:, None], read_idx(
        folder, part + "-labels-idx1-ubyte"
    )


def write_unlabelled(dataset, folder, out):
    """A folder for `skerry-engine ingest` with the images of training alone."""
    out.mkdir(parents=True, exist_ok=True)
    if dataset != "cifar-10":
        (path,) = folder.glob("train-images-idx3-ubyte*")
        (out / path.name).unlink(missing_ok=True)
        (out / path.name).symlink_to(path.resolve())
        return
    for path in training_tars(folder):
        partial = out / (path.name + ".partial")
        with tarfile.open(path) as whole, tarfile.open(partial, "w") as images:
            for member in whole:
                if not member.name.endswith(".cls"):
                    images.addfile(member, whole.extractfile(member))
        os.replace(partial, out / path.name)


def network(channels, size, classes, widths):
    """Its last layer but one has FEATURES values."""
    layers = []
    for before, after in zip((channels, *widths), widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        size //= 2
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(widths[-1] * size * size, FEATURES),
        nn.ReLU(),
        nn.Linear(FEATURES, classes)
    )


def scaled(images, device="cpu"):
    return torch.from_numpy(np.array(images)).to(device, torch.float32) / 127.5 - 1


class Classifier:
    """A file of classifiers/, as quality_classifier.py wrote it; `about` is its metadata."""

    def __init__(self, path, device="cpu"):
        with np.load(path) as file:
            weights = {
                name: torch.from_numpy(file[name].astype(np.float32))
                for name in file.files
                if name != "about"
            }
            self.about = json.loads(str(file["about"]))
        self.device = device
        self.net = network(*(self.about[key] for key in ("channels", "size", "classes", "widths")))
        self.net.load_state_dict(weights)
        self.net.eval().to(device)

    @torch.no_grad()
    def _through(self, net, images):
        return torch.cat(
            [
                net(scaled(block, self.device)).cpu()
                for block in np.array_split(images, len(images) // 500 + 1)
            ]
        )

    def features(self, images):
        return self._through(self.net[:-2], images).double().numpy()

    def accuracy(self, images, labels):
        return float((self._through(self.net, images).argmax(1).numpy() == labels).mean())


def root(matrix):
    """Of a symmetric matrix without negative eigenvalues, but for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def frechet(a, b):
    """The squared Fréchet distance of the Gaussians that fit two sets of features [n, d].

    Heusel et al., arXiv 1706.08500, equation 6.
    """
    difference = a.mean(0) - b.mean(0)
    cov_a, cov_b = (np.atleast_2d(np.cov(each, rowvar=False)) for each in (a, b))
    root_a = root(cov_a)
    return float(
        difference @ difference
        + np.trace(cov_a)
        + np.trace(cov_b)
        - 2 * np.trace(root(root_a @ cov_b @ root_a))
    )


@torch.no_grad()
def nearest(images, among, device="cpu", block=500):
    """For each image, the RMS difference of its pixels (0 to 255) to the nearest of the others."""
    others = scaled(among, device).flatten(1)
    squares = others.square().sum(1)
    found = []
    for begin in range(0, len(images), block):
        some = scaled(images[begin : begin + block], device).flatten(1)
        best = (squares - 2 * some @ others.T).argmin(1)
        found.append((some - others[best]).square().mean(1).sqrt().cpu() * 127.5)
    return torch.cat(found).numpy()
