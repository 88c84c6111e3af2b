#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""encode_rival.py FOLDER SIZE: an AutoencoderKL in the shape of Stable Diffusion's, by diffusers.

Writes random weights to FOLDER and prints a line. Answers a line N with the processor seconds of
encoding N batches of 16 images of SIZE x SIZE.
"""

import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1")
import torch  # noqa: E402
from diffusers import AutoencoderKL  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)
channels = (128, 256, 512, 512)
made = AutoencoderKL(
    block_out_channels=channels,
    layers_per_block=2,
    down_block_types=("DownEncoderBlock2D",) * len(channels),
    up_block_types=("UpDecoderBlock2D",) * len(channels),
).eval()
made.save_pretrained(sys.argv[1])
images = torch.randn(16, 3, int(sys.argv[2]), int(sys.argv[2])).clamp(-1, 1)
print(f"torch {torch.__version__}", flush=True)
for line in sys.stdin:
    begin = time.process_time()
    with torch.no_grad():
        for _ in range(int(line)):
            made.encode(images).latent_dist.mean
    print(time.process_time() - begin, flush=True)
