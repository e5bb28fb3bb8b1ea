#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data sets as the hub has them, small, and which rows the `datasets` package finds in each of their splits:
tests/data/import/hub_sets.json, a list of
  files    path -> text of each file of the folder
  subset   what load_dataset() gets as `name`; "" for none
  splits   split -> values of the column "text", in order; null where load_dataset() refuses
Run: python3 hub_sets.py ../data/import/hub_sets.json      (datasets 5.2)
"""
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import datasets  # noqa: E402

datasets.disable_progress_bars()


def rows(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def table(*texts):
    return "text\n" + "".join(text + "\n" for text in texts)


def card(body):
    return "---\nlicense: mit\n" + body + "---\n# Words\n"


TWO_SUBSETS = card("""configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: en/a-*.jsonl
  - split: test
    path:
    - en/t1.jsonl
    - en/t2.jsonl
- config_name: fr
  data_files:
  - split: train
    path: "fr/**"
""")
OF_TWO = {"README.md": TWO_SUBSETS, "en/a-2.jsonl": rows("a2"), "en/a-1.jsonl": rows("a1"), "en/t1.jsonl": rows("t1"),
          "en/t2.jsonl": rows("t2"), "fr/x/y.jsonl": rows("y"), "fr/z.jsonl": rows("z")}

LAYOUTS = [
    ({"rows.jsonl": rows("a", "b")}, ""),
    ({"train.jsonl": rows("a"), "test.jsonl": rows("b")}, ""),
    ({"train.csv": table("a"), "validation.csv": table("b"), "README.md": card("")}, ""),
    ({"data/train-00000-of-00002.jsonl": rows("a"), "data/train-00001-of-00002.jsonl": rows("b"),
      "data/dev-00000-of-00001.jsonl": rows("c")}, ""),
    ({"data/train_sft-00000-of-00001.jsonl": rows("a"), "data/test_sft-00000-of-00001.jsonl": rows("b")}, ""),
    ({"train/one.jsonl": rows("a"), "train/two.jsonl": rows("b"), "valid/one.jsonl": rows("c")}, ""),
    ({"my_train_file.json": rows("a", "c"), "my_eval_file.json": rows("b", "d")}, ""),
    ({"words-dev.jsonl": rows("b"), "words-train.jsonl": rows("a")}, ""),
    ({"part1.jsonl": rows("a"), "part2.jsonl": rows("b")}, ""),
    (OF_TWO, ""), (OF_TWO, "fr"), (OF_TWO, "de"),
    ({"README.md": card("configs:\n- config_name: default\n  data_files: words/*.jsonl\n"),
      "words/b.jsonl": rows("b"), "words/a.jsonl": rows("a"), "other.jsonl": rows("x")}, ""),
    ({"README.md": card("configs:\n- config_name: default\n  data_files:\n"
                        "  - split: train\n    path: words/a.jsonl\n  - split: held\n    path: words/b.jsonl\n"),
      "words/b.jsonl": rows("b"), "words/a.jsonl": rows("a")}, ""),
    ({"README.md": card("configs:\n- config_name: one\n  data_dir: one\n- config_name: two\n  data_dir: two\n"),
      "one/train.jsonl": rows("a"), "one/test.jsonl": rows("b"), "two/c.jsonl": rows("c")}, "one"),
    ({"README.md": card("configs:\n- config_name: one\n  data_files: a.jsonl\n- config_name: two\n"
                        "  data_files: b.jsonl\n"), "a.jsonl": rows("a"), "b.jsonl": rows("b")}, ""),
    ({"README.md": card("configs:\n- config_name: one\n  data_files: a.jsonl\n- config_name: two\n"
                        "  data_files: b.jsonl\n"), "a.jsonl": rows("a"), "b.jsonl": rows("b")}, "two"),
    ({"README.md": card("configs:\n- config_name: default\n  data_files: '**/*.jsonl'\n"), "a.jsonl": rows("a"),
      "deep/er/b.jsonl": rows("b")}, ""),
    ({"README.md": "# No beginning\n", "train.jsonl": rows("a")}, ""),
]


def main():
    results = []
    for files, subset in LAYOUTS:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
            for path, text in files.items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text)
            try:
                found = datasets.load_dataset(folder, subset or None, cache_dir=cache)
                splits = {name: list(part["text"]) for name, part in found.items()}
            except ValueError as error:
                splits = None
                print("refused:", str(error).splitlines()[0][:100])
        print(sorted(files), repr(subset), splits)
        results.append({"files": files, "subset": subset, "splits": splits})
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
