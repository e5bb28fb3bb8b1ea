# SPDX-License-Identifier: Apache-2.0
"""The captioning loop that people write with transformers: processor, Blip2ForConditionalGeneration,
AdamW, a batch of pictures at a time. Prints one line of JSON. Pictures are read and resized in the
loop, as the lab's script does. Peak memory is measured from outside (measure.py)."""

import argparse
import json
import os
import statistics
import time

import torch
import transformers
from PIL import Image


def batches(folder, batch):
    with open(os.path.join(folder, "metadata.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    while True:
        for start in range(0, len(rows) - batch + 1, batch):
            yield rows[start : start + batch]


class Processor:
    """Pictures as the BLIP processor makes them; text as Blip2Processor: placeholders first."""

    def __init__(self, folder, config, tokens):
        self.images = transformers.BlipImageProcessor.from_pretrained(folder)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.placeholders = [config.image_token_index] * config.num_query_tokens
        self.folder, self.tokens = folder, tokens

    def __call__(self, pictures, rows, dtype):
        images = [Image.open(os.path.join(pictures, row["file_name"])).convert("RGB") for row in rows]
        pixels = self.images(images, return_tensors="pt")["pixel_values"].to(dtype)
        end = [self.tokenizer.eos_token_id]
        texts = [self.tokenizer(row["text"], truncation=True, max_length=self.tokens)["input_ids"] + end
                 for row in rows]
        longest = max(len(text) for text in texts)
        pad = self.tokenizer.pad_token_id
        width = len(self.placeholders)
        ids = torch.tensor([self.placeholders + t + [pad] * (longest - len(t)) for t in texts])
        mask = torch.tensor([[1] * (width + len(t)) + [0] * (longest - len(t)) for t in texts])
        labels = torch.tensor([[-100] * (width + 1) + t[1:] + [-100] * (longest - len(t)) for t in texts])
        return {"pixel_values": pixels, "input_ids": ids, "attention_mask": mask, "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--pictures", required=True, help="folder with metadata.jsonl")
    parser.add_argument("--precision", choices=["bf16-true", "32-true"], default="32-true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.precision == "bf16-true" else torch.float32
    model = transformers.Blip2ForConditionalGeneration.from_pretrained(args.model, dtype=dtype)
    model.train()
    process = Processor(args.model, model.config, args.tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0)

    seconds, losses = [], []
    source = batches(args.pictures, args.batch)
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        loss = model(**process(args.pictures, next(source), dtype)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)

    step = statistics.median(seconds[args.warmup :])
    print(json.dumps({
        "program": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "precision": args.precision,
        "samples_per_second": args.batch / step,
        "step_seconds": seconds,
        "losses": losses,
        "threads": torch.get_num_threads(),
    }))


if __name__ == "__main__":
    main()
