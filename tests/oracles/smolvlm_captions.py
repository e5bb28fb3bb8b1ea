#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/data/system/smolvlm: a small random Idefics3 with tokenizer, processor and chat template as transformers
writes them, captions.json: the greedy answers of transformers' own processor and generate() to a question about
pictures of tests/data/pictures, and chats.json: to a prompt with several of them and after a system message. Tokens are those of tests/data/system/tiny, with the processor's beside them.

Run: python3 smolvlm_captions.py      (torch 2.11, transformers 5, safetensors, Pillow)
"""
import json
from pathlib import Path

import torch
from PIL import Image
from transformers import (AutoTokenizer, Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor,
                          LlamaConfig)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDER = DATA / "system/smolvlm"
PICTURES = ["rgb.png", "line.png", "one.png", "lossless.webp", "grey4.png"]
QUESTION, SIDE, PATCH, SCALE, NEW_TOKENS = "What is this?", 14, 3, 2, 12
TEMPLATE = ("{% for m in messages %}{{ m['role'] | capitalize }}:"
            "{% if m['content'][0]['type'] != 'image' %} {% endif %}{% for part in m['content'] %}"
            "{% if part['type'] == 'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}<image>{% endif %}"
            "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}")


def make_processor():
    tokenizer = AutoTokenizer.from_pretrained(DATA / "system/tiny")
    own = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    own += [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    tokenizer.add_special_tokens({"additional_special_tokens": own, "eos_token": "<end_of_utterance>"})
    tokenizer.chat_template = TEMPLATE
    pictures = Idefics3ImageProcessorPil(size={"longest_edge": 4 * SIDE}, max_image_size={"longest_edge": SIDE})
    return Idefics3Processor(pictures, tokenizer, image_seq_len=(SIDE // PATCH // SCALE) ** 2, chat_template=TEMPLATE)


def make_model(tokenizer):
    torch.manual_seed(1)
    text = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                       eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id, pad_token_id=None)
    config = Idefics3Config(vision_config=dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                               num_attention_heads=2, image_size=SIDE, patch_size=PATCH),
                            image_token_id=tokenizer.convert_tokens_to_ids("<image>"), scale_factor=SCALE, text_config=text)
    config._attn_implementation = "eager"
    model = Idefics3ForConditionalGeneration(config).float().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.3)
    return model


def caption(model, processor, name):
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    text = processor.apply_chat_template([turn], add_generation_prompt=True)
    inputs = processor(text=text, images=[[Image.open(DATA / "pictures" / name)]], return_tensors="pt",
                       add_special_tokens=False)
    inputs.pop("mm_token_type_ids", None)
    ids = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)[0, inputs["input_ids"].shape[1]:]
    return {"file": name, "prompt_tokens": inputs["input_ids"].shape[1],
            "caption": processor.tokenizer.decode(ids, skip_special_tokens=True)}


CHATS = [  # pictures, prompt with their places, system message
    (["rgb.png", "line.png"], "<image>and<image>: same?", ""),
    (["one.png", "grey4.png", "rgb.png"], "<image><image><image>which?", ""),
    (["rgb.png"], "<image>What is this?", "be brief"),
    ([], "no picture", ""),
]


def answer(model, processor, names, prompt, system):
    texts = prompt.split("<image>")
    content = [{"type": "text", "text": texts[0]}] if texts[0] else []
    for text in texts[1:]:
        content += [{"type": "image"}] + ([{"type": "text", "text": text}] if text else [])
    turns = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
    text = processor.apply_chat_template([*turns, {"role": "user", "content": content}], add_generation_prompt=True)
    pictures = [Image.open(DATA / "pictures" / name) for name in names]
    inputs = processor(text=text, images=[pictures] if pictures else None, return_tensors="pt", add_special_tokens=False)
    inputs.pop("mm_token_type_ids", None)
    ids = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)[0, inputs["input_ids"].shape[1]:]
    return {"pictures": names, "prompt": prompt, "system": system,
            "answer": processor.tokenizer.decode(ids, skip_special_tokens=True)}


def main():
    processor = make_processor()
    model = make_model(processor.tokenizer)
    model.save_pretrained(FOLDER)
    processor.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    chats = [answer(model, processor, *chat) for chat in CHATS]
    (FOLDER / "chats.json").write_text(json.dumps(chats, indent=1) + "\n")
    captions = [caption(model, processor, name) for name in PICTURES]
    (FOLDER / "captions.json").write_text(json.dumps(captions, indent=1) + "\n")
    print(captions, chats)


if __name__ == "__main__":
    main()
