# SPDX-License-Identifier: Apache-2.0
"""How transformers' Idefics3ImageProcessorPil cuts pictures into tiles, and what text its Idefics3Processor
puts in their place: tests/data/pictures/tiles.json, with checksums of the tiles' bytes before they are
normalised. The pictures are those of pictures.py, which the test makes itself. Pillow resizes in two steps here,
since version 13 would turn their order round for some tall pictures, which no earlier one does.

Needs transformers 5, torch, numpy, Pillow. Usage: python pictures_tiles.py
"""
import json
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL
import PIL.Image
import transformers
from pictures import pixels
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

FOLDER = Path(__file__).resolve().parents[1] / "data" / "pictures"
TOKENS = SimpleNamespace(fake_image_token="<fake_token_around_image>", image_token="<image>",
                         global_image_tag="<global-img>", image_seq_len=2)
# Tile, longest side, cut into tiles or not, and a picture's width and height.
CASES = [(32, 128, True, *size) for size in (
    (50, 37), (37, 50), (128, 128), (31, 31), (1, 1), (300, 200), (200, 300), (129, 128), (640, 97), (64, 200), (33, 32),
    (500, 4), (97, 131))]
CASES += [(32, 128, False, *size) for size in ((50, 37), (32, 32), (200, 311))]
CASES += [(28, 30, True, 60, 45), (28, 28, True, 60, 45), (28, 20, True, 9, 60), (27, 81, True, 80, 53), (36, 100, True, 77, 77)]


def in_two_steps(self, size, resample=None, **options):
    narrowed = at_once(self, (size[0], self.height), resample, **options)
    return at_once(narrowed, size, resample, **options)


at_once, PIL.Image.Image.resize = PIL.Image.Image.resize, in_two_steps


def row(tile, longest, cut, width, height):
    processor = Idefics3ImageProcessorPil(size={"longest_edge": longest}, max_image_size={"longest_edge": tile},
                                          do_image_splitting=cut, do_rescale=False, do_normalize=False)
    out = processor([[pixels(width, height)]], return_row_col_info=True, return_tensors="np")
    tiles = np.asarray(out["pixel_values"])[0].transpose(0, 2, 3, 1)
    assert np.asarray(out["pixel_attention_mask"]).all()
    assert (tiles == tiles.astype(np.uint8)).all()
    text = Idefics3Processor.replace_image_token(TOKENS, {"rows": out["rows"], "cols": out["cols"]}, 0)
    return {"tile": tile, "longest": longest, "cut": cut, "width": width, "height": height,
            "rows": out["rows"][0][0], "columns": out["cols"][0][0], "pictures": len(tiles),
            "crc": zlib.crc32(tiles.astype(np.uint8).tobytes()), "text": text}


def main():
    versions = {"transformers": transformers.__version__, "pillow": PIL.__version__}
    lines = ",\n".join(json.dumps(row(*case)) for case in CASES)
    (FOLDER / "tiles.json").write_text('{"made with": %s,\n"rows": [\n%s]}\n' % (json.dumps(versions), lines))


if __name__ == "__main__":
    main()
