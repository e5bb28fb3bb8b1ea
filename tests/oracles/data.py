# Writes tests/data/data/sft.json: prompts, ids, labels, token counts and padded batches as LitGPT makes
# them, with a tokenizer of one id a byte.
# Needs litgpt: python tests/oracles/data.py
# SPDX-License-Identifier: Apache-2.0
import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

from litgpt.data.base import SFTDataset, get_sft_collate_fn
from litgpt.prompts import PromptStyle
from litgpt.tokenizer import Tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "data" / "data"
BOS, EOS, FIRST_BYTE = 1, 2, 3

ROWS = [
    {"instruction": "Name a colour.", "input": "", "output": "Blue."},
    {"instruction": "Translate to German.", "input": "good morning", "output": "Guten Morgen"},
    {"instruction": "", "input": "", "output": "An answer to nothing"},
    {"instruction": "Say nothing.", "input": "", "output": ""},
    {"instruction": "Grüße — 你好 🎉", "input": "tab\tand\nline", "output": "a\u0000b\r\n  c  "},
    {"instruction": "Write a lot. " * 12, "input": "", "output": "lot " * 40},
]


class Bytes:
    def encode(self, text):
        return SimpleNamespace(ids=[b + FIRST_BYTE for b in text.encode()])


def byte_tokenizer(use_bos):
    tokenizer = object.__new__(Tokenizer)
    tokenizer.backend, tokenizer.processor = "huggingface", Bytes()
    tokenizer.use_bos, tokenizer.bos_id, tokenizer.eos_id = use_bos, BOS, EOS
    return tokenizer


def case(style, use_bos, mask_prompt, max_seq_length):
    dataset = SFTDataset(
        ROWS, byte_tokenizer(use_bos), style, max_seq_length=max_seq_length, mask_prompt=mask_prompt, ignore_index=-100
    )
    samples = [dataset[i] for i in range(len(ROWS))]
    batch = get_sft_collate_fn(max_seq_length=max_seq_length, pad_id=0, ignore_index=-100)(samples)
    return {
        "style": style,
        "use_bos": use_bos,
        "mask_prompt": mask_prompt,
        "max_seq_length": max_seq_length,
        "ids": [s["input_ids"].tolist() for s in samples],
        "labels": [s["labels"].tolist() for s in samples],
        "raw": [s["token_counts"]["raw"] for s in samples],
        "batch_ids": batch["input_ids"].tolist(),
        "batch_labels": batch["labels"].tolist(),
    }


def write_sft():
    cases = [
        case("alpaca", use_bos=True, mask_prompt=True, max_seq_length=256),
        case("alpaca", use_bos=False, mask_prompt=False, max_seq_length=170),
        case("flan", use_bos=True, mask_prompt=True, max_seq_length=-1),
    ]
    prompts = {
        style: [PromptStyle.from_name(style).apply(prompt=row["instruction"], **row) for row in ROWS]
        for style in ("alpaca", "flan", "longform")
    }
    result = {"litgpt": version("litgpt"), "rows": ROWS, "prompts": prompts, "cases": cases}
    (FOLDER / "sft.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_sft()
