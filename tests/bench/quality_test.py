#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the measures of ./dev bench quality, and one tiny comparison from images to the table.

usage: quality_test.py FOLDER_OF_PROGRAMS

Exit status 77, which ctest counts as skipped, if the packages that read images are missing: ./dev
setup installs them.
"""

import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from cluster import write_idx  # noqa: E402
from quality import IMAGES  # noqa: E402  (exits with 77 if something is missing)
from quality_comparison import forward_cost, split_arm  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from quality_measure import (
    CLASSIFIERS,
    FEATURES,
    Classifier,
    frechet,
    nearest,
    read_images,
    write_unlabelled,
)  # noqa: E402

FASHION = pathlib.Path(IMAGES["fashion-mnist"])


def with_moments(mean, covariance, count=50, seed=0):
    """Rows whose mean and covariance are exactly these."""
    rows = np.random.default_rng(seed).standard_normal((count, len(mean)))
    rows -= rows.mean(0)
    rows = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows, rowvar=False))).T
    return rows @ np.linalg.cholesky(np.array(covariance)).T + mean


class Distances(unittest.TestCase):
    def test_frechet_of_a_set_to_itself_is_nothing(self):
        rows = with_moments([1, 2, 3], np.diag([1, 4, 9]))
        self.assertAlmostEqual(frechet(rows, rows), 0, places=9)

    def test_frechet_of_independent_features(self):
        a, b = with_moments([0, 0, 1], np.diag([1.0, 4, 9])), with_moments(
            [3, 4, 1], np.diag([4.0, 4, 1]), seed=1
        )
        self.assertAlmostEqual(frechet(a, b), 3**2 + 4**2 + (1 - 2) ** 2 + (3 - 1) ** 2, places=6)

    def test_frechet_of_covariances_that_do_not_commute(self):
        one, other = [[2, 1], [1, 3]], [[4, -1], [-1, 1]]
        # Of a 2x2 matrix, tr √M = √(tr M + 2·√det M).
        product = np.array(one) @ np.array(other)
        shared = np.sqrt(np.trace(product) + 2 * np.sqrt(np.linalg.det(product)))
        found = frechet(with_moments([0, 0], one), with_moments([0, 0], other, seed=1))
        self.assertAlmostEqual(found, 5 + 5 - 2 * shared, places=6)

    def test_nearest_is_the_root_mean_square_of_pixels(self):
        among = np.zeros((3, 1, 4, 4), np.uint8)
        among[1], among[2] = 100, 200
        some = np.stack([among[1], among[1] + 10, among[2]])
        some[2, 0, 0, 0] = 240  # one of 16 pixels is 40 off
        for block in (1, 500):
            np.testing.assert_allclose(nearest(some, among, block=block), [0, 10, 10], atol=1e-3)


class Classifiers(unittest.TestCase):
    def test_each_file_is_of_its_dataset_and_has_features(self):
        for path in CLASSIFIERS.glob("*.npz"):
            it = Classifier(path)
            about = it.about
            self.assertEqual(about["dataset"], path.stem)
            self.assertLess(path.stat().st_size, 500_000)
            images = np.zeros((3, about["channels"], about["size"], about["size"]), np.uint8)
            images[1] = 255
            features = it.features(images)
            self.assertEqual(features.shape, (3, FEATURES))
            np.testing.assert_array_equal(features[0], features[2])
            self.assertGreater(np.abs(features[0] - features[1]).max(), 0.1)

    @unittest.skipUnless(FASHION.exists(), "Debian's dataset-fashion-mnist is not here")
    def test_accuracy_is_what_the_file_says(self):
        it = Classifier(CLASSIFIERS / "fashion-mnist.npz")
        self.assertGreater(it.about["accuracy"], 0.88)
        self.assertAlmostEqual(
            it.accuracy(*read_images("fashion-mnist", FASHION, held_out=True)),
            it.about["accuracy"],
            delta=0.002,
        )


class Tars(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        self.images = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), np.uint8)
        for part, rows in {
            "train-000000": [0, 1],
            "train-000001": [2, 3],
            "train-000004": [4, 5],
        }.items():
            with tarfile.open(self.folder / f"{part}.tar", "w") as tar:
                for row in rows:
                    picture = io.BytesIO()
                    Image.fromarray(self.images[row].transpose(1, 2, 0)).save(picture, "PNG")
                    for name, data in (
                        (f"{row}.cls", str(row).encode()),
                        (f"{row}.png", picture.getvalue()),
                    ):
                        member = tarfile.TarInfo(name)
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))

    def test_the_last_is_held_out(self):
        for held_out, rows in ((False, [0, 1, 2, 3]), (True, [4, 5])):
            images, labels = read_images("cifar-10", self.folder, held_out)
            np.testing.assert_array_equal(images, self.images[rows])
            self.assertEqual(list(labels), rows)

    def test_what_is_trained_on_has_no_labels_and_none_that_is_held_out(self):
        out = self.folder / "out"
        write_unlabelled("cifar-10", self.folder, out)
        self.assertEqual(
            sorted(path.name for path in out.iterdir()), ["train-000000.tar", "train-000001.tar"]
        )
        engine = subprocess.run(
            [
                BIN / "skerry-engine",
                "ingest",
                out,
                "--out",
                self.folder / "dataset",
                "--partitions",
                "1",
            ],
            capture_output=True,
            text=True,
        )
        self.assertEqual(engine.returncode, 0, engine.stderr)
        index = json.loads((self.folder / "dataset" / "dataset.json").read_text())
        self.assertEqual(
            (index["samples"], index["channels"], index["classes"]), (2, 3, [])
        )  # and two are held back


class Plan(unittest.TestCase):
    def test_cost_of_the_papers_shape(self):
        self.assertAlmostEqual(forward_cost(1152, 28, 256) / 118.6e9, 1, delta=0.02)

    def test_arms(self):
        self.assertEqual(split_arm("monolith"), ("monolith", "ancestral", None))
        self.assertEqual(split_arm("top2"), ("clusters", "top2", "analytic"))
        self.assertEqual(split_arm("learned-full"), ("clusters", "full", "learned"))
        self.assertEqual(split_arm("random-full"), ("random", "full", "analytic"))


class Whole(unittest.TestCase):
    ARMS = ["ancestral", "top2", "learned-full", "random-full"]

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.top = pathlib.Path(made.name)
        write_idx(self.top / "images", 400)
        write_idx(self.top / "others", 100, seed=4)
        for path in (self.top / "others").iterdir():
            path.rename(self.top / "images" / path.name.replace("train", "t10k"))

    def compare(self, *more, fails=False):
        ran = subprocess.run(
            [
                sys.executable,
                "-B",
                pathlib.Path(__file__).parent / "quality.py",
                "--bin",
                BIN,
                "--work",
                self.top / "work",
                "--images",
                self.top / "images",
                "--partitions",
                "2",
                "--arms",
                ",".join(self.ARMS),
                "--seeds",
                "0",
                "--model",
                "tiny",
                "--patch-size",
                "7",
                "--steps",
                "4",
                "--batch-size",
                "8",
                "--rates",
                "1e-3,2e-3",
                "--points",
                "2",
                "--samples",
                "20",
                "--solver-steps",
                "2",
                "--device",
                "-1",
                *more,
            ],
            capture_output=True,
            text=True,
        )
        self.assertEqual(ran.returncode != 0, fails, ran.stdout + ran.stderr)
        return ran.stdout, ran.stderr

    def test_a_comparison_and_its_continuation(self):
        out, _ = self.compare()
        told = json.loads(out.splitlines()[-1])
        self.assertEqual(list(told["arms"]), ["monolith", *(f"2/{arm}" for arm in self.ARMS)])
        monolith = told["arms"]["monolith"]["frechet"]
        self.assertAlmostEqual(monolith, min(told["monolith_by_rate"].values()), places=3)
        rate = f"{told['learning_rate']:g}"
        self.assertAlmostEqual(monolith, told["monolith_by_rate"][rate], places=3)
        for arm in told["arms"].values():
            self.assertEqual(len(arm["over_training"]), 2)
            self.assertAlmostEqual(arm["ratio"], arm["frechet"] / monolith, places=2)
            self.assertGreater(arm["frechet"], told["floor"]["frechet"])  # four steps learn nothing
            self.assertGreater(arm["nearest_median"], told["floor"]["nearest_median"])
        self.assertEqual(told["ratio"], {"2": told["arms"]["2/ancestral"]["ratio"]})
        self.assertEqual(list(told["arms"]["monolith"]["velocity"]), ["0.2", "0.5", "0.8"])
        self.assertEqual(
            [error > 0 for error in told["router_cross_entropy"]["2"]["learned"]], [True, True]
        )

        work = self.top / "work"
        self.assertEqual(
            len(list(work.glob("seed-0/clusters-2-*/point-*/expert_*/*.safetensors"))), 4
        )
        (work / "seed-0" / "measured" / f"clusters-2-{rate}-top2-2.json").unlink()
        picture = self.top / "curves.png"
        again, _ = self.compare("--curves", picture)
        with Image.open(picture) as drawn:
            self.assertGreater(drawn.size[0], 1000)
        self.assertEqual(
            [line.split("] ")[1] for line in again.splitlines() if line.startswith("[")],
            [f"seed 0: sample clusters-2-{rate}, top2, 2 of 2"],
        )
        self.assertEqual(without_times(again), without_times(out))

    def test_a_lean_state(self):
        out, _ = self.compare(
            "--state", "lean", "--arms", "ancestral", "--rates", "1e-3", "--points", "1"
        )
        self.assertGreater(json.loads(out.splitlines()[-1])["arms"]["monolith"]["frechet"], 0)

    def test_weight_normalisation(self):
        self.compare("--weight-norm", "--arms", "ancestral", "--rates", "1e-2", "--points", "1")
        states = list((self.top / "work" / "seed-0").glob("*/expert-0.state"))
        self.assertEqual(len(states), 2)
        for state in states:
            rows = np.linalg.norm(
                load_file(state)["raw/transformer_blocks.0.attn1.to_q.weight"], axis=1
            )
            self.assertLess(np.ptp(rows), 1e-4 * rows[0], state)

    def test_results_of_other_settings_are_not_mixed_in(self):
        (self.top / "work").mkdir()
        (self.top / "work" / "settings.json").write_text("{}")
        self.assertIn("another dataset, model", self.compare(fails=True)[1])


def without_times(out):
    told = json.loads(out.splitlines()[-1])
    for arm in told["arms"].values():
        del arm["sampling_seconds"]
    return told


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    BIN = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1], verbosity=2)
