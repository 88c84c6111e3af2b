# SPDX-License-Identifier: Apache-2.0
"""A coordinator and daemons as real processes on loopback, for the end-to-end tests and the demo.

Everything waits for what the programs report, never for a time; `limit` arguments are hang limits.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

os.environ.setdefault("SKERRY_PEER_LISTEN", "127.0.0.1:0")  # nothing here listens to the world


class Failure(Exception):
    """A command of ours failed, or something expected did not come."""


def free_ports(count):
    """The first of `count` consecutive ports that are free now."""
    for _ in range(200):
        first = random.randrange(20000, 32000)
        try:
            held = []
            for port in range(first, first + count):
                probe = socket.socket()
                held.append(probe)
                probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for probe in held:
                probe.close()
    raise Failure("no free ports on loopback")


class Process:
    """A program with its log; `name` is for people."""

    def __init__(self, name, command, log, env=None):
        self.name, self.command, self.log = name, [str(c) for c in command], pathlib.Path(log)
        self.env = env
        self.popen = None
        self.start()

    def start(self):
        with open(self.log, "ab") as out:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(self.env or {})},
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()

    def stop(self, limit=120):
        """SIGTERM, and the exit code."""
        if self.alive():
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
        try:
            return self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise Failure(
                f"{self.name} did not leave within {limit} s of SIGTERM; its log "
                f"ends:\n{self.tail()}"
            )

    def log_text(self):
        return self.log.read_text(errors="replace")

    def tail(self, lines=15):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def children(self):
        """Process ids of the children, e.g. a daemon's engines."""
        out = []
        for entry in pathlib.Path(f"/proc/{self.pid}/task").glob("*/children"):
            out += [int(pid) for pid in entry.read_text().split()]
        return out


def write_idx(folder, count, size=28, seed=3):
    """Images of ten kinds of bars and squares with their labels, as IDX files."""
    draw = random.Random(seed)
    pixels, labels = bytearray(), bytearray()
    for i in range(count):
        label = i % 10
        image = bytearray(size * size)
        for _ in range(2):
            shift, light = draw.randrange(-2, 3), draw.randrange(120, 256)
            for r in range(size):
                for c in range(size):
                    along = r if label % 2 else c
                    if 2 + 2 * label <= along + shift < 6 + 2 * label:
                        image[r * size + c] = light
        pixels += image
        labels.append(label)
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(
        bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, size, size)) + pixels
    )
    (folder / "train-labels-idx1-ubyte").write_bytes(
        bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + labels
    )


def tensors_file(tensors):
    """The bytes of a safetensors file: (type, shape, bytes) by name."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        places = [len(data), len(data) + len(content)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": places}
        data += content
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    return len(words).to_bytes(8, "little") + words + data


def write_tensors(path, tensors):
    path.write_bytes(tensors_file(tensors))


def write_embeddings(path, images, longest, dim):
    """A caption of one to `longest` tokens for each image, and a null caption of one."""
    draw = random.Random(1)

    def floats(count):
        return struct.pack(f"<{count}f", *(draw.gauss(0, 1) for _ in range(count)))

    mask = bytes(t <= i % longest for i in range(images) for t in range(longest))
    write_tensors(
        path,
        {
            "embeddings": ("F32", [images, longest, dim], floats(images * longest * dim)),
            "mask": ("U8", [images, longest], mask),
            "null": ("F32", [1, dim], floats(dim)),
        },
    )


def noise_shard(samples):
    """A shard's file: images of noise, all of the first class."""
    return tensors_file(
        {
            "images": ("U8", [samples, 1, 28, 28], os.urandom(samples * 784)),
            "labels": ("I32", [samples], bytes(4 * samples)),
        }
    )


def write_dataset(folder, partitions, samples):
    """A dataset folder in the engine's format, of noise. The fake engine reads no image."""
    each = samples // partitions
    contents = [("router.safetensors", "router", -1, 0, os.urandom(1000))]
    for k in range(partitions):
        contents += [
            (f"shard-{k}-0.safetensors", "shard", k, each, noise_shard(each)),
            (f"partition-{k}.safetensors", "partition", k, each, os.urandom(1000)),
        ]
    folder.mkdir(parents=True)
    for name, _, _, _, body in contents:
        (folder / name).write_bytes(body)
    (folder / "dataset.json").write_text(
        json.dumps(
            {
                "format": 1,
                "partitions": partitions,
                "samples": each * partitions,
                "channels": 1,
                "image_size": 28,
                "classes": [str(c) for c in range(10)],
                "partition_samples": [each] * partitions,
                "files": [
                    {
                        "name": name,
                        "role": role,
                        "partition": k,
                        "samples": count,
                        "bytes": len(body),
                    }
                    for name, role, k, count, body in contents
                ],
            }
        )
    )


def inflate(folder, total, shard_bytes=64 << 20):
    """Adds shards of noise to an ingested folder until it holds `total` bytes."""
    index = json.loads((folder / "dataset.json").read_text())
    have, number = sum(f["bytes"] for f in index["files"]), 1000
    while have < total:
        n = min(shard_bytes, total - have) // 784 + 1
        body = noise_shard(n)
        name = f"shard-0-{number}.safetensors"
        (folder / name).write_bytes(body)
        index["files"].append(
            {"name": name, "role": "shard", "partition": 0, "samples": n, "bytes": len(body)}
        )
        index["samples"] += n
        index["partition_samples"][0] += n
        have += len(body)
        number += 1
    (folder / "dataset.json").write_text(json.dumps(index))


def sums(folder):
    """A hash of each file in a folder, by its path there."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(pathlib.Path(folder).rglob("*"))
        if p.is_file()
    }


def flip_byte(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def sanitizer_report(log):
    """The first line by which a sanitizer speaks in a log; None in one where none does."""
    return next(
        (line for line in log.splitlines() if "Sanitizer: " in line or ": runtime error: " in line),
        None,
    )


def without_report(done):
    """A program that ran. Fails if a sanitizer reported an error, whatever exit status was
    expected.
    """
    if report := sanitizer_report(done.stderr):
        raise Failure(f"{' '.join(map(str, done.args))}: {report}")
    return done


class Cluster:
    def __init__(self, bin_dir, root=None, engine=None, coordinator_args=(), daemon_args=()):
        self.bin = pathlib.Path(bin_dir).resolve()
        self.owned = root is None
        self.root = pathlib.Path(root or tempfile.mkdtemp(prefix="skerry-"))
        self.root.mkdir(parents=True, exist_ok=True)
        self.engine = pathlib.Path(engine or self.bin / "skerry-engine").resolve()
        self.port = free_ports(3)
        self.coordinator_args, self.daemon_args = list(coordinator_args), list(daemon_args)
        self.coordinator = None
        self.daemons = {}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close()
        if self.owned and kind is None:
            shutil.rmtree(self.root, ignore_errors=True)
        elif kind is not None:
            print(f"what the programs left is in {self.root}")
            for process in [self.coordinator, *self.daemons.values()]:
                if process:
                    print(f"--- {process.name} ---\n{process.tail(25)}")

    def close(self):
        for process in [*self.daemons.values(), self.coordinator]:
            if process and process.alive():
                process.kill()
        self.expect_no_report()

    def expect_no_report(self):
        """Of a sanitizer: an engine that one ended was started again, and nothing else shows it."""
        for log in sorted(self.root.glob("*.log")):
            if report := sanitizer_report(log.read_text(errors="replace")):
                raise Failure(f"in {log}: {report}")

    # ---- processes

    def start_coordinator(self):
        command = [
            self.bin / "skerry-coordinator",
            "--data",
            self.root / "coordinator",
            "--listen",
            f"127.0.0.1:{self.port}",
            *self.coordinator_args,
        ]
        self.coordinator = Process("coordinator", command, self.root / "coordinator.log")
        self.await_coordinator()
        return self.coordinator

    def await_coordinator(self):
        self.wait(
            lambda: (self.root / "coordinator/admin.toml").exists()
            and self.try_json("node", "list") is not None,
            "the coordinator to answer",
            self.coordinator,
        )

    def start_daemon_process(self, name, env=None, args=()):
        """On its data folder, which is there."""
        command = [
            self.bin / "skerryd",
            "--data",
            self.root / name,
            "--engine",
            self.engine,
            *self.daemon_args,
            *args,
        ]
        self.daemons[name] = Process(name, command, self.root / f"{name}.log", env)
        return self.daemons[name]

    def start_daemon(self, name, env=None, args=()):
        """Joins on the first call for a name, runs on its data folder afterwards."""
        data = self.root / name
        if data.exists():
            process = self.start_daemon_process(name, env, args)
        else:
            process = self.join(
                self.json("token", "create", "--role", "node")["token"], name, env=env, args=args
            )
        self.wait(
            lambda: any(
                n["name"] == name and n["state"] not in ("left", "lost")
                for n in self.items("node", "list")
            ),
            f"{name} to join",
            process,
        )
        return process

    def join(self, token, name, data=None, env=None, args=()):
        command = [
            self.bin / "skerryd",
            "join",
            token,
            "--data",
            data or self.root / name,
            "--name",
            name,
            "--engine",
            self.engine,
            *self.daemon_args,
            *args,
        ]
        self.daemons[name] = Process(name, command, self.root / f"{name}.log", env)
        return self.daemons[name]

    # ---- data and runs

    def add_dataset(self, name="shapes", partitions=2, images=400):
        """A small generated dataset: IDX of 10 classes, or prepared noise if only the fake engine
        reads it.
        """
        folder = self.root / f"{name}-images"
        if self.engine.name == "skerry-fake-engine":
            write_dataset(folder, partitions, images)
        else:
            write_idx(folder, images)
        self.run("dataset", "add", name, folder, "--partitions", partitions)

    def create_run(self, name, dataset="shapes", **sections):
        """Sections as in run.toml; what is not given is small and quick."""
        spec = {
            "model": {"width": 32, "depth": 2, "heads": 2, "patch_size": 7},
            "train": {"steps": 60, "batch_size": 8, "learning_rate": 1e-3},
            "checkpoint": {"round_steps": 10},
        }
        for section, keys in sections.items():
            spec.setdefault(section, {}).update(keys)
        lines = [f'name = "{name}"', f'dataset = "{dataset}"', "seed = 7"]
        for section, keys in spec.items():
            lines += [
                f"[{section}]",
                *(f"{key} = {json.dumps(value)}" for key, value in keys.items()),
            ]
        path = self.root / f"{name}.toml"
        path.write_text("\n".join(lines) + "\n")
        self.run("run", "create", "-f", path)

    # ---- the CLI

    def cli_env(self):
        return {
            "SKERRY_CONTEXT": str(self.root / "coordinator/admin.toml"),
            "SKERRY_ENGINE": str(self.bin / "skerry-engine"),
            "NO_COLOR": "1",
        }

    def follow(self, name, *args):
        """A command of the CLI that goes on beside the others; its log is NAME.log."""
        return Process(
            name, [self.bin / "skerry", *args], self.root / f"{name}.log", self.cli_env()
        )

    def run(self, *args, limit=600, check=True):
        env = {**os.environ, **self.cli_env()}
        done = without_report(
            subprocess.run(
                [str(self.bin / "skerry"), *map(str, args)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=env,
                timeout=limit,
            )
        )
        if check and done.returncode != 0:
            raise Failure(
                f"skerry {' '.join(map(str, args))} left with "
                f"{done.returncode}:\n{done.stderr}{done.stdout}"
            )
        return done

    def engine_run(self, *args):
        """The engine's own commands, which need no coordinator."""
        done = subprocess.run(
            [str(self.bin / "skerry-engine"), *map(str, args)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise Failure(
                f"skerry-engine {' '.join(map(str, args))} left with "
                f"{done.returncode}:\n{done.stderr}"
            )
        return done

    def skerryd(self, *args):
        """Its commands that only look at a disk."""
        return without_report(
            subprocess.run(
                [str(self.bin / "skerryd"), *map(str, args)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
        )

    def json(self, *args, limit=600):
        return json.loads(self.run(*args, "-o", "json", limit=limit).stdout)

    def try_json(self, *args):
        done = self.run(*args, "-o", "json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def items(self, *args):
        return self.json(*args)["items"]

    def events(self, **wanted):
        return [
            e
            for e in self.items("event", "list")
            if all(
                (e[k] in v if isinstance(v, (set, tuple)) else e[k] == v) for k, v in wanted.items()
            )
        ]

    def experts(self, run):
        return self.json("run", "show", run)["experts"]

    # ---- waiting

    def wait(self, condition, what, *processes, limit=300):
        """Waits until condition() returns something true, and returns it.

        Fails early if a process that it needs has died.
        """
        start = time.monotonic()
        while True:
            value = condition()
            if value:
                return value
            for process in processes:
                if not process.alive():
                    raise Failure(
                        f"waited for {what}, but {process.name} left with "
                        f"{process.popen.returncode}; "
                        f"its log ends:\n{process.tail()}"
                    )
            if time.monotonic() - start > limit:
                raise Failure(f"waited {limit} s for {what}")
            time.sleep(0.1)

    def wait_event(self, limit=300, count=1, **wanted):
        def found():
            events = self.events(**wanted)
            return events[count - 1] if len(events) >= count else None

        return self.wait(found, f"event {wanted}", self.coordinator, limit=limit)

    def wait_run(self, run, states=("done",), limit=900):
        def reached():
            shown = self.json("run", "show", run)
            if shown["state"] == "failed" and "failed" not in states:
                raise Failure(f"run {run} failed: {shown['reason']}")
            return shown if shown["state"] in states else None

        return self.wait(reached, f"run {run} to be {' or '.join(states)}", limit=limit)
