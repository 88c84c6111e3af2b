#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checkpoint_rival.py FOLDER: stores what storage_bench stores, by other means.

By torch.save and a sync, and by plain writes of the same number of bytes. Answers a line with
seconds: write, read (of what was written last), raw, raw read, clear.
"""

import json
import os
import pathlib
import sys
import time

import torch

folder = pathlib.Path(sys.argv[1])
source = folder / "tensors.safetensors"
data = source.read_bytes()
first = 8 + int.from_bytes(data[:8], "little")
tensors = {}
for name, tensor in json.loads(data[8:first]).items():
    if name != "__metadata__":
        begin, end = tensor["data_offsets"]
        tensors[name] = torch.frombuffer(
            bytearray(data[first + begin : first + end]), dtype=torch.uint8
        )
saved, plain = folder / "saved.pt", folder / "plain"


def sync(path):
    for each in (path, folder):
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def write():
    torch.save(tensors, saved)
    sync(saved)


def read():
    torch.load(saved, weights_only=True)


def raw():
    plain.write_bytes(data)
    sync(plain)


def raw_read():
    with open(plain, "rb") as file:
        while file.read(4 << 20):
            pass


def clear():
    for path in (saved, plain):
        path.unlink(missing_ok=True)


print(torch.__version__, flush=True)
for line in sys.stdin:
    start = time.monotonic()
    {"write": write, "read": read, "raw": raw, "raw read": raw_read, "clear": clear}[line.strip()]()
    print(time.monotonic() - start, flush=True)
