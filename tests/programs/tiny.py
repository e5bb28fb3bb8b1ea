# SPDX-License-Identifier: Apache-2.0
"""Small models for the programs that look at them: random weights, trained for some steps by snug."""
import json
import os
import subprocess
from pathlib import Path

TINY = Path(__file__).resolve().parents[1] / "data" / "system" / "tiny"


def run(snug, *words):
    result = subprocess.run([snug, *map(str, words)], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "2"})
    assert result.returncode == 0, (words, result.stdout[-2000:] + result.stderr[-2000:])
    return result.stdout


def write_rows(path):
    rows = [{"instruction": f"say {i % 7}", "input": "", "output": "abc"[i % 3] * (1 + i % 7)} for i in range(64)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(snug, command, model, out, steps, *more):
    """The folder that the run leaves."""
    run(snug, command, model, "--data", "JSON", "--data.json_path", write_rows(out.parent / "rows.jsonl"),
        "--data.prompt_style", "plain", "--out_dir", out, "--precision", "32-true", "--train.global_batch_size", 8,
        "--train.micro_batch_size", 8, "--train.max_steps", steps, "--train.lr_warmup_steps", 0, *more)
    return out / "final"


def base_model(snug, folder, **config):
    """A model of this config after some steps."""
    known = json.loads((TINY / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, **config}))
    return train(snug, "finetune_full", TINY, folder / "base", 20, "--model.config", folder / "config.json",
                 "--lr", 0.003)
