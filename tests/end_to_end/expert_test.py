#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An expert leaves the run and joins it again.

The router follows from the remaining partitions, and needs no training. Meanwhile a person previews
what the others have learned.
"""

import hashlib
import json
import unittest

from case import EndToEnd

KEPT_OUT = 4
DRAWN = ("-n", "10", "--steps", "4")


def weights(folder, expert):
    return hashlib.sha256(
        (folder / f"expert_{expert}" / "diffusion_pytorch_model.safetensors").read_bytes()
    ).hexdigest()


class Expert(EndToEnd):
    def accuracy(self, it, ensemble):
        done = it.engine_run("evaluate", it.root / "dataset", "--router-of", ensemble, "-o", "json")
        measured = json.loads(done.stdout)
        return {level["t"]: level["accuracy"] for level in measured["router"]["levels"]}

    def check_previews(self, it, watch, pictures, ensemble):
        """Those of the four experts, from before their first commits to the end of the run."""
        self.assertEqual(watch.popen.wait(300), 0, watch.tail())
        drawn = [json.loads(line) for line in watch.log_text().splitlines() if line.startswith("{")]
        names = [f"step-{each['step']:08}.png" for each in drawn]
        print(
            "previews:",
            [
                (each["step"], [e["step"] for e in each["experts"]], each["seconds"])
                for each in drawn
            ],
        )
        self.assertEqual([str(pictures / name) for name in names], [each["path"] for each in drawn])
        self.assertEqual(sorted(set(names)), names)
        self.assertEqual(drawn[-1]["experts"], [{"index": k, "step": 60} for k in range(4)])
        self.assertEqual(names[-1], "step-00000060.png")
        self.assertEqual(
            sorted(p.name for p in pictures.iterdir()),
            sorted([*names, "latest.png", "preview.json"]),
        )
        it.run("run", "preview", "run", "-o", pictures, *DRAWN, "--experts")
        it.run("sample", ensemble, *DRAWN, "-o", it.root / "fetched.png")
        it.run("sample", ensemble, *DRAWN, "--expert", "2", "-o", it.root / "second.png")
        for drawn_so, fetched in (
            ("latest", "fetched"),
            ("step-00000060", "fetched"),
            ("step-00000060-expert-2", "second"),
        ):
            self.assertEqual(
                (pictures / f"{drawn_so}.png").read_bytes(),
                (it.root / f"{fetched}.png").read_bytes(),
            )
        self.assertNotEqual(
            (it.root / "fetched.png").read_bytes(), (it.root / "second.png").read_bytes()
        )

    def test_one_of_five_partitions_is_kept_out_and_added(self):
        it = self.cluster(fake=False)
        it.start_coordinator()
        it.add_dataset(partitions=5, images=1000)
        it.create_run("run")
        it.run("run", "expert", "remove", "run", str(KEPT_OUT))
        pictures = it.root / "pictures"
        watch = it.follow(
            "watch", "-o", "json", "run", "preview", "run", "-o", pictures, *DRAWN, "--watch"
        )
        self.addCleanup(watch.kill)
        it.wait(
            lambda: "waiting for the first commit of expert 0" in watch.log_text(),
            "it to wait",
            watch,
        )
        it.start_daemon("one")
        it.start_daemon("two")
        it.wait_run("run")
        shown = it.experts("run")
        self.assertEqual([e["phase"] for e in shown], ["done"] * 4 + ["removed"])
        self.assertEqual(shown[KEPT_OUT]["step"], 0)
        four, five = it.root / "four", it.root / "five"
        it.run("ensemble", "fetch", "run", "-o", four)
        self.assertEqual(
            [e["index"] for e in json.loads((four / "ensemble.json").read_text())["experts"]],
            [0, 1, 2, 3],
        )
        it.run(
            "sample", four, "-n", "4", "--steps", "2", "--route", "top2", "-o", it.root / "four.png"
        )
        self.check_previews(it, watch, pictures, four)

        it.run("run", "expert", "add", "run", str(KEPT_OUT))
        it.wait_run("run")
        it.run("ensemble", "fetch", "run", "-o", five)
        self.assertEqual([weights(five, k) for k in range(4)], [weights(four, k) for k in range(4)])
        self.assertTrue((five / "router" / f"partition-{KEPT_OUT}.safetensors").exists())

        it.engine_run(
            "ingest", it.root / "shapes-images", "--out", it.root / "dataset", "--partitions", 5
        )
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
