#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One page of pictures with their captions, before training and after: a self-contained HTML file.

usage: contact_sheet.py METADATA BEFORE AFTER OUT
METADATA is the metadata.jsonl beside the pictures, BEFORE and AFTER are files of
snug caption --format jsonl.
"""
import base64
import html
import json
import pathlib
import sys

STYLE = """body{font:15px system-ui,sans-serif;margin:2em;background:#f6f6f4;color:#222}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(15em,1fr));gap:1em}
figure{margin:0;padding:1em;background:#fff;border-radius:6px}
img{width:100%;max-width:13em;image-rendering:pixelated;display:block;margin:0 auto .6em}
dl{display:grid;grid-template-columns:4.5em 1fr;margin:0}dt{color:#888}dd{margin:0}
.right{color:#17692b}.before{color:#888}"""


def captions(path):
    lines = pathlib.Path(path).read_text().splitlines()
    return {pathlib.Path(row["file"]).name: row["caption"] for row in map(json.loads, lines)}


def main():
    metadata, before, after, out = map(pathlib.Path, sys.argv[1:])
    told, learnt = captions(before), captions(after)
    figures, right = [], 0
    rows = [json.loads(line) for line in metadata.read_text().splitlines()]
    for row in rows:
        name, expected = row["file_name"], row["text"]
        right += learnt[name] == expected
        picture = base64.b64encode((metadata.parent / name).read_bytes()).decode()
        figures.append(
            f'<figure><img alt="{html.escape(expected)}" src="data:image/png;base64,{picture}">'
            f"<dl><dt>is</dt><dd>{html.escape(expected)}</dd>"
            f'<dt>before</dt><dd class="before">{html.escape(told[name][:60])}</dd>'
            f'<dt>after</dt><dd class="{"right" if learnt[name] == expected else "wrong"}">'
            f"{html.escape(learnt[name])}</dd></dl></figure>")
    out.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Captions before and after'
        f"</title><style>{STYLE}</style><h1>Pictures that were held out</h1>"
        f"<p>After training {right} of {len(rows)} captions are right word for word.</p>"
        f"<main>{''.join(figures)}</main></html>\n")
    print(f"{right} of {len(rows)} held-out captions are right word for word; all of them: {out}")


if __name__ == "__main__":
    main()
