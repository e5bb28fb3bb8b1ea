#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/import/recipes: keys and values of recipes in other programs' example folders.

    git clone https://github.com/axolotl-ai-cloud/axolotl CLONES/axolotl             # 067b021c, July 2026
    git clone https://github.com/hiyouga/LLaMA-Factory CLONES/llama_factory          # ff6d4d12, August 2026
    git clone --branch v0.6.1 https://github.com/pytorch/torchtune CLONES/torchtune
    tests/oracles/import_recipes.py CLONES

One file a program. Each recipe follows a line with its path there and the family of tests/data/parity that its model
is of, or what snug says where it refuses it. Comments are left out, values stay as they are written.
"""
import pathlib
import re
import sys

OUT = pathlib.Path(__file__).parents[1] / "data" / "import" / "recipes"
# Folder of the examples, then family -> recipes that train, reason -> recipes that are refused.
TRAINED = {
    "axolotl": ("examples", {
        "llama": ["archived/code-llama/7b/lora.yml", "archived/openllama-3b/qlora.yml", "archived/tiny-llama/qlora.yml",
                  "archived/yi-34B-chat/qlora.yml",
                  "llama-2/fft_optimized.yml", "llama-2/lora.yml", "llama-2/qlora-fsdp.yml", "llama-3/fft-8b.yaml",
                  "llama-3/instruct-lora-8b.yml", "llama-3/qlora-fsdp-70b.yaml", "llama-3/instruct-dpo-lora-8b.yml"],
        "llama3-rope": ["llama-3/fft-8b-liger-fsdp.yaml", "llama-3/lora-1b-kernels.yml", "llama-3/qlora-1b.yml",
                        "llama-3/qlora-1b-kto.yaml"],
        "mistral": ["mistral/config.yml", "mistral/lora.yml", "mistral/qlora.yml"],
        "phi3": ["phi/lora-3.5.yaml", "phi/phi3-ft-fsdp.yml"],
        "qwen2": ["archived/deepcoder/deepcoder-14B-preview-lora.yml", "qwen2/qlora-fsdp.yaml"],
        "qwen3": ["qwen3/8b-lora-fused-attn.yaml", "qwen3/qlora-fsdp.yaml"],
        "gemma2": ["gemma2/qlora.yml"],
        "gpt-neox": ["archived/pythia/lora.yml"],
        "stablelm": ["archived/stablelm-2/1.6b/fft.yml"],
    }),
    "llama_factory": ("examples", {
        "llama": ["extras/fsdp_qlora/llama3_lora_sft.yaml", "extras/loraplus/llama3_lora_sft.yaml",
                  "extras/pissa/llama3_lora_sft.yaml"],
        "qwen3": ["ascend/qwen3_full_sft_fsdp2.yaml", "train_full/qwen3_full_sft.yaml",
                  "train_lora/qwen3_lora_pretrain.yaml", "train_lora/qwen3_lora_sft.yaml",
                  "train_lora/qwen3_lora_sft_ds3.yaml", "train_lora/qwen3_lora_sft_ray.yaml",
                  "train_qlora/qwen3_lora_sft_otfq.yaml", "train_lora/qwen3_lora_dpo.yaml",
                  "train_lora/qwen3_lora_kto.yaml", "train_lora/qwen3_lora_reward.yaml"],
        "qwen3-moe": ["ascend/qwen3moe_full_sft_fsdp.yaml"],
    }),
    "torchtune": ("recipes/configs", {
        "llama": ["code_llama2/7B_lora_single_device.yaml", "llama2/7B_full_low_memory.yaml",
                  "llama2/13B_qlora_single_device.yaml", "llama3/70B_lora.yaml"],
        "llama3-rope": ["llama3_1/8B_full.yaml", "llama3_1/405B_qlora.yaml", "llama3_2/1B_full_single_device.yaml",
                        "llama3_2/1B_lora.yaml", "llama3_2/3B_qlora_single_device.yaml", "llama3_3/70B_qlora.yaml",
                        "llama3_1/8B_lora_dpo_single_device.yaml"],
        "mistral": ["mistral/7B_full_low_memory.yaml", "mistral/7B_lora.yaml"],
        "phi3": ["phi3/mini_lora.yaml", "phi4/14B_full_low_memory.yaml", "phi4/14B_qlora_single_device.yaml"],
        "qwen2": ["qwen2/0.5B_full_single_device.yaml", "qwen2_5/7B_lora_single_device.yaml"],
        "gemma2": ["gemma2/2B_full.yaml", "gemma2/9B_qlora_single_device.yaml"],
    }),
}
REFUSED = {
    "axolotl": {
        "gptq_disable_exllama: axolotl has no such key": ["llama-2/gptq-lora.yml"],
        "lisa_n_layers: snug does not have this optimizer": ["llama-2/lisa.yml"],
        "relora: adapters here are new": ["llama-2/relora.yml"],
        "lora_modules_to_save: adapters here are new": ["llama-3/lora-8b.yml"],
        "qat: snug quantizes with --quantize": ["llama-3/3b-qat-fsdp2.yaml"],
        "snug has no optimizer adamw_torch_4bit": ["qwen3/32b-qlora.yaml"],
    },
    "llama_factory": {
        "finetuning_type: snug has lora and full, not freeze": ["extras/llama_pro/llama3_freeze_sft.yaml"],
        "use_galore: snug does not have this": ["extras/galore/llama3_full_sft.yaml"],
    },
    "torchtune": {
        "snug does not read Meta's own files": ["llama3/8B_full.yaml"],
        "quantizer: snug trains on quantized weights": ["llama3_2/1B_qat_lora.yaml"],
        "pictures have a guide of their own": ["llama3_2_vision/11B_lora.yaml"],
        "kd_loss: a teacher is asked once, before training": ["qwen2/1.5_to_0.5B_KD_lora_single_device.yaml"],
    },
}


def without_comments(text):
    """Of YAML whose only quoted signs of comments are colours and the like: '#' within quotes stays."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"""^((?:[^'"#]|"[^"]*"|'[^']*')*?)(?:(?:^|\s)#.*)$""", r"\1", line).rstrip()
        if line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    clones = pathlib.Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    for program, (folder, families) in TRAINED.items():
        out = "# SPDX-License-Identifier: Apache-2.0\n"
        for kind, lists in (("trains", families), ("refused", REFUSED[program])):
            for what, recipes in lists.items():
                for recipe in recipes:
                    out += f"# {folder}/{recipe} {kind} {what}\n"
                    out += without_comments((clones / program / folder / recipe).read_text())
        (OUT / f"{program}.yaml").write_text(out)


if __name__ == "__main__":
    main()
