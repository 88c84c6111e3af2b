#!/usr/bin/env python3
"""What `skerry-engine bench` measures, at a tiny shape.

usage: commands_test.py SKERRY_ENGINE
"""
import json
import subprocess
import sys
import unittest

SHAPE = ["--width", 16, "--depth", 2, "--heads", 2, "--patch-size", 4, "--device", -1]
PHASES = {"data", "forward", "backward", "optimiser"}


def engine(*words):
    return subprocess.run([ENGINE, *map(str, words)], capture_output=True, text=True)


class Bench(unittest.TestCase):
    SMALL = ["bench", "--image-size", 8, "--channels", 1, "--classes", 3, *SHAPE, "--warmup", 1, "--steps", 5]

    def test_measures_each_precision_and_batch(self):
        ran = engine(*self.SMALL, "--precision", "fp32,bf16", "--batch-size", "4,8", "-o", "json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        items = json.loads(ran.stdout)["items"]
        self.assertEqual([(i["precision"], i["batch_size"]) for i in items],
                         [("fp32", 4), ("fp32", 8), ("bf16", 4), ("bf16", 8)])
        for item in items:
            self.assertEqual((item["model"], item["device"], item["fits"]), ("16x2/4", "cpu", True))
            self.assertAlmostEqual(item["images_per_second"] * item["step_seconds"], item["batch_size"], places=6)
            self.assertAlmostEqual(item["share_of_peak"], item["flops_per_second"] / item["peak_flops_per_second"])
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
        ran = engine("bench", "--preset", "S/8,S/4", "--image-size", 8, "--device", -1, "--batch-size", 1, "--warmup", 1, "--steps", 1)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for word in ("S/8", "S/4", "IMAGES/S", "OF PEAK", "optimiser"):
            self.assertIn(word, ran.stdout)

    def test_refusals(self):
        for words in (["--preset", "Q/2"], ["--precision", "fp8"], ["--batch-size", "0"], ["--steps", "0"], ["--kernels", "magic"]):
            self.assertEqual(engine(*self.SMALL, *words).returncode, 2, words)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ENGINE = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
