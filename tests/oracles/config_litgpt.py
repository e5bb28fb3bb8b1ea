# SPDX-License-Identifier: Apache-2.0
"""What LitGPT itself makes of our recipes and of its command lines: `--print_config`, as JSON.

Run from the repository root with a Python that has litgpt:
    python tests/oracles/config_litgpt.py > tests/data/config/litgpt_resolved.json
"""
import contextlib
import importlib.metadata
import io
import json
import sys
import warnings

import yaml

warnings.filterwarnings("ignore")
from litgpt.__main__ import main  # noqa: E402

FULL, LORA = "finetune_full", "finetune"
RUNS = [
    f"{FULL} checkpoints/x",
    f"{LORA} checkpoints/x",
    f"{FULL} checkpoints/x --data LIMA --optimizer SGD",
    f"{FULL} checkpoints/x --data AlpacaGPT4 --train.max_tokens 10_000 --seed=7",
    f"{FULL} checkpoints/x --data Alpaca2k --data.mask_prompt true --train.lr_warmup_steps null",
    f"{FULL} checkpoints/x --precision 32-true --devices 1 --resume auto --logger_name tensorboard",
    f"{FULL} --config recipes/tiny-llama/full.yaml --train.global_batch_size 32 --train.micro_batch_size 32",
    f"{FULL} --config recipes/tiny-llama/full.yaml --train.global_batch_size 8 --train.micro_batch_size 8",
    f"{FULL} --config recipes/tiny-llama/full.yaml --train.global_batch_size 32 --train.micro_batch_size 8"
    " --precision bf16-true",
    f"{FULL} --config recipes/tiny-llama/full.yaml --train.global_batch_size 32 --train.micro_batch_size 8"
    " --precision bf16-mixed",
    f"{FULL} --config recipes/open-llama-3b/full.yaml --train.global_batch_size 32 --train.micro_batch_size 8"
    " --precision bf16-true",
    f"{FULL} --config recipes/open-llama-7b/full.yaml --train.global_batch_size 16 --train.micro_batch_size 4"
    " --precision bf16-true",
    f"{FULL} --config recipes/open-llama-13b/full.yaml --train.global_batch_size 1 --train.micro_batch_size 1"
    " --precision bf16-true",
    f"{FULL} --config recipes/open-llama-13b/full.yaml --train.global_batch_size 1 --train.micro_batch_size 1"
    " --precision bf16-true --optimizer SGD --train.max_steps 25",
    f"{FULL} --config recipes/tiny-llama/full.yaml --data LIMA --train.epochs 2",
    f"{LORA} --config recipes/tiny-llama/lora.yaml",
    f"{LORA} --config recipes/tiny-llama/qlora.yaml",
    f"{LORA} --config recipes/open-llama-3b/lora.yaml",
    f"{LORA} --config recipes/open-llama-3b/qlora.yaml",
    f"{LORA} --config recipes/open-llama-7b/lora.yaml",
    f"{LORA} --config recipes/open-llama-7b/lora.yaml --quantize bnb.nf4",
    f"{LORA} --config recipes/open-llama-7b/qlora.yaml --lora_r 4 --lora_mlp false",
    f"{LORA} --config recipes/open-llama-13b/lora.yaml",
    f"{LORA} --config recipes/open-llama-13b/qlora.yaml",
]


def resolve(line):
    sys.argv = ["litgpt", *line.split(), "--print_config"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main()
    return yaml.safe_load(out.getvalue())


if __name__ == "__main__":
    versions = {name: importlib.metadata.version(name) for name in ("litgpt", "jsonargparse")}
    runs = [{"line": line, "resolved": resolve(line)} for line in RUNS]
    print(json.dumps({"versions": versions, "runs": runs}, indent=1))
