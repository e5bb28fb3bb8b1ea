#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of conversations with the templates that TRL and axolotl have under the names of ours (text/template/named_templates.h).

Needs transformers, and the files of the packages trl 1.16.0 and axolotl 0.19.0, which need not work: TRL and AXOLOTL name their folders.
Writes tests/data/tokenizer/named_templates.json.
"""
import json
import os
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

DATA = Path(__file__).parents[1] / "data/tokenizer"
TRL = Path(os.environ["TRL"]) / "chat_templates"
AXOLOTL = Path(os.environ["AXOLOTL"]) / "utils/chat_templates/templates"
SYSTEM = [{"role": "system", "content": "Be brief."}]
TURNS = [
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Köln?\nSay"},
    {"role": "assistant", "content": "Yes {x}"},
]
SOURCES = [
    ("alpaca", AXOLOTL / "alpaca.jinja", SYSTEM + TURNS),
    ("chatml", AXOLOTL / "chatml.jinja", SYSTEM + TURNS),
    ("gemma", TRL / "gemma.jinja", TURNS),
    ("gemma", TRL / "gemma3.jinja", SYSTEM + TURNS),
    ("llama3", TRL / "llama3.jinja", SYSTEM + TURNS),
    ("llama3", AXOLOTL / "llama3.jinja", TURNS),
    ("phi3", AXOLOTL / "phi_3.jinja", SYSTEM + TURNS),
]


def main():
    document = []
    for name, file, messages in SOURCES:

        def rendered(turns, opens):
            return render_jinja_template([turns], chat_template=file.read_text(), add_generation_prompt=opens, bos_token="<s>", eos_token="</s>")[0][0]

        document.append({"template": name, "messages": messages, "text": rendered(messages, False), "prompt": rendered(messages[:-1], True)})
    (DATA / "named_templates.json").write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
