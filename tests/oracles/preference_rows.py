#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/data/preferences.json: rows with a chosen and a rejected answer, and the prompt that TRL finds in them.

Needs trl (1.16) with datasets. Answers that differ in their first character are left out: there TRL looks at the last one.
Run: preference_rows.py
"""
import json
import random
from pathlib import Path

from trl.data_utils import maybe_extract_prompt

OUT = Path(__file__).resolve().parents[1] / "data" / "data" / "preferences.json"
WORDS = ["a", "b", "ab", "Köln", "日本", "x y", "?", "1", "\n", "é", "è", "🙂", "🙃", "."]


def draw(r):
    def words(least=0, most=4):
        return " ".join(r.choice(WORDS) for _ in range(r.randint(least, most)))

    def turns(most=2):
        return [{"role": role, "content": words(1)} for _ in range(r.randint(1, most)) for role in ("user", "assistant")]

    kind = r.choice(["explicit", "implicit", "explicit chat", "implicit chat"])
    if kind == "explicit":
        return {"prompt": words(1), "chosen": words(1), "rejected": words(1)}
    if kind == "implicit":
        begin = words(1) + r.choice(["", " "])
        return {"chosen": begin + words(1), "rejected": begin + words(1)}
    prompt, a, b = turns()[:-1], words(1), words(1)
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in (a, b))
    if kind == "explicit chat":
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    return {"chosen": prompt + chosen, "rejected": prompt + rejected}


def main():
    r = random.Random(7)
    rows = []
    while len(rows) < 160:
        row = draw(r)
        if "prompt" not in row and row["chosen"][0] != row["rejected"][0]:
            continue
        if row["chosen"] == row["rejected"]:
            continue
        found = maybe_extract_prompt(dict(row))
        rows.append({"row": row, "prompt": found["prompt"], "chosen": found["chosen"], "rejected": found["rejected"]})
    OUT.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
