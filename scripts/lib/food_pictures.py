#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures with captions out of what Debian ships: things to eat from the bitmaps of Noto Color
Emoji, two on each picture, named as Unicode's CLDR names them ("lemon and red apple", the left one
first). Each thing is small and large, left and right, but some ordered pairs are held out: whoever
captions those has learnt what is where, not which pictures there are. Also a tokenizer of the
words, so that a model can start from nothing.

usage: food_pictures.py FONT ANNOTATIONS OUT [--things N] [--pictures N] [--held_out N] [--size N]
Writes OUT/train and OUT/held-out (PNG files and metadata.jsonl with their captions, as --data
ImageFolder reads them) and OUT/model (tokenizer.json, tokenizer_config.json). Needs no packages.
"""
import argparse
import itertools
import json
import pathlib
import random
import struct
import sys
import xml.etree.ElementTree
import zlib

THINGS = ("🍇🍉🍋🍌🍍🍎🍓🥝🍅🥥🥑🍆🥕🌽🥒🥦🍞🥐🥨🧀🍔🍕🥚🍩🍪🍫🍦🍺🍷🥛").strip()


class Font:
    """The bitmaps of a font with tables CBLC and CBDT: a PNG file for each character."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        count = self.u16(4)
        self.tables = {self.data[12 + 16 * i:16 + 16 * i]: self.u32(20 + 16 * i)
                       for i in range(count)}
        missing = [name for name in (b"cmap", b"CBLC", b"CBDT") if name not in self.tables]
        if missing:
            sys.exit(f"{path}: no table {missing[0].decode()}; it is no font of bitmaps")
        self.glyphs = self.read_cmap(self.tables[b"cmap"])
        self.places = self.read_places(self.tables[b"CBLC"], self.tables[b"CBDT"])

    def u16(self, at):
        return struct.unpack_from(">H", self.data, at)[0]

    def u32(self, at):
        return struct.unpack_from(">I", self.data, at)[0]

    def read_cmap(self, at):
        glyphs = {}
        for i in range(self.u16(at + 2)):
            table = at + self.u32(at + 8 + 8 * i)
            if self.u16(table) != 12:  # groups of whole Unicode
                continue
            for group in range(self.u32(table + 12)):
                first, last, glyph = struct.unpack_from(">III", self.data, table + 16 + 12 * group)
                for code in range(first, last + 1):
                    glyphs[code] = glyph + code - first
        return glyphs

    def read_places(self, index, bitmaps):
        """Where each glyph's bitmap is, and in which of the forms."""
        places = {}
        subtables, count = index + self.u32(index + 8), self.u32(index + 16)
        for i in range(count):
            first, last, offset = struct.unpack_from(">HHI", self.data, subtables + 8 * i)
            table = subtables + offset
            kind, form, base = struct.unpack_from(">HHI", self.data, table)
            if kind != 1:
                continue
            for n in range(last - first + 1):
                begin, end = struct.unpack_from(">II", self.data, table + 8 + 4 * n)
                if end > begin:
                    places[first + n] = (bitmaps + base + begin, form)
        return places

    def png(self, character):
        glyph = self.glyphs.get(ord(character))
        if glyph not in self.places:
            return None
        at, form = self.places[glyph]
        at += {17: 5, 18: 8, 19: 0}[form]  # past the metrics
        return self.data[at + 4:at + 4 + self.u32(at)]


def unfilter(raw, width, height, channels):
    """The bytes of a PNG's rows, from what its filters made of them."""
    stride = width * channels
    rows, above = [], bytearray(stride)
    for y in range(height):
        begin = y * (stride + 1)
        kind, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + stride])
        for x in range(stride):
            left = row[x - channels] if x >= channels else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = above[x]
            elif kind == 3:
                guess = (left + above[x]) // 2
            elif kind == 4:
                corner = above[x - channels] if x >= channels else 0
                p = left + above[x] - corner
                guess = min((abs(p - left), 0, left), (abs(p - above[x]), 1, above[x]),
                            (abs(p - corner), 2, corner))[2]
            else:
                break
            row[x] = (row[x] + guess) & 255
        rows.append(row)
        above = row
    return rows


def read_png(data):
    """(width, height, rows of RGBA), of 8 bits a value, with a palette or without."""
    at, parts = 8, {}
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        parts[kind] = parts.get(kind, b"") + data[at + 8:at + 8 + length]
        at += 12 + length
    width, height, depth, color = struct.unpack_from(">IIBB", parts[b"IHDR"])
    channels = {2: 3, 3: 1, 6: 4}.get(color)
    if channels is None or depth != 8:
        sys.exit(f"a PNG of {depth} bits and colour type {color} is not read here")
    rows = unfilter(zlib.decompress(parts[b"IDAT"]), width, height, channels)
    if color == 6:
        return width, height, rows
    palette, alpha = parts.get(b"PLTE", b""), parts.get(b"tRNS", b"")
    out = []
    for row in rows:
        pixels = bytearray()
        for x in range(width):
            if color == 2:
                pixels += row[3 * x:3 * x + 3] + b"\xff"
            else:
                i = row[x]
                pixels += palette[3 * i:3 * i + 3] + bytes([alpha[i] if i < len(alpha) else 255])
        out.append(pixels)
    return width, height, out


def shrunk(picture, size):
    """A picture of size × size with colours times their opacity, each the mean of what it covers."""
    width, height, rows = picture
    out = []
    for y in range(size):
        y0, y1 = y * height // size, max((y + 1) * height // size, y * height // size + 1)
        line = []
        for x in range(size):
            x0, x1 = x * width // size, max((x + 1) * width // size, x * width // size + 1)
            sums, count = [0, 0, 0, 0], (y1 - y0) * (x1 - x0)
            for row in rows[y0:y1]:
                for i in range(4 * x0, 4 * x1, 4):
                    a = row[i + 3]
                    sums[0] += row[i] * a
                    sums[1] += row[i + 1] * a
                    sums[2] += row[i + 2] * a
                    sums[3] += a
            line.append((*(s / (255 * count) for s in sums[:3]), sums[3] / (255 * count)))
        out.append(line)
    return out


def write_png(path, rows):
    def part(kind, body):
        return (struct.pack(">I", len(body)) + kind + body +
                struct.pack(">I", zlib.crc32(kind + body)))
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) +
                     part(b"IDAT", zlib.compress(raw, 6)) + part(b"IEND", b""))


def paste(canvas, picture, left, top):
    for y, line in enumerate(picture):
        row = canvas[top + y]
        for x, (*color, opacity) in enumerate(line):
            at = 3 * (left + x)
            for c in range(3):
                row[at + c] = min(255, round(color[c] + row[at + c] * (1 - opacity)))


def composed(draw, pictures, pair, size):
    """Two things side by side on white, each a little off its place."""
    canvas = [bytearray(b"\xff" * (3 * size)) for _ in range(size)]
    for place, thing in enumerate(pair):
        side = draw.choice(sorted(pictures[thing]))
        left = place * size // 2 + draw.randint(0, size // 2 - side)
        paste(canvas, pictures[thing][side], left, draw.randint(size // 8, size - side - size // 8))
    return canvas


def write_tokenizer(folder, captions):
    """A byte-level BPE whose merges make each word of the captions one token."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    byte = {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
    words = sorted({word for caption in captions
                    for word in caption.replace(" ", " \0").replace(" \0", "\0 ").split("\0")})
    vocabulary = ["<pad>", "</s>", "<image>"] + [byte[b] for b in range(256)]
    known, merges = set(vocabulary), []
    for word in words:
        letters = [byte[b] for b in word.encode()]
        for end in range(2, len(letters) + 1):
            whole = "".join(letters[:end])
            if whole not in known:
                known.add(whole)
                vocabulary.append(whole)
                merges.append([whole[:-len(letters[end - 1])], letters[end - 1]])
    special = [{"id": i, "content": vocabulary[i], "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True} for i in range(3)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(vocabulary)},
                  "merges": [f"{a} {b}" for a, b in merges]}}, ensure_ascii=False) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "</s>", "eos_token": "</s>",
        "pad_token": "<pad>", "add_bos_token": True}) + "\n")
    return len(vocabulary)


def write_part(folder, draw, pictures, names, pairs, size):
    folder.mkdir(parents=True, exist_ok=True)
    captions, lines = [], []
    for number, pair in enumerate(pairs):
        captions.append(f"{names[pair[0]]} and {names[pair[1]]}")
        write_png(folder / f"{number:04d}.png", composed(draw, pictures, pair, size))
        lines.append(json.dumps({"file_name": f"{number:04d}.png", "text": captions[-1]}) + "\n")
    (folder / "metadata.jsonl").write_text("".join(lines))
    return captions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("font")
    parser.add_argument("annotations")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--things", type=int, default=12)
    parser.add_argument("--pictures", type=int, default=1200)
    parser.add_argument("--held_out", type=int, default=16)
    parser.add_argument("--size", type=int, default=48)
    options = parser.parse_args()
    font = Font(options.font)
    root = xml.etree.ElementTree.parse(options.annotations).getroot()
    names = {entry.get("cp"): entry.text for entry in root.iter("annotation")
             if entry.get("type") == "tts"}
    things = [c for c in THINGS if c in names and font.png(c)][:options.things]
    sides = (options.size * 7 // 20, options.size * 9 // 20)
    pictures = {thing: {side: shrunk(read_png(font.png(thing)), side) for side in sides}
                for thing in things}
    draw = random.Random(42)
    pairs = list(itertools.permutations(things, 2))
    draw.shuffle(pairs)
    held_out, taught = pairs[:options.held_out], pairs[options.held_out:]
    captions = write_part(options.out / "train", draw, pictures, names,
                          [taught[i % len(taught)] for i in range(options.pictures)], options.size)
    captions += write_part(options.out / "held-out", draw, pictures, names, held_out, options.size)
    tokens = write_tokenizer(options.out / "model", captions)
    print(f"{options.pictures} pictures of {len(things)} things in {len(taught)} pairs, "
          f"{len(held_out)} of other pairs held out, {tokens} tokens in {options.out}")


if __name__ == "__main__":
    main()
