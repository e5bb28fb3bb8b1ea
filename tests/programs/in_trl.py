#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats of the models' own templates, which TRL keeps a copy of: snug's ids are transformers' for every one, and what it
learns is what TRL's training variant of the template marks, drawn from conversations with system texts, tools, thoughts,
empty and repeated contents, and marks of templates typed by users.

Two things differ by intention. What a prompt ends with (<|start|>assistant) is no answer, while some variants mark it; it is
taken off before texts are compared, as is white space around them. And where the variant writes thoughts of earlier answers
which the template drops, each answer is compared as a sample of its own (--data.split_turns true).

Needs transformers and the package trl, of which only the folder chat_templates is read.
Run: in_trl.py SNUG [CONVERSATIONS [TEMPLATE…]]
"""
import copy
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
spec = importlib.util.find_spec("trl")
try:
    from transformers import PreTrainedTokenizerFast
except ImportError:
    spec = None
if spec is None:
    print("skipped: needs transformers and trl")
    sys.exit(77)
TEMPLATES = Path(next(iter(spec.submodule_search_locations))) / "chat_templates"

# The end of sequence that belongs to a template, where it is not written by itself.
ENDS = {"gptoss": "<|return|>", "deepseek": "<｜end▁of▁sentence｜>", "glm": "<|endoftext|>", "phi": "<|endoftext|>", "llava": "</s>"}
MARKS = re.compile(r"<\|[^|<>\s']{1,40}\|>|<｜[^｜]*｜>|</?(?:think|tool_call|tool_response|tools)>|<(?:start|end)_of_\w+>|<\|turn>|<turn\|>|</?s>")
WORDS = ["ok", "ok", "Hi", "assistant", "2 + 2?", "Köln", "a\nb", "q", "user: no", "日本", "<|im_end|>", "[/INST]", "<|eot_id|>", "{x}"]
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]}}}]
# What these variants write otherwise than their templates, even of an answer by itself.
KNOWN = {
    "deepseek_r1_distill": "the variant keeps thoughts, which the template always drops",
    "glm4moe": "the template ends nothing: snug adds an end of sequence, the variant the next turn's mark",
}


def tokenizer(name, source, folder):
    made = PreTrainedTokenizerFast.from_pretrained(Path(__file__).parents[1] / "data/tokenizer/qwen2")
    end = next((mark for start, mark in ENDS.items() if name.startswith(start)), "<|im_end|>")
    made.add_special_tokens({"additional_special_tokens": sorted(set(MARKS.findall(source)) - {"<think>", "</think>"})})
    made.add_special_tokens({"bos_token": "<|bos|>", "eos_token": end, "pad_token": end})
    made.chat_template = source
    made.save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def draw(r, tools, thoughts):
    def words(most=3):
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))

    messages = [{"role": "system", "content": words()}] if r.random() < 0.4 else []
    for _ in range(r.randint(1, 3)):
        messages.append({"role": "user", "content": words()})
        if tools and r.random() < 0.5:
            call = {"id": "call00000", "type": "function", "function": {"name": "find", "arguments": {"city": words(), "n": r.randint(0, 9)}}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "content": words(), "name": "find", "tool_call_id": "call00000"})
        answer = {"role": "assistant", "content": words()}
        if thoughts and r.random() < 0.3:
            answer[r.choice(["reasoning_content", "thinking"])] = words()
        elif thoughts and r.random() < 0.2:
            answer["content"] = f"<think>\n{words()}\n</think>\n\n{answer['content']}"
        messages.append(answer)
    return {"messages": messages} | ({"tools": TOOLS} if tools else {})


def shown(snug, folder, rows, more=()):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [snug, "data", "show", str(file), "--model", str(folder), "--num_samples", "100000", "--data.val_split_fraction", "0", "--data.mask_prompt", "true", "--json", *more]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{folder.name}: {done.stderr}")
    return json.loads(done.stdout)["shown"]


def main():
    snug, count = sys.argv[1], int((sys.argv + ["25"])[2]) if len(sys.argv) > 2 else 25
    names = sys.argv[3:] or sorted(file.stem for file in TEMPLATES.glob("*.jinja") if not file.stem.endswith("_training"))
    totals, faults = {"conversations": 0, "ids": 0, "answers": 0, "learnt": 0, "explained": 0}, []
    for name in names:
        source = (TEMPLATES / f"{name}.jinja").read_text()
        variant = TEMPLATES / f"{name}_training.jinja"
        marked = variant.read_text() if variant.exists() else source if re.search(r"{%-?\s*generation", source) else None
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / name
            tok = tokenizer(name, source, folder)
            in_parts = ("'image'" in source or '"image"' in source) and "is string" not in source

            def handed(row):
                messages = copy.deepcopy(row["messages"])
                if in_parts:
                    for message in messages:
                        message["content"] = [{"type": "text", "text": message["content"]}]
                return {"conversation": messages, "tools": row.get("tools")}

            opening = tok.apply_chat_template(**handed({"messages": [{"role": "user", "content": "q"}]}), tokenize=False, add_generation_prompt=True)
            closed = tok.apply_chat_template(**handed({"messages": [{"role": "user", "content": "q"}]}), tokenize=False)
            opening = re.split("<think>", opening[len(os.path.commonprefix([opening, closed])):])[0]

            def stretches(row):
                out = tok.apply_chat_template(**handed(row), chat_template=marked, return_dict=True, return_assistant_tokens_mask=True)
                found, last = [], False
                for token, mask in zip(out["input_ids"], out["assistant_masks"]):
                    if mask:
                        found = found if last else found + [[]]
                        found[-1].append(token)
                    last = mask
                return [bare(tok.decode(ids)) for ids in found]

            def bare(text):
                return text.removeprefix(opening).strip().removeprefix(opening.strip()).strip()

            r = random.Random(name)
            rows, expected = [], []
            for _ in range(10 * count):
                row = draw(r, "tool_calls" in source and r.random() < 0.5, r.random() < 0.6)
                try:
                    ids = tok.apply_chat_template(**handed(row), return_dict=True)["input_ids"]
                    truth = stretches(row) if marked else None
                except Exception:  # what the template refuses
                    continue
                same = marked and tok.apply_chat_template(**handed(row), tokenize=False) == tok.apply_chat_template(**handed(row), tokenize=False, chat_template=marked)
                rows.append(row)
                expected.append((ids, truth, same))
                if len(rows) == count:
                    break
            if not rows:
                faults.append(f"{name}: no conversation that it takes")
                continue
            found = shown(snug, folder, rows)
            alone = shown(snug, folder, rows, ["--data.split_turns", "true"]) if marked else []
            at = 0
            for row, (ids, truth, same), one in zip(rows, expected, found):
                totals["conversations"] += 1
                if one["ids"] == ids:
                    totals["ids"] += 1
                elif name in KNOWN:
                    totals["explained"] += 1
                else:
                    faults.append(f"{name}: ids of {row['messages']}: {tok.decode(ids)!r}, not {tok.decode(one['ids'])!r}")
                turns = [i for i, message in enumerate(row["messages"]) if message["role"] == "assistant"]
                own = alone[at:at + len(turns)]
                at += len(turns)
                if not marked:
                    continue
                if same:
                    pairs = [(truth, [bare(part["text"]) for part in one["parts"] if part["learnt"]])]
                else:
                    # The samples of a row are in any order.
                    wanted = sorted(stretches({**row, "messages": row["messages"][:i + 1]})[-1] for i in turns)
                    pairs = list(zip(wanted, sorted(bare([part["text"] for part in sample["parts"] if part["learnt"]][-1]) for sample in own)))
                for wanted, learnt in pairs:
                    totals["answers"] += 1
                    if wanted == learnt:
                        totals["learnt"] += 1
                    elif name in KNOWN:
                        totals["explained"] += 1
                    else:
                        faults.append(f"{name}: learnt of {row['messages']}: {learnt}, not {wanted}")
    for fault in faults[:20]:
        print(fault)
    for name in KNOWN:
        print(f"{name}: {KNOWN[name]}")
    print(", ".join(f"{count} {what}" for what, count in totals.items()), f"{len(faults)} failed", sep=", ")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
