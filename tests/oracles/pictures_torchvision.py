# SPDX-License-Identifier: Apache-2.0
"""What transformers' BlipImageProcessor makes of pictures where it computes with torchvision, as it does
by default since version 5: tests/data/pictures/torchvision.{json,bin}, which
tests/unit/data/picture_processor_test.cpp compares with ours (Pillow's bytes).

Needs transformers 5, torch, torchvision, Pillow. Usage: python pictures_torchvision.py
"""

import json
import pathlib

import PIL
import torch
import torchvision
import transformers
from PIL import Image

FOLDER = pathlib.Path(__file__).parent.parent / "data" / "pictures"
SIDE = 48
# (width, height) of what is resized, and whether it is noise, which no photograph is, or smooth.
CASES = [
    (64, 48, True), (97, 61, True), (20, 31, True), (48, 48, True), (1, 1, True), (300, 2, True), (333, 500, True),
    (640, 480, False), (480, 640, False), (333, 500, False), (97, 61, False), (30, 40, False), (500, 375, False),
    (50, 120, True), (50, 120, False),
]  # fmt: skip


def noise(width, height):
    """The picture that the test makes: a linear congruence, one byte a channel."""
    count, state, out = width * height * 3, 12345, bytearray()
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 255)
    return Image.frombytes("RGB", (width, height), bytes(out))


def smooth(width, height):
    """Noise of 16 x 12 drawn large: the test does it with our own resize, whose bytes are these."""
    narrow = noise(16, 12).resize((width, 12), Image.Resampling.BICUBIC)
    return narrow.resize((width, height), Image.Resampling.BICUBIC)


def main():
    processor = transformers.BlipImageProcessor(
        size={"height": SIDE, "width": SIDE}, do_rescale=False, do_normalize=False)
    backend = [base.__name__ for base in type(processor).__mro__ if "Backend" in base.__name__]
    binary = b""
    for width, height, is_noise in CASES:
        picture = (noise if is_noise else smooth)(width, height)
        pixels = processor([picture], return_tensors="pt")["pixel_values"][0]
        assert pixels.dtype == torch.uint8 and pixels.shape == (3, SIDE, SIDE)
        binary += pixels.permute(1, 2, 0).contiguous().numpy().tobytes()
    (FOLDER / "torchvision.bin").write_bytes(binary)
    (FOLDER / "torchvision.json").write_text(json.dumps({
        "transformers": transformers.__version__, "torch": torch.__version__,
        "torchvision": torchvision.__version__, "pillow": PIL.__version__, "backend": backend,
        "side": SIDE, "cases": CASES}) + "\n")


if __name__ == "__main__":
    main()
