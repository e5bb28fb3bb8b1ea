# SPDX-License-Identifier: Apache-2.0
"""The same steps by transformers, and peft for adapters: random weights of a config.json, random ids, AdamW in
bfloat16, as people write such a loop. Prints a line of JSON."""

import argparse
import json
import statistics
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--optimizer", choices=["adamw"], default="adamw")
    parser.add_argument("--lora_r", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(1)
    with open(args.config, encoding="utf-8") as file:
        fields = json.load(file)
    config = transformers.AutoConfig.for_model(**fields)
    with torch.device(args.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    if args.lora_r:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=args.lora_r, lora_alpha=16, lora_dropout=0.0,
                                                           task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, betas=(0.9, 0.999), weight_decay=0.01, fused=args.device == "cuda")
    wait = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    seconds, losses = [], []
    for _ in range(args.steps):
        ids = torch.randint(fields["vocab_size"], (args.batch, args.tokens), device=args.device)
        wait()
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        wait()
        seconds.append(time.perf_counter() - start)

    step = statistics.median(seconds[2:] or seconds[-1:])
    on_gpu = args.device == "cuda"
    print(json.dumps({
        "program": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "tokens_per_second": args.batch * args.tokens / step,
        "step_seconds": step,
        "steps": seconds,
        "losses": losses,
        "trained": sum(p.numel() for p in trained),
        "allocated": torch.cuda.max_memory_allocated() if on_gpu else None,
        "reserved": torch.cuda.max_memory_reserved() if on_gpu else None,
    }))


if __name__ == "__main__":
    main()
