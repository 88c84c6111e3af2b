#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws pictures of coloured shapes, each with a caption in a .txt file beside it.

usage: shapes.py FOLDER [--count N] [--size N]
"""

import argparse
import pathlib
import random
import struct
import zlib

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 230),
    "yellow": (230, 210, 50),
    "white": (235, 235, 235),
}
# Whether a point (x, y) in [-1, 1] is inside.
SHAPES = {
    "disc": lambda x, y: x * x + y * y < 1,
    "square": lambda x, y: max(abs(x), abs(y)) < 0.85,
    "cross": lambda x, y: min(abs(x), abs(y)) < 0.3 and max(abs(x), abs(y)) < 1,
    "ring": lambda x, y: 0.35 < x * x + y * y < 1,
}
FORMS = (
    "a {colour} {shape}",
    "A picture of a {colour} {shape}.",
    "one {shape}, {colour}",
    "the {shape} is {colour}",
    "{colour} {shape} on a dark ground",
)


def write_png(path, size, pixels):
    """`pixels`: rows of RGB, three bytes each."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(
        b"\0" + pixels[row * size * 3 : (row + 1) * size * 3] for row in range(size)
    )
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def draw(drawn, size, colour, shape):
    middle = [size / 2 + drawn.uniform(-0.12, 0.12) * size for _ in range(2)]
    radius = size * drawn.uniform(0.28, 0.36)
    ground = drawn.randrange(10, 40)
    pixels = bytearray()
    for row in range(size):
        for column in range(size):
            inside = SHAPES[shape](
                (column + 0.5 - middle[0]) / radius, (row + 0.5 - middle[1]) / radius
            )
            pixels += bytes(COLOURS[colour] if inside else (ground, ground, ground + 5))
    return bytes(pixels)


def write_shapes(folder, count, size, seed=1):
    drawn = random.Random(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        colour, shape = drawn.choice(list(COLOURS)), drawn.choice(list(SHAPES))
        picture = folder / f"{number:05}.png"
        write_png(picture, size, draw(drawn, size, colour, shape))
        words = drawn.choice(FORMS).format(colour=colour, shape=shape)
        picture.with_suffix(".txt").write_text(words + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--size", type=int, default=16)
    args = parser.parse_args()
    write_shapes(args.folder, args.count, args.size)


if __name__ == "__main__":
    main()
