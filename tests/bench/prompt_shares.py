#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well prompts in new words find the partitions of what they name.

Ingests images of Fashion-MNIST with captions by 12 templates, encoded by a random vector for each
word. Then compares the shares that prompts by 4 other templates get with those of their class.

usage: prompt_shares.py SKERRY_ENGINE FOLDER_OF_FASHION_MNIST
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "cli/ensemble/export"))
from skerry_ensemble import AnalyticRouter  # noqa: E402

IMAGES, PARTITIONS, DIM, LONGEST = 16000, 8, 256, 10
NOUNS = (
    ("t-shirt", "tee", "top"), ("trousers", "pants"), ("pullover", "sweater", "jumper"),
    ("dress", "frock", "gown"), ("coat", "overcoat"), ("sandal", "open shoe"),
    ("shirt", "button-up"), ("sneaker", "trainer"), ("bag", "handbag", "purse"),
    ("ankle boot", "boot"),
)  # fmt: skip
TRAINED = (
    "a photo of a {}", "{}", "the {} on a white background", "product shot {} studio light",
    "a grey picture of one {}", "an old {} for sale", "low resolution image of a {}",
    "a small {} in the middle", "this is a {}", "an image of the {}", "one {} and nothing else",
    "a drawing of a {}",
)  # fmt: skip
UNSEEN = (
    "a close-up of a {}", "my favourite {}", "picture of a {} taken indoors", "look at this {}",
)  # fmt: skip


def encoded(text):
    """[L, DIM] of one caption, and its mask."""
    words, tokens = text.split(), np.zeros((LONGEST, DIM), np.float32)
    for at, word in enumerate(words):
        seed = zlib.crc32(word.encode())
        tokens[at] = np.random.default_rng(seed).standard_normal(DIM)
    return tokens, np.arange(LONGEST) < len(words)


def read(folder, kind, offset):
    with gzip.open(next(pathlib.Path(folder).glob(f"train-{kind}*"))) as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


def write_idx(folder, pixels, labels):
    head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (IMAGES, 28, 28))
    (folder / "train-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    head = bytes([0, 0, 8, 1]) + IMAGES.to_bytes(4, "big")
    (folder / "train-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def shares_of(router, prompts):
    """[P, K] by the router that the ensemble's folder brings."""
    tokens, masks = map(np.stack, zip(*map(encoded, prompts)))
    known = AnalyticRouter.load(router, list(range(PARTITIONS)))
    return known.shares_of_prompts(torch.from_numpy(tokens), torch.from_numpy(masks)).numpy()


def main():
    engine, source = sys.argv[1:]
    drawn = np.random.default_rng(0)
    pixels = read(source, "images", 16)[: IMAGES * 784]
    labels = read(source, "labels", 8)[:IMAGES]
    captions = [drawn.choice(TRAINED).format(drawn.choice(NOUNS[label])) for label in labels]
    with tempfile.TemporaryDirectory(prefix="skerry-bench-") as scratch:
        top = pathlib.Path(scratch)
        (top / "in").mkdir()
        write_idx(top / "in", pixels, labels)
        tokens, masks = zip(*map(encoded, captions))
        null, _ = encoded("nothing")
        embeddings = {
            "embeddings": torch.from_numpy(np.stack(tokens)).half(),
            "mask": torch.from_numpy(np.stack(masks)).to(torch.uint8),
            "null": torch.from_numpy(null[:1]),
        }
        save_file(embeddings, top / "captions.safetensors")
        command = [engine, "ingest", top / "in", "--out", top / "out", "--partitions", PARTITIONS]
        command += ["--caption-embeddings", top / "captions.safetensors", "--device", "-1"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        table = np.stack(
            [
                load_file(top / f"out/partition-{k}.safetensors")["label_counts"][:10].numpy()
                for k in range(PARTITIONS)
            ],
            1,
        ).astype(float)  # [10, K]
        prior = table.sum(0) / table.sum()
        table /= table.sum(1, keepdims=True)
        figures = {"prior": np.abs(table - prior).sum(1).mean() / 2}
        for name, forms in {"seen": TRAINED, "unseen": UNSEEN}.items():
            prompts = [(y, form.format(n)) for y in range(10) for n in NOUNS[y] for form in forms]
            shares = shares_of(top / "out", [words for _, words in prompts])
            apart = [np.abs(s - table[y]).sum() / 2 for s, (y, _) in zip(shares, prompts)]
            figures[name] = float(np.mean(apart))
    print(json.dumps({name: round(float(value), 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
