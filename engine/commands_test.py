#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `skerry-engine bench` measures, what `skerry-engine train --profile` writes, and how
`skerry-engine train` reads captions, at a tiny shape.

usage: commands_test.py SKERRY_ENGINE
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests/end_to_end"))
from cluster import write_embeddings, write_idx, write_tensors  # noqa: E402

SHAPE = ["--width", 16, "--depth", 2, "--heads", 2, "--patch-size", 4, "--device", -1]
PHASES = {"data", "forward", "backward", "optimiser"}


def engine(*words):
    return subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True)


class Bench(unittest.TestCase):
    SMALL = [
        "bench",
        "--image-size",
        8,
        "--channels",
        1,
        "--classes",
        3,
        *SHAPE,
        "--warmup",
        1,
        "--steps",
        5,
    ]

    def test_measures_each_precision_and_batch(self):
        ran = engine(*self.SMALL, "--precision", "fp32,bf16", "--batch-size", "4,8", "-o", "json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        items = json.loads(ran.stdout)["items"]
        self.assertEqual(
            [(i["precision"], i["batch_size"]) for i in items],
            [("fp32", 4), ("fp32", 8), ("bf16", 4), ("bf16", 8)],
        )
        for item in items:
            self.assertEqual((item["model"], item["device"], item["fits"]), ("16x2/4", "cpu", True))
            self.assertAlmostEqual(
                item["images_per_second"] * item["step_seconds"], item["batch_size"], places=6
            )
            self.assertAlmostEqual(
                item["share_of_peak"], item["flops_per_second"] / item["peak_flops_per_second"]
            )
            self.assertGreater(item["memory_bytes"], 16 * item["parameters"])

    def test_the_phases_are_the_step(self):
        ran = engine(*self.SMALL, "--batch-size", 64, "-o", "json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (item,) = json.loads(ran.stdout)["items"]
        phases = item["phase_seconds"]
        self.assertEqual(set(phases), PHASES | {"other"})
        for phase in PHASES:
            self.assertGreater(phases[phase], 0)
        self.assertGreaterEqual(phases["other"], 0)
        self.assertLess(phases["other"], item["watched_step_seconds"] / 2)
        self.assertAlmostEqual(sum(phases.values()), item["watched_step_seconds"])

    def test_a_larger_batch_holds_more(self):
        ran = engine(*self.SMALL, "--batch-size", "4,64", "-o", "json")
        few, many = json.loads(ran.stdout)["items"]
        self.assertGreater(many["memory_bytes"], few["memory_bytes"])

    def test_table_of_presets(self):
        ran = engine(
            "bench",
            "--preset",
            "S/8,S/4",
            "--image-size",
            8,
            "--device",
            -1,
            "--batch-size",
            1,
            "--warmup",
            1,
            "--steps",
            1,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for word in ("S/8", "S/4", "IMAGES/S", "OF PEAK", "optimiser"):
            self.assertIn(word, ran.stdout)

    def test_refusals(self):
        for words in (
            ["--preset", "Q/2"],
            ["--precision", "fp8"],
            ["--batch-size", "0"],
            ["--steps", "0"],
            ["--kernels", "magic"],
        ):
            self.assertEqual(engine(*self.SMALL, *words).returncode, 2, words)


    def test_a_pixart_computes_more(self):
        ran = [
            engine(*self.SMALL, "--architecture", name, "--caption-dim", 8, "-o", "json")
            for name in ("dit", "pixart")
        ]
        self.assertEqual([0, 0], [each.returncode for each in ran], ran[1].stderr)
        dit, pixart = (json.loads(each.stdout)["items"][0] for each in ran)
        self.assertGreater(
            pixart["flops_per_second"] * pixart["step_seconds"],
            1.5 * dit["flops_per_second"] * dit["step_seconds"],
        )


class Check(unittest.TestCase):
    def test_the_cpu_takes_a_step(self):
        ran = engine("check", "--device", -1)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"^cpu: one training step, \d+ ms\n$")

    def test_a_card_that_is_not_there_is_no_cpu(self):
        ran = subprocess.run(
            [ENGINE, "check"],
            capture_output=True,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        self.assertEqual(ran.returncode, 3, ran.stdout)
        self.assertIn("finds no CUDA device 0", ran.stdout)


class Profile(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.top = pathlib.Path(made.name)
        write_idx(self.top / "images", 40)
        ran = engine(
            "ingest", self.top / "images", "--out", self.top / "dataset", "--partitions", 1
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def train(self, *words):
        return engine(
            "train",
            "--standalone",
            "--dataset",
            self.top / "dataset",
            "--out",
            self.top / "checkpoint",
            *SHAPE,
            "--batch-size",
            4,
            "--steps",
            6,
            *words
        )

    def test_a_trace_of_a_few_steps(self):
        ran = self.train(
            "--profile", self.top / "trace.json", "--profile-after", 2, "--profile-steps", 3
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        names = [
            event.get("name")
            for event in json.loads((self.top / "trace.json").read_text())["traceEvents"]
        ]
        for phase in PHASES:
            self.assertEqual(names.count(phase), 3, phase)
        self.assertTrue(any(str(name).startswith("aten::") for name in names))
        self.assertTrue((self.top / "checkpoint").exists())

    def test_the_same_bytes_as_without(self):
        self.assertEqual(self.train().returncode, 0)
        plain = (self.top / "checkpoint").read_bytes()
        self.assertEqual(
            self.train("--profile", self.top / "trace.json", "--profile-after", 1).returncode, 0
        )
        self.assertEqual((self.top / "checkpoint").read_bytes(), plain)

    def test_too_few_steps_are_refused_before_the_first(self):
        ran = self.train(
            "--profile", self.top / "trace.json", "--profile-after", 4, "--profile-steps", 3
        )
        self.assertEqual(ran.returncode, 2)
        self.assertIn("expected at least 7 steps, found 6", ran.stderr)
        self.assertFalse((self.top / "checkpoint").exists())


IMAGES, TOKENS, DIM = 60, 3, 8


def averaged_weights(checkpoint):
    """The tensors ema/… of a checkpoint, by their own names."""
    content = checkpoint.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    return {
        name[4:]: (info["dtype"], info["shape"], data[slice(*info["data_offsets"])])
        for name, info in header.items()
        if name.startswith("ema/")
    }


class Captions(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.top = pathlib.Path(made.name)
        write_idx(self.top / "images", IMAGES)
        write_embeddings(self.top / "embeddings", IMAGES, TOKENS, DIM)
        self.ingest("dataset", "--caption-embeddings", self.top / "embeddings")

    def ingest(self, name, *words):
        images, out = self.top / "images", self.top / name
        ran = engine("ingest", images, "--out", out, "--partitions", 2, *words)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def train(self, out, *words, dataset="dataset"):
        return engine(
            "train",
            "--standalone",
            "--dataset",
            self.top / dataset,
            "--out",
            self.top / out,
            *SHAPE,
            "--batch-size",
            4,
            "--steps",
            6,
            *words,
        )

    def test_a_dataset_with_text_trains_a_pixart(self):
        ran = self.train("whole")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        whole = (self.top / "whole").read_bytes()
        self.assertIn(b'"raw/caption_projection.linear_1.weight"', whole)
        self.assertEqual(self.train("half", "--stop-after", 3).returncode, 0)
        self.assertEqual(self.train("rest", "--resume", self.top / "half").returncode, 0)
        self.assertEqual((self.top / "rest").read_bytes(), whole)

    def test_a_dit_and_a_router_leave_the_captions_aside(self):
        for words in (["--architecture", "dit"], ["--router"]):
            ran = self.train("plain", *words)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertNotIn(b"caption", (self.top / "plain").read_bytes())

    def test_an_ensemble_is_measured_and_sampled_by_prompts(self):
        ensemble = self.top / "ensemble"
        for k in (0, 1):
            ran = self.train(f"checkpoint-{k}", "--expert", k)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            folder = ensemble / f"expert_{k}"
            folder.mkdir(parents=True)
            write_tensors(
                folder / "diffusion_pytorch_model.safetensors",
                averaged_weights(self.top / f"checkpoint-{k}"),
            )
        (ensemble / "router").mkdir()
        for name in ("router", "partition-0", "partition-1"):
            shutil.copy(self.top / f"dataset/{name}.safetensors", ensemble / "router")
        dataset = json.loads((self.top / "dataset/dataset.json").read_text())
        index = {key: dataset[key] for key in ("classes", "image_size", "channels")}
        shape = {"width": 16, "depth": 2, "heads": 2, "patch_size": 4, "caption_dim": DIM}
        index |= {"format": 1, "experts": [{"index": 0}, {"index": 1}], "model": shape}
        (ensemble / "ensemble.json").write_text(json.dumps(index))

        words = ["--device", -1, "--steps", 2, "-n", 3, "--json"]
        silent = engine("sample", ensemble, *words)
        self.assertEqual(silent.returncode, 2)
        self.assertIn("--prompt-embeddings", silent.stderr)
        ran = engine("sample", ensemble, *words, "--prompt-embeddings", self.top / "embeddings")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(json.loads(ran.stdout)["labels"], [-1] * 3)
        evaluate = ["evaluate", self.top / "dataset", "--velocity", ensemble, "--device", -1]
        ran = engine(*evaluate)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (self.top / "dataset/captions-test.safetensors").unlink()
        ran = engine(*evaluate)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("captions-test.safetensors", ran.stderr)

    def test_a_pixart_needs_text(self):
        self.ingest("silent")
        ran = self.train("none", "--architecture", "pixart", dataset="silent")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("the dataset has none", ran.stderr)
        self.assertEqual(self.train("none", "--architecture", "unet").returncode, 2)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ENGINE = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
