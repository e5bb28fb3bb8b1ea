# SPDX-License-Identifier: Apache-2.0
"""What transformers' BlipImageProcessor makes of pictures where it computes with torchvision, as it does by
default since version 5: checksums in tests/data/pictures/torchvision.json, which
tests/unit/data/picture_processor_test.cpp compares with ours. Each row also says how far Pillow's bytes (older
transformers', and BlipImageProcessorPil's) are from these: the largest difference, and how many values differ by 1
and by more.

torchvision's bicubic bytes are the same on every CPU, its bilinear ones where there is AVX2: elsewhere it computes
those in float32, up to 1 of 255 apart.

Needs transformers 5, torch, torchvision, numpy, Pillow. Usage: python pictures_torchvision.py
"""

import json
import pathlib
import zlib

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image

FOLDER = pathlib.Path(__file__).parent.parent / "data" / "pictures"
BILINEAR, BICUBIC = 2, 3
KINDS = ("noise", "smooth", "graphic")
# (width, height): photographs, tall and wide ones, small ones, extremes.
PHOTOGRAPHS = [(1024, 683), (384, 719), (640, 480), (500, 375), (60, 90), (31, 100)]
EXTREMES = [(1, 1), (1, 300), (300, 1), (1000, 3), (40, 400), (224, 50), (77, 224)]


def congruence(count):
    """Bytes of a linear congruence, as the test has them."""
    state, out = 12345, bytearray()
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(state >> 16 & 255)
    return np.frombuffer(bytes(out), np.uint8)


NOISE = congruence(1024 * 683 * 3)


def smooth(width, height):
    """16 x 12 random colours and what lies between them, in integers."""
    grid = NOISE[: 16 * 12 * 3].reshape(12, 16, 3).astype(np.int64)
    x = np.arange(width) * (15 * 256 - 1) // max(width - 1, 1)
    y = np.arange(height) * (11 * 256 - 1) // max(height - 1, 1)
    left, top = x >> 8, y >> 8
    right_part, bottom_part = (x & 255)[None, :, None], (y & 255)[:, None, None]
    upper = grid[top][:, left] * (256 - right_part) + grid[top][:, left + 1] * right_part
    lower = grid[top + 1][:, left] * (256 - right_part) + grid[top + 1][:, left + 1] * right_part
    return (upper * (256 - bottom_part) + lower * bottom_part) >> 16


def graphic(width, height):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(x * 7 + y * 3) % 256, x // 2 % 256, (x // 9 + y // 9) % 2 * 255], -1)


def picture(kind, width, height):
    if kind == "noise":
        values = NOISE[: width * height * 3].reshape(height, width, 3)
    else:
        values = (smooth if kind == "smooth" else graphic)(width, height)
    return Image.fromarray(values.astype(np.uint8))


def row(kind, size, new_size, resample):
    made = picture(kind, *size)
    processor = transformers.BlipImageProcessor(
        size={"width": new_size[0], "height": new_size[1]}, resample=resample, do_rescale=False, do_normalize=False)
    pixels = processor([made], return_tensors="pt")["pixel_values"][0]
    assert pixels.dtype == torch.uint8 and pixels.shape == (3, new_size[1], new_size[0])
    theirs = pixels.permute(1, 2, 0).contiguous().numpy()
    # In two steps, since Pillow 13 would turn their order round for tall pictures.
    pillows = np.asarray(made.resize((new_size[0], size[1]), resample).resize(new_size, resample))
    apart = np.abs(pillows.astype(int) - theirs)
    return [kind, *size, *new_size, resample, zlib.crc32(theirs.tobytes()),
            int(apart.max()), int((apart == 1).sum()), int((apart > 1).sum())]  # fmt: skip


def rows():
    for side in (224, 364):
        for size in PHOTOGRAPHS:
            for kind in KINDS:
                yield row(kind, size, (side, side), BICUBIC)
    for size in EXTREMES:
        yield row("noise", size, (224, 224), BICUBIC)
        yield row("noise", size, (30, 24), BICUBIC)
    for size in PHOTOGRAPHS + EXTREMES:
        yield row("noise", size, (224, 224), BILINEAR)


def main():
    capability = torch.backends.cpu.get_cpu_capability()
    assert capability in ("AVX2", "AVX512"), capability
    backend = [base.__name__ for base in transformers.BlipImageProcessor.__mro__ if "Backend" in base.__name__]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__,
                "torchvision": torchvision.__version__, "pillow": PIL.__version__, "cpu": capability,
                "backend": backend}  # fmt: skip
    lines = ",\n".join(json.dumps(one) for one in rows())
    (FOLDER / "torchvision.json").write_text('{"made with": %s,\n"rows": [\n%s]}\n' % (json.dumps(versions), lines))


if __name__ == "__main__":
    main()
