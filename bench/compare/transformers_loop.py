# SPDX-License-Identifier: Apache-2.0
"""The plain training loop that people write with transformers, and with peft and bitsandbytes for
adapters: from_pretrained, AdamW, batch x tokens at a time. Prints one line of JSON. Peak memory is measured from outside (measure.py)."""

import argparse
import json
import statistics
import time

import torch
import transformers


def batches(path, tokenizer, batch, tokens):
    """Batches of exactly (batch, tokens) ids, round and round."""
    with open(path, encoding="utf-8") as file:
        texts = [json.loads(line)["output"] for line in file]
    ids = [tokenizer(t, truncation=True, max_length=tokens)["input_ids"] for t in texts]
    rows = torch.tensor([row for row in ids if len(row) == tokens])
    if len(rows) < batch:
        raise SystemExit(f"error: {path} has {len(rows)} rows of {tokens} tokens, {batch} are wanted")
    while True:
        for start in range(0, len(rows) - batch + 1, batch):
            yield rows[start : start + batch]


def load(args, dtype):
    options = {"dtype": dtype}
    if args.quantize:
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=args.quantize, bnb_4bit_compute_dtype=dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, **options)
    if not args.lora_r:
        return model
    import peft

    config = peft.LoraConfig(r=args.lora_r, lora_alpha=16, lora_dropout=0.05, task_type="CAUSAL_LM",
                             target_modules=["q_proj", "v_proj"])
    return peft.get_peft_model(model, config)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--data", required=True, help="rows of make_rows.py")
    parser.add_argument("--precision", choices=["bf16-true", "32-true"], default="bf16-true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--lora_r", type=int, default=0, help="adapters of this rank on q and v")
    parser.add_argument("--quantize", choices=["nf4"], help="the frozen weights, by bitsandbytes")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.precision == "bf16-true" else torch.float32
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    model = load(args, dtype)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, betas=(0.9, 0.95), weight_decay=0.0)

    seconds, losses = [], []
    source = batches(args.data, tokenizer, args.batch, args.tokens)
    for _ in range(args.warmup + args.steps):
        ids = next(source)
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)

    step = statistics.median(seconds[args.warmup :])
    print(json.dumps({
        "program": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "precision": args.precision,
        "tokens_per_second": args.batch * args.tokens / step,
        "step_seconds": seconds,
        "losses": losses,
        "threads": torch.get_num_threads(),
    }))


if __name__ == "__main__":
    main()
