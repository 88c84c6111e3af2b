#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What first_hour.sh needs to read and write files; each command prints one line at its end."""
import json
import pathlib
import random
import struct
import subprocess
import sys

NEAR = 1e-2  # of weights on a card and on a CPU, against the most that 20 steps can change
CHANGE = 20 * 1e-4  # steps and learning rate: AdamW moves no weight farther
MEMORY = 0.10  # the plan's error


def dataset(folder):
    """300 images of noise, 32x32, as IDX."""
    folder, draw = pathlib.Path(folder), random.Random(1)
    folder.mkdir(parents=True)
    count, side = 300, 32
    images = struct.pack(">IIII", 0x803, count, side, side) + draw.randbytes(count * side * side)
    (folder / "train-images-idx3-ubyte").write_bytes(images)
    labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
    (folder / "train-labels-idx1-ubyte").write_bytes(labels)


def doctor(path):
    """Every check but that of a coordinator, which the card does without."""
    checks = json.loads(pathlib.Path(path).read_text())["items"]
    failed = [c for c in checks if c["status"] == "failed" and c["name"] != "coordinator"]
    print("; ".join(f"{c['name']}: {c['found']}" for c in failed or checks))
    return 1 if failed else 0


def kernels(path):
    (item,) = json.loads(pathlib.Path(path).read_text())["items"]
    print(item["fingerprint"])
    if "fast" not in item["fingerprint"]:
        sys.exit("the fast kernels are not used")


def speed(path):
    words = []
    for item in json.loads(pathlib.Path(path).read_text())["items"]:
        name = f"{item['model']} {item['precision']} {item['batch_size']}"
        if item.get("fits"):
            words.append(f"{name}: {item['images_per_second']:.1f}/s {item['share_of_peak']:.0%}")
        else:
            words.append(f"{name}: does not fit")
    print("; ".join(words))


def rival(measured, script):
    """Steps of PyTorch's, at 64 images in bf16, against those that the bench timed."""
    shapes = {"S/2": (384, 12, 6), "B/2": (768, 12, 12)}
    words = []
    for item in json.loads(pathlib.Path(measured).read_text())["items"]:
        if item["model"] not in shapes or item["batch_size"] != 64 or not item.get("fits"):
            continue
        width, depth, heads = shapes[item["model"]]
        spec = {"image_size": 32, "channels": 4, "patch_size": 2, "width": width, "depth": depth}
        spec |= {"heads": heads, "classes": 1000, "batch_size": 64, "precision": "bf16"}
        arms = ("eager/sdpa", "compile/sdpa")
        asked = "".join(f"{arm} 5\n{arm} 20\n" for arm in arms)  # the first warms it up
        said = subprocess.run(
            [sys.executable, "-B", script, json.dumps(spec | {"device": "cuda"})],
            input=asked,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        took = [float(line) / 20 for line in said.stdout.split()[1::2]]
        for arm, seconds in zip(arms, took):
            ours = item["step_seconds"]
            words.append(f"{item['model']} {seconds / ours:.2f} x {arm} ({64 / seconds:.0f}/s)")
        print("; ".join(words), flush=True)
    return 0 if words else 1


def memory(plan, measured):
    """Bytes that the plan computes for B/2 at 64, against those that the bench found."""
    (model, *_) = json.loads(pathlib.Path(plan).read_text())["models"]
    planned = model["state_bytes"] + 64 * model["sample_bytes"]
    for item in json.loads(pathlib.Path(measured).read_text())["items"]:
        if item["model"] == "B/2" and item["batch_size"] == 64 and item.get("fits"):
            found = item["memory_bytes"]
            print(f"B/2, 64 images: {found / 2**30:.2f} GiB, planned {planned / 2**30:.2f}")
            return 1 if abs(found / planned - 1) > MEMORY else 0
    sys.exit("the bench has no B/2 at 64 images")


def weights(path):
    """{name: floats} of raw weights in a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, about in header.items():
        if name.startswith("raw/"):
            begin, end = (8 + size + at for at in about["data_offsets"])
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


def near(left, right):
    left, right = weights(left), weights(right)
    apart = max(abs(a - b) for name in left for a, b in zip(left[name], right[name]))
    print(f"weights differ by {apart:.2e}, {apart / CHANGE:.1e} of what the steps can change")
    return 1 if not apart <= NEAR * CHANGE else 0


def trace(path, steps):
    """Launches a step, and the share of the time in which the card computes."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    on_card = sorted((e["ts"], e["ts"] + e["dur"]) for e in timed if e.get("cat") == "kernel")
    if not on_card:
        operators = sum(e.get("cat") == "cpu_op" for e in timed)
        print(f"{operators / int(steps):.0f} operators a step; no kernel of a card")
        return 0 if operators else 1
    busy, until = 0, on_card[0][0]
    for begin, end in on_card:
        busy += max(0, end - max(begin, until))
        until = max(until, end)
    whole = until - on_card[0][0]
    blocking = sum("Synchronize" in e["name"] for e in timed)
    print(
        f"{len(on_card) / int(steps):.0f} kernels a step, the card is busy {busy / whole:.0%}, "
        f"{blocking / int(steps):.1f} waits a step"
    )
    return 0


def report(out):
    out = pathlib.Path(out)
    parts = []
    for line in (out / "results").read_text().splitlines():
        name, result, seconds, words = line.split("\t", 3)
        parts.append({"name": name, "result": result, "seconds": int(seconds), "words": words})
    counts = {each: sum(p["result"] == each for p in parts) for each in ("PASS", "FAIL", "SKIP")}
    text = json.dumps({"api_version": 1, "counts": counts, "parts": parts}, indent=1)
    (out / "report.json").write_text(text + "\n")
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped;", end=" ")
    print(out / "report.json")


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
