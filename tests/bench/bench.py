#!/usr/bin/env python3
"""./dev bench NAME: measures and prints; the last line is JSON. Nothing here passes or fails on a time.

  size        memory of the coordinator during a large upload and of an idle daemon; time of `skerry node list`
  detection   seconds from a kill, and from a stop, to the grant of the expert elsewhere
  train       images a second of one engine on one thread, its start included
  storage     one checkpoint of 503 MB into RocksDB and back
  export      what diffusers computes from an exported ensemble, against the engine: largest absolute differences
  gossip      rounds for 100 records to reach 10,000 simulated nodes, and what an idle one sends and receives (4 GB of memory)
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import Cluster, write_idx  # noqa: E402


def memory_mib(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text).group(1)) / 1024


class PeakOfAnonymous(threading.Thread):
    """Samples RssAnon of a process, since the kernel keeps a peak of the whole resident set only."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.on = pid, 0.0, True

    def run(self):
        while self.on:
            self.peak = max(self.peak, memory_mib(self.pid, "RssAnon"))
            time.sleep(0.005)


def size(args):
    with Cluster(args.bin) as cluster:
        cluster.start_coordinator()
        daemon = cluster.start_daemon("idle")
        times = []
        for _ in range(30):
            start = time.monotonic()
            cluster.run("node", "list")
            times.append((time.monotonic() - start) * 1000)
        # An ingested folder by hand, since only its size matters: 500 MB of shards.
        folder = cluster.root / "big"
        write_idx(cluster.root / "images", 400)
        subprocess.run([cluster.bin / "skerry-engine", "ingest", cluster.root / "images", "--out", folder,
                        "--partitions", "1"], check=True, capture_output=True)
        inflate(folder, args.megabytes * 1000 * 1000)
        watch = PeakOfAnonymous(cluster.coordinator.pid)
        watch.start()
        start = time.monotonic()
        cluster.run("dataset", "add", "big", folder, "--partitions", "1")
        seconds = time.monotonic() - start
        watch.on = False
        watch.join()
        return {"upload_megabytes": args.megabytes, "upload_seconds": round(seconds, 2),
                "coordinator_peak_anonymous_mib": round(watch.peak, 1),
                "idle_daemon_anonymous_mib": round(memory_mib(daemon.pid, "RssAnon"), 1),
                "node_list_ms_median": round(statistics.median(times), 1),
                "node_list_ms_min": round(min(times), 1)}


def inflate(folder, total):
    """Adds shards of noise to an ingested folder until it holds `total` bytes."""
    index = json.loads((folder / "dataset.json").read_text())
    have, number = sum(f["bytes"] for f in index["files"]), 1000
    while have < total:
        n = min(64 << 20, total - have) // 784 + 1
        header = json.dumps({"images": {"dtype": "U8", "shape": [n, 1, 28, 28], "data_offsets": [0, n * 784]},
                             "labels": {"dtype": "I32", "shape": [n], "data_offsets": [n * 784, n * 788]}}).encode()
        header += b" " * (-len(header) % 8)
        body = len(header).to_bytes(8, "little") + header + os.urandom(n * 784) + bytes(4 * n)
        name = f"shard-0-{number}.safetensors"
        (folder / name).write_bytes(body)
        index["files"].append({"name": name, "role": "shard", "partition": 0, "samples": n, "bytes": len(body)})
        index["samples"] += n
        index["partition_samples"][0] += n
        have += len(body)
        number += 1
    (folder / "dataset.json").write_text(json.dumps(index))


def detection(args):
    killed, stopped = [], []
    with Cluster(args.bin, engine=pathlib.Path(args.bin) / "skerry-fake-engine") as cluster:
        cluster.start_coordinator()
        cluster.add_dataset(partitions=1)
        env = {"SKERRY_FAKE_STEP_MS": "50"}
        cluster.start_daemon("one", env=env)
        cluster.create_run("run", train={"steps": 1000000})
        holder = "one"
        for i in range(args.repeats * 2):
            spare = f"spare{i}"
            cluster.start_daemon(spare, env=env)
            count = len(cluster.events(kind="granted"))
            cluster.wait(lambda: cluster.experts("run")[0]["node"] == holder and cluster.experts("run")[0]["loss"] is not None,
                         "a commit")
            silent = i % 2 == 1
            start = time.time()
            if silent:
                cluster.daemons[holder].signal(signal.SIGSTOP)
            else:
                cluster.daemons[holder].kill()
            grant = cluster.wait(lambda: (g := cluster.events(kind="granted"))[count:] and g[count], "the next grant")
            from datetime import datetime
            seconds = datetime.fromisoformat(grant["time"].replace("Z", "+00:00")).timestamp() - start
            (stopped if silent else killed).append(round(seconds, 2))
            cluster.daemons[holder].kill()
            holder = grant["node"]
    return {"killed_seconds": killed, "killed_median": statistics.median(killed),
            "stopped_seconds": stopped, "stopped_median": statistics.median(stopped)}


def train(args):
    with Cluster(args.bin) as cluster:
        write_idx(cluster.root / "images", 4000)
        subprocess.run([cluster.bin / "skerry-engine", "ingest", cluster.root / "images", "--out", cluster.root / "data",
                        "--partitions", "1"], check=True, capture_output=True)
        start = time.monotonic()
        done = subprocess.run([cluster.bin / "skerry-engine", "train", "--standalone", "--dataset", cluster.root / "data",
                               "--expert", "0", "--out", cluster.root / "out.safetensors", "--steps", "100",
                               "--batch-size", "64", "--width", "128", "--depth", "4", "--heads", "4", "--patch-size", "4",
                               "--threads", "1"], check=True, capture_output=True, text=True)
        seconds = time.monotonic() - start
        print(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "")
        return {"images_per_second_with_start": round(6400 / seconds, 1)}


def storage(args):
    import tempfile
    with tempfile.TemporaryDirectory(prefix="skerry-bench-", dir=os.environ.get("TMPDIR")) as folder:
        done = subprocess.run([pathlib.Path(args.bin) / "storage_bench", folder], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def export(args):
    oracle = pathlib.Path(__file__).parent.parent / "oracle" / "export_oracle.py"
    python = os.environ.get("SKERRY_TORCH_PYTHON", sys.executable)
    done = subprocess.run([python, "-B", oracle, pathlib.Path(args.bin) / "export-transcript", "--measure"],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout.strip() or done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])


def gossip(args):
    done = subprocess.run([pathlib.Path(args.bin) / "gossip_bench"], check=True, capture_output=True, text=True)
    print(done.stdout.rsplit("\n", 2)[0])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    benches = {"size": size, "detection": detection, "train": train, "storage": storage, "export": export, "gossip": gossip}
    if args.name not in benches:
        print(__doc__)
        sys.exit(0 if args.name is None else f"no benchmark '{args.name}'")
    print(json.dumps({"bench": args.name, **benches[args.name](args)}))


if __name__ == "__main__":
    main()
