# SPDX-License-Identifier: Apache-2.0
"""Captions out of nothing, and a SentencePiece model that is trained on them."""

import json
import random

import sentencepiece

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
WORDS = (
    "photo picture painting drawing of a an the small big red blue green old new bright dark "
    "blurry sharp close-up standing running on grass water road sky snow city street under tree "
    "morning night evening with two three people children, flying; parked? sailing! in front "
    'house river mountain (old) "vintage" 35mm f/1.8 it\'s café naïve 100% #1 @home'
).split()
ODD = (
    "\t \n \r\n \u00a0 \u200b \u2028 \u3000 \ufeff \u0001 \u007f \u0085 \u1680 \u2009 "
    "\ufb01 ½ ① … “ ” ’ ａ ｂ 漢 字 к и 😀 ▁ ▁▁ Å \u212b ß ŉ ﷺ 가 \u1112\u1161\u11ab "
    "< > </ <extra_id_ _0>"
).split(" ")
# With combining marks: between spaces, since tokenizers drops a mark behind a
# character that it rewrites, and SentencePiece does not.
MARKED = ["e\u0301", "\u0301", "İ", "ि", "क्ष", "👩\u200d👩", "a\u200db",
          "\U0001f1e9\U0001f1ea", "so\u00adft"]  # fmt: skip
SPECIAL = ["<extra_id_0>", "<extra_id_17>", "<extra_id_99>", "<extra_id_100>", "<pad>", "</s>",
           "<unk>", "<EXTRA_ID_0>"]  # fmt: skip


def caption(drawn, fewest=1, most=19):
    count = drawn.randint(fewest, most)
    return " ".join(drawn.choices(WORDS, k=count) + [drawn.choice(CLASSES)])


def odd_text(drawn):
    """Words, odd characters and special tokens, with any spaces between them or none."""
    parts = []
    for _ in range(drawn.randint(0, 12)):
        (kind,) = drawn.choices([WORDS, ODD, SPECIAL, MARKED], [10, 6, 2, 2])
        part = drawn.choice(kind)
        parts += [f" {part} " if kind is MARKED else part, drawn.choice(["", " ", "  ", "   "])]
    return "".join(parts)


def write_tokenizer(folder, vocabulary=400):
    """Trains folder/spiece.model as T5's was. transformers reads the folder too."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(0)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([caption(drawn) for _ in range(2000)]),
        model_prefix=str(folder / "spiece"),
        vocab_size=vocabulary,
        model_type="unigram",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        pad_piece="<pad>",
        eos_piece="</s>",
        unk_piece="<unk>",
        character_coverage=1.0,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
