#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What snug writes as a Hugging Face directory, by EleutherAI's lm_eval: on a task in a local file it answers what
`snug generate` answers, and gives the answers of the rows the probability that `snug evaluate` gives them.

Needs lm_eval, transformers and torch.
Run: in_lm_eval.py SNUG
"""
import json
import math
import os
import sys
import tempfile
from pathlib import Path

from tiny import base_model, run, train

CACHE = tempfile.TemporaryDirectory()  # read on import
os.environ |= {"HF_HOME": CACHE.name, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
try:
    import lm_eval
    import torch
    import transformers  # noqa: F401
    from lm_eval.tasks import TaskManager
except ImportError as error:
    print(f"skipped: needs lm_eval, transformers and torch ({error})")
    sys.exit(77)

GENERATE = """
task: answers
dataset_path: json
dataset_kwargs: {data_files: {test: ROWS}}
test_split: test
output_type: generate_until
doc_to_text: "{{instruction}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
generation_kwargs: {until: ["\\n\\n\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
"""
SCORE = """
task: probabilities
dataset_path: json
dataset_kwargs: {data_files: {test: ROWS}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{instruction}}"
doc_to_target: "{{output}}<|im_end|>"
target_delimiter: ""
metric_list: [{metric: perplexity}]
"""


def score(folder, model, name, task, rows):
    """What lm_eval finds for the task's metric; its rows lie in NAME.jsonl."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f"{name}.yaml").write_text(task.replace("ROWS", str(file)))
    found = lm_eval.simple_evaluate(
        model="hf", model_args={"pretrained": str(model), "dtype": "float32"}, tasks=[name], device="cpu",
        batch_size=1, bootstrap_iters=0, task_manager=TaskManager(include_path=str(folder), include_defaults=False))
    return next(value for key, value in found["results"][name].items()
                if key.split(",")[0] in ("exact_match", "perplexity"))


def main():
    snug = sys.argv[1]
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        base = base_model(snug, folder)
        adapter = train(snug, "finetune_lora", base, folder / "lora", 20, "--lr", 0.02)
        model = folder / "model"
        run(snug, "merge", adapter, "--out_dir", model)
        rows = [{"instruction": f"say {i}", "input": "", "output": "abc"[i % 3] * (1 + i)} for i in range(7)]

        def answer(question):
            return json.loads(run(snug, "generate", model, "--prompt", question, "--precision", "32-true",
                                  "--temperature", 0, "--max_new_tokens", 6, "--json"))["text"]

        answers = [{**row, "answer": answer(row["instruction"])} for row in rows]
        same = score(folder, model, "answers", GENERATE, answers)
        print(f"of {len(rows)} greedy answers as by snug generate: {same:.0%}; {answers[3]['answer']!r} is one")
        assert same == 1

        found = math.log(score(folder, model, "probabilities", SCORE, rows))  # of a row
        ours = json.loads(run(snug, "evaluate", model, "--data.json_path", folder / "probabilities.jsonl",
                              "--data.mask_prompt", "true", "--precision", "32-true", "--json"))
        wanted = ours["loss"] * ours["tokens"] / ours["samples"]
        print(f"negative logarithm of an answer's probability: {found:.6f}, by snug evaluate {wanted:.6f}")
        assert abs(found - wanted) < 1e-5 * wanted


if __name__ == "__main__":
    main()
