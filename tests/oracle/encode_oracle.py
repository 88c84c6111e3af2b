#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ingests captioned pictures with `skerry-engine ingest --text-encoder`.

Compares the shards with what transformers makes of the captions. Then kills ingestions with both
encoders again and again, and compares their bytes with those of one that was left alone.

usage: encode_oracle.py SKERRY_ENGINE [--kills N]

  --kills N   how often ingestions are killed (6); prints what it measured

Exit status 77, which ctest counts as skipped, if diffusers or transformers is not installed:
./dev setup installs them.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import unittest

from autoencoder_oracle import KINDS, SCRATCH, autoencoder, write_pictures
from captions import caption, write_tokenizer
from text_oracle import encoder

os.environ.update(HF_HOME=SCRATCH.name)
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import T5Tokenizer  # noqa: E402

LONGEST = 20
TOP = pathlib.Path(SCRATCH.name)


def setUpModule():
    """A pipeline's folder: the text encoder with its tokenizer, and an autoencoder."""
    write_tokenizer(TOP / "pipeline/tokenizer", vocabulary=100)
    made = encoder(vocab_size=320)
    made.save_pretrained(TOP / "pipeline/text_encoder", max_shard_size="200KB")
    autoencoder(**KINDS["as Flux's"]).save_pretrained(TOP / "pipeline/vae")
    Case.made = made


class Case(unittest.TestCase):
    def setUp(self):
        self.top = TOP / self.id().rsplit(".", 1)[-1]
        self.top.mkdir()
        self.addCleanup(shutil.rmtree, self.top)

    def write_captioned(self, count, size):
        """Pictures, three of four with a caption. Returns {path: its text}."""
        drawn = random.Random(2)
        self.pictures = write_pictures(self.top / "in", count, size)
        texts = {}
        for number, (path, _) in enumerate(self.pictures):
            texts[path] = caption(drawn, 1, 30) if number % 4 else ""
            if texts[path]:
                path.with_suffix(".txt").write_text(f" {texts[path].upper()}\n")
        return texts

    def command(self, *words, out="out", folder=TOP / "pipeline"):
        return [ENGINE, "ingest", self.top / "in", "--out", self.top / out, "--partitions", "2",
                "--device", "-1", "--progress", "json", "--text-encoder", folder,
                *words]  # fmt: skip

    def ingest(self, *words, **how):
        return subprocess.run(self.command(*words, **how), capture_output=True, text=True)

    def index(self, out="out"):
        return json.loads((self.top / out / "dataset.json").read_text())

    def hashes(self, out):
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.top / out).iterdir()
        }


class Shards(Case):
    @torch.no_grad()
    def expected(self, texts, longest):
        tokenizer = T5Tokenizer.from_pretrained(str(TOP / "pipeline/tokenizer"))
        out = {}
        for text in set(texts):
            ids = tokenizer(text.lower().strip(), truncation=True, max_length=longest).input_ids
            out[text] = self.made(torch.tensor([ids])).last_hidden_state[0]
        return out

    def assert_tokens(self, expected, found, text):
        self.assertEqual(expected.shape, found.shape, text)
        limit = expected.abs() * 2**-11 + 1e-5
        self.assertTrue(((expected - found).abs() <= limit).all(), text)

    def test_hold_what_transformers_makes_of_each_caption(self):
        texts = self.write_captioned(120, 8)
        ran = self.ingest("--longest", str(LONGEST))
        self.assertEqual(0, ran.returncode, ran.stderr)
        text_of = {pixels.tobytes(): texts[path] for path, pixels in self.pictures}
        expected = self.expected([*texts.values(), ""], LONGEST)
        index = self.index()
        self.assertEqual((48, LONGEST), (index["text"]["dim"], index["text"]["longest"]))
        self.assertRegex(index["text"]["encoder"], "^t5:[0-9a-f]{12}$")
        seen = 0
        for file in index["files"]:
            if file["role"] not in ("shard", "fit", "test"):
                continue
            samples = load_file(self.top / "out" / file["name"])
            held = load_file(
                self.top / "out" / ("captions-" + file["name"].removeprefix("shard-"))
            )
            begin, tokens = held["begin"], held["tokens"].float()
            self.assert_tokens(expected[""], tokens[: begin[1]], "row 0 is the null caption")
            for image, row in zip(samples["images"], samples["caption"].tolist(), strict=True):
                text = text_of[image.permute(1, 2, 0).contiguous().numpy().tobytes()]
                self.assertEqual(row == 0, text == "")
                self.assert_tokens(expected[text], tokens[begin[row] : begin[row + 1]], text)
                seen += 1
        self.assertEqual(len(texts), seen)
        done = json.loads(ran.stdout.splitlines()[-1])
        tokenizer = T5Tokenizer.from_pretrained(str(TOP / "pipeline/tokenizer"))
        long = sum(len(tokenizer(text).input_ids) > LONGEST for text in set(texts.values()))
        self.assertGreater(long, 10)
        self.assertEqual(long, done["captions_cut"])
        self.assertIn(f"{long} captions were cut to {LONGEST} tokens", ran.stderr)
        self.assertEqual(30, done["uncaptioned"])
        self.assertFalse((self.top / "out.encoded").exists())

    def test_names_of_classes_are_captions_too(self):
        self.write_captioned(40, 8)
        ran = self.ingest("--captions", "class")
        self.assertEqual(0, ran.returncode, ran.stderr)
        done = json.loads(ran.stdout.splitlines()[-1])
        self.assertEqual((2, 0), (done["captions"], done["uncaptioned"]))


class Refusing(Case):
    def setUp(self):
        super().setUp()
        self.write_captioned(12, 8)
        shutil.copytree(TOP / "pipeline", self.top / "pipeline")

    def assert_refused(self, why, *words, status=2, folder="pipeline"):
        ran = self.ingest(*words, folder=self.top / folder)
        self.assertEqual(status, ran.returncode, ran.stderr)
        self.assertIn(why, ran.stderr)
        self.assertFalse((self.top / "out").exists())

    def test_another_kind_of_encoder(self):
        config = self.top / "pipeline/text_encoder/config.json"
        config.write_text('{"model_type": "clip_text_model", "architectures": ["CLIPTextModel"]}')
        self.assert_refused("expected T5, found CLIPTextModel: use --caption-embeddings")
        why = "nothing/config.json: expected the folder of a T5"
        self.assert_refused(why, status=3, folder="nothing")

    def test_no_tokenizer_or_a_broken_one(self):
        model = self.top / "pipeline/tokenizer/spiece.model"
        model.write_text("no model")
        self.assert_refused("expected the SentencePiece model of the encoder")
        model.unlink()
        self.assert_refused(f"there is no tokenizer: expected {model}")

    def test_a_tokenizer_of_another_encoder(self):
        write_tokenizer(self.top / "pipeline/tokenizer", vocabulary=400)
        config = self.top / "pipeline/tokenizer/tokenizer_config.json"
        config.write_text('{"extra_ids": 3000}')
        text = next((self.top / "in").rglob("*.txt"))
        text.write_text("a bird <extra_id_0>")
        self.assert_refused("the tokenizer is not that of this encoder")
        config.write_text('{"extra_ids": -1}')
        self.assert_refused("tokenizer_config.json: extra_ids: expected 0 to 100000, found -1")

    def test_ten_malformed_files_of_each_encoder(self):
        """Each is named, and the status is 2, as for any malformed file."""

        def text(words):
            return lambda path: path.write_text(words)

        def keys(**changed):
            def change(path):
                path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

            return change

        def cut(path):
            path.write_bytes(path.read_bytes()[:-100])

        def header(length):
            return lambda path: path.write_bytes(
                length.to_bytes(8, "little") + path.read_bytes()[8:]
            )

        def tensors(change):
            def apply(path):
                held = load_file(path)
                change(held, min(name for name in held if name.startswith("encoder.")))
                save_file(held, path)

            return apply

        def reshape(held, name):
            held[name] = torch.zeros(3, 3, 3)

        def whole_numbers(held, name):
            held[name] = torch.zeros(held[name].shape, dtype=torch.int32)

        def weights_of(folder):
            return sorted(folder.glob("*.safetensors"))[0].name

        def malform(size):
            weights = weights_of(self.top / "pipeline" / part)
            return [
                ("config.json", text("{")),
                ("config.json", text("[]")),
                ("config.json", keys(**{size: "many"})),
                ("config.json", keys(**{size: -4})),
                (weights, text("")),
                (weights, cut),
                (weights, header(1 << 60)),
                (weights, tensors(lambda held, name: held.pop(name))),
                (weights, tensors(reshape)),
                (weights, tensors(whole_numbers)),
            ]

        for part, size in {"text_encoder": "d_model", "vae": "latent_channels"}.items():
            words = ["--vae", self.top / "pipeline/vae"] if part == "vae" else []
            for number, (name, change) in enumerate(malform(size)):
                with self.subTest(f"{part} {number}: {name}"):
                    folder = self.top / "pipeline" / part
                    kept = (folder / name).read_bytes()
                    change(folder / name)
                    self.assert_refused(str(folder), *words)
                    (folder / name).write_bytes(kept)
        for number, content in enumerate([b"", b"PK\3\4", b"no script"]):
            with self.subTest(f"TorchScript {number}"):
                script = self.top / "script.pt"
                script.write_bytes(content)
                self.assert_refused(str(script), "--vae", script)

    def test_infinities_name_the_caption(self):
        for path in (self.top / "pipeline/text_encoder").glob("*.safetensors"):
            tensors = load_file(path)
            name = "encoder.final_layer_norm.weight"
            if name in tensors:
                tensors[name] = tensors[name] * 1e6
                save_file(tensors, path)
        self.assert_refused('the caption "": expected finite numbers up to 65504')

    def test_captions(self):
        text = next((self.top / "in").rglob("*.txt"))
        text.write_bytes(b"a \xff bird")
        self.assert_refused(f"{text.name}: expected a caption in UTF-8")
        text.unlink()
        listed = self.top / "in/metadata.jsonl"
        listed.write_text('{"file_name": "kind-0/0000.png"}\n{"file_name": "gone.png"}')
        self.assert_refused("metadata.jsonl line 2: it names gone.png, which is no image")
        listed.unlink()
        for text in (self.top / "in").rglob("*.txt"):
            text.unlink()
        self.assert_refused("not one sample has a caption for --text-encoder")

    def test_options_that_exclude_each_other(self):
        self.assert_refused("leave one of them out", "--captions", "off")
        self.assert_refused("leave one of them out", "--caption-embeddings", "some.safetensors")


class Killed(Case):
    """At drawn stages; each attempt goes on where the one before was."""

    def test_again_and_again_it_ends_with_the_same_bytes(self):
        self.write_captioned(40 * KILLS if KILLS < 20 else 800, 16)
        words = ["--vae", TOP / "pipeline/vae", "--image-size", "16"]
        begun = time.monotonic()
        self.assertEqual(0, self.ingest(*words, out="whole").returncode)
        alone = time.monotonic() - begun
        whole, drawn = self.hashes("whole"), random.Random(3)
        kills, rounds, resumed = {}, 0, 0
        while sum(kills.values()) < KILLS or not rounds:
            (stage,) = drawn.choices(["encode", "captions", "components", "write"], [2, 2, 1, 1])
            lines = drawn.randint(2, 6) if stage in ("encode", "captions") else 1
            engine = subprocess.Popen(
                self.command(*words, out="killed"), stdout=subprocess.PIPE, text=True
            )
            for line in engine.stdout:
                told = json.loads(line)
                lines -= told["stage"] == stage
                if lines == 0 and sum(kills.values()) < KILLS:
                    engine.kill()
                    break
            engine.communicate()
            if engine.returncode == 0:  # it was not killed in time
                self.assertEqual(whole, self.hashes("killed"))
                shutil.rmtree(self.top / "killed")
                resumed += told["resumed"] + told["captions_resumed"]
                rounds += 1
            else:
                self.assertEqual(-9, engine.returncode)
                kills[stage] = kills.get(stage, 0) + 1
        self.assertGreater(resumed, 0)
        self.assertFalse((self.top / "killed.encoded").exists())
        print(
            f"{sum(kills.values())} kills {kills} of an ingestion that takes {alone:.1f} s: "
            f"{rounds} times complete, each with the same bytes; {resumed} images and captions "
            f"were not encoded again",
            file=sys.stderr,
        )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ENGINE, words = sys.argv[1], sys.argv[2:]
    KILLS = 6
    if words[:1] == ["--kills"]:
        KILLS, words = int(words[1]), words[2:]
    unittest.main(argv=[sys.argv[0], *words])
