#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the engine's T5 encoder and tokenizer with transformers' (from PyPI).

usage: text_oracle.py RUN_TEXT_ENCODER_PROGRAM SKERRY_TOKENIZE

Exit status 77, which ctest counts as skipped, if transformers is not installed: ./dev setup
installs it.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SCRATCH = tempfile.TemporaryDirectory(prefix="skerry-text-")
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=SCRATCH.name, OMP_NUM_THREADS="1")
os.environ.update(TOKENIZERS_PARALLELISM="false")

try:
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from captions import caption, odd_text, write_tokenizer
    from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Tokenizer
except ImportError as missing:
    print(f"skipped: {missing}; ./dev setup installs transformers beside LibTorch")
    sys.exit(77)

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
LIMIT = 1e-5
SHAPE = {"vocab_size": 160, "d_model": 48, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_heads": 4}
KINDS = {
    "v1.0": {"feed_forward_proj": "relu"},
    "v1.1 and Flan": {"feed_forward_proj": "gated-gelu"},
    "other buckets": {
        "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 16,
        "relative_attention_max_distance": 40,
        "layer_norm_epsilon": 1e-3,
    },
}


def encoder(kind="v1.1 and Flan", of=T5EncoderModel, **shape):
    """Random weights, none of them at the value that it starts from."""
    torch.manual_seed(1)
    made = of(T5Config(**(SHAPE | shape), **KINDS[kind])).eval()
    for name, weight in made.named_parameters():
        weight.data *= 0.3 if "SelfAttention" in name else 1
        weight.data += 0.05 * torch.randn_like(weight)
    return made


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(dir=SCRATCH.name)
        self.addCleanup(made.cleanup)
        self.top = pathlib.Path(made.name)

    def saved(self, made, name="pipeline", **how):
        """A pipeline's folder. The tokenizer is not read here."""
        folder = self.top / name
        made.save_pretrained(folder / "text_encoder", **how)
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer/spiece.model").write_text("")
        return folder

    def config(self, folder, **changes):
        path = folder / "text_encoder/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def encode(self, folder, ids):
        """The engine's tokens, or why it refused."""
        save_file({"ids": ids.to(torch.int32)}, self.top / "ids")
        ran = subprocess.run(
            [RUN, folder, self.top / "ids", self.top / "tokens"], capture_output=True, text=True
        )
        return ran.stderr if ran.returncode else load_file(self.top / "tokens")["tokens"]

    def identity(self):
        with safe_open(self.top / "tokens", "pt") as file:
            return file.metadata()["identity"]

    def assert_same(self, made, folder, ids):
        found = self.encode(folder, ids)
        self.assertNotIsInstance(found, str, found)
        with torch.no_grad():
            expected = made(ids).last_hidden_state
        self.assertEqual(expected.shape, found.shape)
        self.assertGreater(expected.abs().max().item(), 0.5)
        self.assertLess((expected - found).abs().max().item(), LIMIT)


def ids_of(captions, length):
    drawn = torch.Generator().manual_seed(length)
    return torch.randint(0, SHAPE["vocab_size"], (captions, length), generator=drawn)


class Encoding(Case):
    def test_every_kind_and_length_as_transformers_does(self):
        for name in KINDS:
            made = encoder(name)
            folder = self.saved(made, name)
            for captions, length in ((1, 1), (5, 7), (3, 33), (2, 300)):
                with self.subTest(name, length=length):
                    self.assert_same(made, folder, ids_of(captions, length))

    def test_a_caption_without_padding_is_what_a_padded_batch_makes_of_it(self):
        made = encoder()
        folder, ids = self.saved(made), ids_of(2, 20)
        mask = torch.ones_like(ids)
        mask[1, 12:] = 0
        with torch.no_grad():
            expected = made(ids, attention_mask=mask).last_hidden_state[1, :12]
        found = self.encode(folder, ids[1:, :12])[0]
        self.assertLess((expected - found).abs().max().item(), LIMIT)

    def test_shards_and_weights_of_16_bits(self):
        ids, found = ids_of(3, 9), {}
        for name, type in (("bf16", torch.bfloat16), ("f16", torch.float16)):
            made = encoder().to(type)
            for shards, how in ((False, {}), (True, {"max_shard_size": "20KB"})):
                with self.subTest(name, shards=shards):
                    folder = self.saved(made, f"{name} {shards}", **how)
                    files = list((folder / "text_encoder").glob("*.safetensors"))
                    self.assertEqual(len(files) > 1, shards)
                    self.assert_same(made.float(), folder, ids)
                    found[name, shards] = self.identity()
                    made.to(type)
        self.assertEqual(found["bf16", False], found["bf16", True])
        self.assertNotEqual(found["bf16", False], found["f16", False])

    def test_a_folder_with_the_decoder_too_that_holds_everything_itself(self):
        made = encoder(of=T5ForConditionalGeneration)
        made.save_pretrained(self.top / "whole")
        (self.top / "whole/spiece.model").write_text("")
        self.assert_same(made.get_encoder(), self.top / "whole", ids_of(2, 5))

    def test_the_other_name_of_the_table_of_tokens(self):
        made = encoder()
        folder = self.saved(made)
        weights = folder / "text_encoder/model.safetensors"
        tensors = load_file(weights)
        tensors["encoder.embed_tokens.weight"] = tensors.pop("shared.weight")
        save_file(tensors, weights)
        self.assert_same(made, folder, ids_of(2, 5))


class Refusing(Case):
    def test_says_why(self):
        folder, ids = self.saved(encoder()), ids_of(1, 3)
        self.assertIn("expected tokens below 160, found 160", self.encode(folder, ids * 0 + 160))
        weights = folder / "text_encoder/model.safetensors"
        whole = load_file(weights)
        name = "encoder.block.1.layer.1.DenseReluDense.wi_1.weight"
        save_file({key: value for key, value in whole.items() if key != name}, weights)
        self.assertIn(f"tensor {name} is missing", self.encode(folder, ids))
        save_file({**whole, name: whole[name][:5].contiguous()}, weights)
        self.assertIn(
            f"tensor {name}: expected floats [96, 48], found F32 [5, 48]", self.encode(folder, ids)
        )
        weights.unlink()
        self.assertIn(f"cannot read {weights} or", self.encode(folder, ids))
        index = weights.with_name("model.safetensors.index.json")
        index.write_text('{"weight_map": {"a": "../elsewhere"}}')
        self.assertIn("expected the name of a file in this folder", self.encode(folder, ids))
        index.write_text('{"weight_map": {"a": "gone.safetensors"}}')
        self.assertIn("gone.safetensors", self.encode(folder, ids))

    def test_another_kind_of_encoder(self):
        folder, ids = self.saved(encoder()), ids_of(1, 3)
        for changes, why in (
            ({"model_type": "clip_text_model", "architectures": ["CLIPTextModel"]},
             "expected T5, found CLIPTextModel: use --caption-embeddings"),
            ({"model_type": "umt5", "architectures": None}, "expected T5, found umt5"),
            ({"model_type": "t5", "feed_forward_proj": "gated-silu"}, "found gated-silu"),
            ({"feed_forward_proj": "relu", "d_kv": 0}, "expected sizes from 1"),
            ({"d_kv": "many"}, "type must be number"),
        ):  # fmt: skip
            self.config(folder, **changes)
            self.assertIn(why, self.encode(folder, ids))

    def test_no_tokenizer(self):
        folder = self.saved(encoder())
        (folder / "tokenizer/spiece.model").unlink()
        self.assertIn("there is no tokenizer: expected", self.encode(folder, ids_of(1, 3)))


def number(value):
    return struct.pack("<I", value)


class Tokens(Case):
    def setUp(self):
        super().setUp()
        write_tokenizer(self.top)
        self.model = self.top / "spiece.model"

    def tokenize(self, asked, *words, model=None):
        return subprocess.run(
            [TOKENIZE, model or self.model, *words], input=asked, capture_output=True
        )

    def ids(self, groups, *words):
        asked = b""
        for group in groups:
            asked += number(len(group))
            asked += b"".join(number(len(text)) + text for text in map(str.encode, group))
        ran = self.tokenize(asked, *words)
        self.assertEqual((0, b""), (ran.returncode, ran.stderr))
        found, at = [], 0
        while at < len(ran.stdout):
            (count,) = struct.unpack_from("<I", ran.stdout, at)
            found.append(list(struct.unpack_from(f"<{count}i", ran.stdout, at + 4)))
            at += 4 + 4 * count
        return found

    def test_are_those_of_transformers(self):
        drawn = random.Random(1)
        texts = ["", " ", "a", "bird\nbird", "x" * 3000, "a bird " * 9000]
        texts += [caption(drawn) for _ in range(4000)]
        texts += [odd_text(drawn) for _ in range(6000)]
        theirs = T5Tokenizer.from_pretrained(str(self.top))(texts, verbose=False).input_ids
        for text, expected, found in zip(
            texts, theirs, self.ids([texts[:3], [], texts[3:]]), strict=True
        ):
            self.assertEqual(expected, found, ascii(text[:200]))
        self.assertGreater(len(set(map(tuple, theirs))), 8000)

    def test_without_extra_ids(self):
        with_them, without = (self.ids([["<extra_id_0>"]], *words)[0] for words in
                              ([], ["--extra-ids", "0"]))  # fmt: skip
        self.assertEqual(2, len(with_them))
        self.assertGreater(len(without), 2)

    def test_what_breaks_the_form_is_refused(self):
        for asked, why in (
            (number(2) + number(1) + b"a", b"ended within a group"),
            (number(1) + number(9) + b"a", b"ended within a text"),
            (number(70000), b"at most 65,536 texts"),
            (number(1) + number(1 << 24), b"at most 1 MiB"),
        ):
            ran = self.tokenize(asked)
            self.assertEqual(2, ran.returncode)
            self.assertIn(why, ran.stderr)
        (self.top / "bad").write_text("no model")
        ran = self.tokenize(b"", model=self.top / "bad")
        self.assertEqual(2, ran.returncode)
        self.assertIn(b"expected a SentencePiece model", ran.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    RUN, TOKENIZE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
