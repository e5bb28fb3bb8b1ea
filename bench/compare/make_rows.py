# SPDX-License-Identifier: Apache-2.0
"""Writes rows that are each longer than any sequence limit used here, by joining the rows of a
shorter set: cut to the limit they all have the same length, so a batch is exactly B x T tokens."""

import argparse
import json


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="JSONL with instruction and output")
    parser.add_argument("out")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--characters", type=int, default=24000)
    args = parser.parse_args()

    with open(args.source, encoding="utf-8") as file:
        texts = [f"{row['instruction']} {row['output']}." for row in map(json.loads, file)]
    with open(args.out, "w", encoding="utf-8") as out:
        position = 0
        for _ in range(args.rows):
            joined, length = [], 0
            while length < args.characters:
                joined.append(texts[position % len(texts)])
                length += len(joined[-1]) + 1
                position += 7  # coprime to the number of rows, so that rows differ
            row = {"instruction": "Continue.", "input": "", "output": " ".join(joined)}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
