#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""encode_rival.py images|text FOLDER SIZE: the encoders of diffusers and transformers.

images: an AutoencoderKL in the shape of Stable Diffusion's. text: a T5 encoder in the shape of
Flan-T5-base's. Writes random weights to FOLDER and prints a line. Answers a line N with the
processor seconds of encoding N batches. A batch is 16 images of SIZE x SIZE, or 40 captions of
SIZE tokens.
"""

import os
import pathlib
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1")
import torch  # noqa: E402


def images(folder, size):
    from diffusers import AutoencoderKL

    channels = (128, 256, 512, 512)
    made = AutoencoderKL(
        block_out_channels=channels,
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
    ).eval()
    made.save_pretrained(folder)
    batch = torch.randn(16, 3, size, size).clamp(-1, 1)
    return lambda: made.encode(batch).latent_dist.mean


def text(folder, size):
    from transformers import T5Config, T5EncoderModel

    shape = {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12}
    made = T5EncoderModel(T5Config(**shape, feed_forward_proj="gated-gelu")).eval()
    made.save_pretrained(folder)
    (pathlib.Path(folder) / "spiece.model").write_text("")  # the engine's half reads none
    ids = torch.randint(0, 32000, (40, size))
    return lambda: made(ids).last_hidden_state


torch.set_num_threads(1)
torch.manual_seed(1)
encode = {"images": images, "text": text}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
print(f"torch {torch.__version__}", flush=True)
for line in sys.stdin:
    begin = time.process_time()
    with torch.no_grad():
        for _ in range(int(line)):
            encode()
    print(time.process_time() - begin, flush=True)
