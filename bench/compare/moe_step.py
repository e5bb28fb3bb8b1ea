# SPDX-License-Identifier: Apache-2.0
"""A step of a mixture of experts beside that of a dense model of its active size, in turns, with random weights: the
dense model's feed-forward layer is as wide as the experts that each token meets. Prints a table of medians.

Full fine-tuning also updates the experts that a token does not meet; with LoRA the weights are frozen in both."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile


def configs(args):
    """Of both models, by name; Qwen3's families, so that all but the feed-forward layers is the same."""
    common = {"hidden_size": args.hidden, "num_hidden_layers": args.layers, "num_attention_heads": args.hidden // 64,
              "num_key_value_heads": args.hidden // 128, "head_dim": 64, "vocab_size": 32000, "hidden_act": "silu",
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True}
    dense = {**common, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
             "intermediate_size": args.active * args.expert_size}
    mixture = {**common, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
               "intermediate_size": args.active * args.expert_size, "moe_intermediate_size": args.expert_size,
               "num_experts": args.experts, "num_experts_per_tok": args.active, "norm_topk_prob": True,
               "decoder_sparse_step": 1, "mlp_only_layers": []}
    return {"dense": dense, "mixture": mixture}


def step_seconds(args, command, config, folder):
    words = [args.snug, command, "--model.config", config, "--data", "Synthetic", "--precision", "bf16-true",
             "--train.max_seq_length", args.tokens, "--train.micro_batch_size", args.batch,
             "--train.global_batch_size", args.batch, "--train.max_steps", args.steps, "--train.save_model", "false",
             "--train.save_interval", "none", "--out_dir", folder]
    subprocess.run([str(word) for word in words], check=True, capture_output=True)
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        return [step["seconds"] for step in json.load(file)["steps"]][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--active", type=int, default=4, help="experts that each token meets")
    parser.add_argument("--expert_size", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commands", nargs="*", default=["finetune_lora", "finetune_full"])
    args = parser.parse_args()

    print("| | dense s | mixture s | mixture ÷ dense |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for command in args.commands:
            found = {}
            for turn in range(args.rounds):
                for name, config in configs(args).items():
                    path = os.path.join(folder, f"{name}.json")
                    with open(path, "w", encoding="utf-8") as file:
                        json.dump(config, file)
                    out_dir = os.path.join(folder, f"{command}-{name}-{turn}")
                    found.setdefault(name, []).extend(step_seconds(args, command, path, out_dir))
            dense, mixture = (statistics.median(found[name]) for name in ("dense", "mixture"))
            print(f"| `{command}` | {dense:.2f} | {mixture:.2f} | {mixture / dense:.2f} |", flush=True)


if __name__ == "__main__":
    main()
