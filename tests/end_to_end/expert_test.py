#!/usr/bin/env python3
"""An expert leaves the run and joins it: the router follows from the partitions that are left, and nothing is trained for it."""
import hashlib
import json
import unittest

from case import EndToEnd

KEPT_OUT = 4


def weights(folder, expert):
    return hashlib.sha256((folder / f"expert_{expert}" / "diffusion_pytorch_model.safetensors").read_bytes()).hexdigest()


class Expert(EndToEnd):
    def accuracy(self, it, ensemble):
        done = it.engine_run("evaluate", it.root / "dataset", "--router-of", ensemble, "-o", "json")
        measured = json.loads(done.stdout)
        return {level["t"]: level["accuracy"] for level in measured["router"]["levels"]}

    def test_one_of_five_partitions_is_kept_out_and_added(self):
        it = self.cluster(fake=False)
        it.start_coordinator()
        it.add_dataset(partitions=5, images=1000)
        it.create_run("run")
        it.run("run", "expert", "remove", "run", str(KEPT_OUT))
        it.start_daemon("one")
        it.start_daemon("two")
        it.wait_run("run")
        shown = it.experts("run")
        self.assertEqual([e["phase"] for e in shown], ["done"] * 4 + ["removed"])
        self.assertEqual(shown[KEPT_OUT]["step"], 0)
        four, five = it.root / "four", it.root / "five"
        it.run("ensemble", "fetch", "run", "-o", four)
        self.assertEqual([e["index"] for e in json.loads((four / "ensemble.json").read_text())["experts"]], [0, 1, 2, 3])
        it.run("sample", four, "-n", "4", "--steps", "2", "--route", "top2", "-o", it.root / "four.png")

        it.run("run", "expert", "add", "run", str(KEPT_OUT))
        it.wait_run("run")
        it.run("ensemble", "fetch", "run", "-o", five)
        self.assertEqual([weights(five, k) for k in range(4)], [weights(four, k) for k in range(4)])
        self.assertTrue((five / "router" / f"partition-{KEPT_OUT}.safetensors").exists())

        it.engine_run("ingest", it.root / "shapes-images", "--out", it.root / "dataset", "--partitions", 5)
        before, after = self.accuracy(it, four), self.accuracy(it, five)
        print("router accuracy by t, four of five partitions:", before, "all five:", after)
        for t in (0.1, 0.3):
            self.assertGreater(after[t], before[t])
            self.assertLessEqual(before[t], 0.9)  # what the fifth holds is never found
        it.run("run", "expert", "remove", "run", "0")
        self.assertEqual(it.experts("run")[0]["phase"], "removed")
        last = it.run("run", "expert", "remove", "run", "9", check=False)
        self.assertEqual(last.returncode, 3)


if __name__ == "__main__":
    unittest.main()
