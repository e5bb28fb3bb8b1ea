# SPDX-License-Identifier: Apache-2.0
"""Runs `litgpt finetune_full` and reads its figures. The checkpoint is converted once, beside the
Hugging Face directory. Prints one line of JSON.

Real tokens a second: prompt and answer without padding, over the time inside the iterations, which
leaves out validation and saving.
"""

import argparse
import json
import os
import re
import shutil
import sys

import measure

ITERATION = re.compile(r"iter time: ([0-9.]+) ms")
REAL_TOKENS = re.compile(r"Tokens w/ Prompt\s*:?\s*([0-9]+)")
VALIDATION = re.compile(r"Final evaluation \| val loss: ([0-9.]+)")


def litgpt_command():
    beside = os.path.join(os.path.dirname(sys.executable), "litgpt")
    return beside if os.path.exists(beside) else "litgpt"


def converted(model, name):
    """A copy of the directory with litgpt's own lit_model.pth in it. Its name is not the model's: in folders
    called SmolLM2-…-Instruct litgpt puts a BOS before each row, which the model's own tokenizer does not."""
    target = os.path.join(os.path.dirname(os.path.abspath(model)), "litgpt-" + name)
    if os.path.exists(os.path.join(target, "lit_model.pth")):
        return target
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(model, target)
    measure.run(
        [litgpt_command(), "convert_to_litgpt", target, "--model_name", name], limit_seconds=600
    )
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True, help="Hugging Face directory")
    parser.add_argument("--name", default="SmolLM2-135M-Instruct", help="litgpt's name of the model")
    parser.add_argument("--config", required=True, help="recipe, the same that snug gets")
    parser.add_argument("--out_dir", required=True)
    parser.add_argument("--limit_seconds", type=int, default=3600)
    args, options = parser.parse_known_args()

    command = [litgpt_command(), "finetune_full", converted(args.model, args.name)]
    command += ["--config", args.config, "--out_dir", args.out_dir, *options]
    result = measure.run(command, args.limit_seconds)
    tokens = REAL_TOKENS.search(result["output"])
    iterations = [float(ms) / 1e3 for ms in ITERATION.findall(result["output"])]
    validation = VALIDATION.search(result["output"])
    if not tokens or not iterations:
        raise SystemExit("error: litgpt printed no figures:\n" + result["output"][-3000:])
    print(json.dumps({
        "program": "litgpt finetune_full",
        "command": " ".join(command),
        "tokens_per_second": int(tokens[1]) / sum(iterations),
        "tokens": int(tokens[1]),
        "iteration_seconds": iterations,
        "peak_rss_bytes": result["peak_rss_bytes"],
        "validation_loss": float(validation[1]) if validation else None,
        "seconds_total": result["seconds"],
    }))


if __name__ == "__main__":
    main()
