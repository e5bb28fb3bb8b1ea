#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/data/system/smolvlm/rows: the same chats with pictures in three forms that people keep them in, and
expected.json: transformers' loss of each on the model in tests/data/system/smolvlm, with labels on answers and the token
behind them, and of each parameter the norm and the sum of the gradient of the loss of all tokens together.

Run: python3 smolvlm_rows.py      (torch 2.11, transformers 5, safetensors, Pillow)
"""
import json
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoTokenizer, Idefics3ForConditionalGeneration, Idefics3Processor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "system/smolvlm"
PLACE = "../../../pictures/"
CHATS = [  # role, text with the places of pictures; the pictures
    ([("user", "<image>and<image>: same?"), ("assistant", "no, two")], ["rgb.png", "line.png"]),
    ([("system", "be brief"), ("user", "<image>What is this?"), ("assistant", "a line"), ("user", "and <image>?"),
      ("assistant", "a point")], ["grey4.png", "one.png"]),
    ([("user", "no picture"), ("assistant", "none")], []),
    ([("user", "<image>\nWhat?"), ("assistant", "red"), ("user", "sure?"), ("assistant", "yes")], ["lossless.webp"]),
]


def parts(text, pictures):
    """Content in parts; `pictures`: an iterator of names, or None for parts without one."""
    texts, content = text.split("<image>"), []
    for i, piece in enumerate(texts):
        if i > 0:
            content.append({"type": "image"} if pictures is None else {"type": "image", "image": PLACE + next(pictures)})
        if piece:
            content.append({"type": "text", "text": piece})
    return content


def in_parts(turns, pictures):
    names = iter(pictures)
    return {"messages": [{"role": role, "content": parts(text, names)} for role, text in turns]}


def in_conversations(turns, pictures):
    parties = {"user": "human", "assistant": "gpt", "system": "system"}
    row = {"conversations": [{"from": parties[role], "value": text} for role, text in turns]}
    files = [PLACE + name for name in pictures]
    return row | ({"image": files[0] if len(files) == 1 else files} if files else {})


def beside_messages(turns, pictures):
    return {"messages": [{"role": role, "content": text} for role, text in turns],
            "images": [PLACE + name for name in pictures]}


def make_inputs(processor, turns, pictures):
    messages = [{"role": role, "content": parts(text, None)} for role, text in turns]
    images = [Image.open(DATA / "pictures" / name) for name in pictures]
    inputs = processor(text=processor.apply_chat_template(messages), images=[images] if images else None,
                       return_tensors="pt", add_special_tokens=False)
    inputs.pop("mm_token_type_ids", None)
    tokenizer, ids = processor.tokenizer, inputs["input_ids"][0].tolist()
    end, begins = tokenizer.convert_tokens_to_ids("<end_of_utterance>"), tokenizer("\nAssistant:")["input_ids"]
    labels, at = [-100] * len(ids), 0
    for role, _ in turns:
        after = ids.index(end, at) + 1
        if role == "assistant":
            assert ids[at:at + len(begins)] == begins, tokenizer.decode(ids[at:after])
            # With the line break that the template writes behind it.
            labels[at + len(begins):after + 1] = ids[at + len(begins):after + 1]
        at = after
    return inputs | {"labels": torch.tensor([labels])}


def main():
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    config = json.loads((FOLDER / "processor_config.json").read_text())
    image = config["image_processor"]
    pictures = Idefics3ImageProcessorPil(size=image["size"], max_image_size=image["max_image_size"])
    template = (FOLDER / "chat_template.jinja").read_text()
    processor = Idefics3Processor(pictures, tokenizer, image_seq_len=config["image_seq_len"], chat_template=template)
    model = Idefics3ForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
    out = FOLDER / "rows"
    out.mkdir(exist_ok=True)
    for name, form in [("parts", in_parts), ("conversations", in_conversations), ("beside", beside_messages)]:
        lines = [json.dumps(form(*chat)) for chat in CHATS]
        (out / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    rows, total, tokens = [], 0, 0
    for chat in CHATS:
        inputs = make_inputs(processor, *chat)
        count = int((inputs["labels"][0, 1:] != -100).sum())
        loss = model(**inputs).loss
        tiles = inputs["pixel_values"].shape[1] if "pixel_values" in inputs else 0
        rows.append({"loss": loss.item(), "learned": count, "tokens": inputs["input_ids"].shape[1] - 1, "tiles": tiles})
        total, tokens = total + loss * count, tokens + count
    (total / tokens).backward()
    gradients = {name: {"norm": p.grad.norm().item(), "sum": p.grad.double().sum().item()}
                 for name, p in model.named_parameters() if p.grad is not None}
    (out / "expected.json").write_text(
        json.dumps({"rows": rows, "loss": (total / tokens).item(), "gradients": gradients}, indent=1) + "\n")
    print(rows, (total / tokens).item(), len(gradients))


if __name__ == "__main__":
    main()
