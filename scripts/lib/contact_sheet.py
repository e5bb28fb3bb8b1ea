#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures with their captions, before training and after: a self-contained page (OUT.html) and one
picture of it all (OUT.png).

usage: contact_sheet.py METADATA BEFORE AFTER OUT [FONT]
METADATA is the metadata.jsonl beside the pictures, BEFORE and AFTER are files of
snug caption --format jsonl, FONT is a TrueType file. Needs Pillow (Debian's python3-pil).
"""
import base64
import html
import json
import pathlib
import sys
import typing

from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
COLOURS = {"page": "#f6f6f4", "card": "#ffffff", "text": "#222222", "label": "#888888",
           "before": "#888888", "right": "#17692b", "wrong": "#a33a00"}
STYLE = """body{{font:15px system-ui,sans-serif;margin:2em;background:{page};color:{text}}}
main{{display:grid;grid-template-columns:repeat(auto-fill,minmax(15em,1fr));gap:1em}}
figure{{margin:0;padding:1em;background:{card};border-radius:6px}}
img{{width:100%;max-width:13em;image-rendering:pixelated;display:block;margin:0 auto .6em}}
dl{{display:grid;grid-template-columns:4.5em 1fr;margin:0}}dt{{color:{label}}}dd{{margin:0}}
dd{{overflow-wrap:anywhere}}
.before{{color:{before}}}.right{{color:{right}}}.wrong{{color:{wrong}}}""".format(**COLOURS)
TITLE = "Pictures that were held out"


class Row(typing.NamedTuple):
    picture: pathlib.Path
    expected: str
    before: str
    after: str

    @property
    def verdict(self):
        return "right" if self.after == self.expected else "wrong"

    def lines(self):
        """(what the line says, its text, its colour)"""
        return [("is", self.expected, "text"), ("before", self.before, "before"),
                ("after", self.after, self.verdict)]


def captions(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return {pathlib.Path(row["file"]).name: row["caption"] for row in map(json.loads, lines)}


def read_rows(metadata, before, after):
    told, learnt = captions(before), captions(after)
    rows = [json.loads(line) for line in metadata.read_text(encoding="utf-8").splitlines()]
    return [Row(metadata.parent / row["file_name"], row["text"], told[row["file_name"]][:60],
                learnt[row["file_name"]]) for row in rows]


def page(rows, summary):
    figures = []
    for row in rows:
        picture = base64.b64encode(row.picture.read_bytes()).decode()
        lines = "".join(f'<dt>{label}</dt><dd class="{colour}">{html.escape(text)}</dd>'
                        for label, text, colour in row.lines())
        figures.append(f'<figure><img alt="{html.escape(row.expected)}" '
                       f'src="data:image/png;base64,{picture}"><dl>{lines}</dl></figure>')
    return ('<!doctype html><html lang="en"><meta charset="utf-8">'
            f"<title>Captions before and after</title><style>{STYLE}</style><h1>{TITLE}</h1>"
            f"<p>{summary}</p><main>{''.join(figures)}</main></html>\n")


class Sheet:
    """The same as the page, drawn: cards of fixed width, four to a line."""

    COLUMNS, PICTURE, PAD, GAP, LABEL, SIZE = 4, 192, 14, 14, 62, 14

    def __init__(self, font):
        self.font = ImageFont.truetype(font, self.SIZE)
        self.title_font = ImageFont.truetype(font, 2 * self.SIZE)
        self.leading = round(1.35 * self.SIZE)
        self.card_width = 270
        self.text_width = self.card_width - 2 * self.PAD - self.LABEL

    def wrapped(self, text):
        """Lines no wider than there is room; a word that is wider is broken."""
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if self.font.getlength(longer) <= self.text_width:
                lines[-1] = longer
                continue
            lines.append("")
            for letter in word:
                if self.font.getlength(lines[-1] + letter) > self.text_width:
                    lines.append("")
                lines[-1] += letter
        return [line for line in lines if line] or ["(nothing)"]

    def draw(self, rows, summary):
        texts = [[(label, self.wrapped(text), colour) for label, text, colour in row.lines()]
                 for row in rows]
        most = max(sum(len(lines) for _, lines, _ in text) for text in texts)
        card_height = 3 * self.PAD + self.PICTURE + most * self.leading
        columns = min(self.COLUMNS, len(rows))
        lines = -(-len(rows) // columns)
        top = 6 * self.SIZE + self.GAP
        width = max(columns * (self.card_width + self.GAP), 2 * self.card_width) + self.GAP
        sheet = Image.new("RGB", (width, top + lines * (card_height + self.GAP)), COLOURS["page"])
        pen = ImageDraw.Draw(sheet)
        pen.text((self.GAP, self.GAP), TITLE, COLOURS["text"], self.title_font)
        pen.text((self.GAP, 4 * self.SIZE), summary, COLOURS["text"], self.font)
        for i, (row, text) in enumerate(zip(rows, texts)):
            x = self.GAP + i % columns * (self.card_width + self.GAP)
            y = top + i // columns * (card_height + self.GAP)
            pen.rounded_rectangle((x, y, x + self.card_width, y + card_height), 6, COLOURS["card"])
            self.draw_card(sheet, pen, x, y, row, text)
        return sheet

    def draw_card(self, sheet, pen, x, y, row, text):
        picture = Image.open(row.picture).convert("RGB")
        picture = picture.resize((self.PICTURE, self.PICTURE), Image.Resampling.NEAREST)
        sheet.paste(picture, (x + (self.card_width - self.PICTURE) // 2, y + self.PAD))
        at = y + 2 * self.PAD + self.PICTURE
        for label, lines, colour in text:
            pen.text((x + self.PAD, at), label, COLOURS["label"], self.font)
            for line in lines:
                pen.text((x + self.PAD + self.LABEL, at), line, COLOURS[colour], self.font)
                at += self.leading


def main():
    metadata, before, after, out = map(pathlib.Path, sys.argv[1:5])
    rows = read_rows(metadata, before, after)
    right = sum(row.verdict == "right" for row in rows)
    summary = f"After training {right} of {len(rows)} captions are right word for word."
    out.with_suffix(".html").write_text(page(rows, summary), encoding="utf-8")
    Sheet(sys.argv[5] if len(sys.argv) > 5 else FONT).draw(rows, summary).save(
        out.with_suffix(".png"))
    print(f"{right} of {len(rows)} held-out captions are right word for word; "
          f"all of them: {out}.html and {out}.png")


if __name__ == "__main__":
    main()
