# SPDX-License-Identifier: Apache-2.0
"""What overlapping communication with computation is worth: two processes in two network namespaces,
joined by a cable of limited rate, train one model by DDP and by FSDP, with overlap and without. The
computation's share is what two processes take that know nothing of each other, with half of the batch each,
side by side on the same processors; communication's is what a step without overlap takes longer. The cable's
rate is chosen so that the bytes alone take a given share of the computation. Needs root."""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import tempfile

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Many equal layers and a small vocabulary: nothing large is left for the end of a step.
SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}
# What a rank sends in a step, in sizes of all weights: half of every sum and as much of its parts that come back
# (ddp); half of the weights before the forward and before the backward, and half of the gradients (fsdp).
SENT = {"ddp": 1.0, "fsdp": 1.5}
OFF = "--forward_prefetch false --backward_prefetch false --overlap_reduction false"


def prepare(args, folder):
    base = os.path.join(folder, "base")
    shutil.copytree(os.path.join(ROOT, "tests/data/system/tiny"), base)
    with open(os.path.join(base, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(SHAPE, num_hidden_layers=args.layers)
    with open(os.path.join(base, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
        for i in range(64):
            row = {"instruction": f"Count from {i}.", "output": " ".join(str(i + j) for j in range(900))}
            file.write(json.dumps(row) + "\n")
    return base


def seconds(args, folder, base, ranks, options, mbit, name="out"):
    out = os.path.join(folder, name)
    shutil.rmtree(out, ignore_errors=True)
    words = [args.snug, "finetune_full", base, "--model.config", os.path.join(base, "config.json")]
    words += ["--config", os.path.join(HERE, "step.yaml"), "--out_dir", out, "--num_threads", "1"]
    words += ["--data.json_path", os.path.join(folder, "rows.jsonl"), "--precision", args.precision]
    words += ["--train.max_seq_length", str(args.tokens), "--train.micro_batch_size", str(args.batch)]
    words += ["--train.global_batch_size", str(ranks * args.batch), "--train.max_steps", str(args.steps + 1)]
    words += ["--optimizer", "SGD", "--optimizer.lr", "1e-5", *options.split()]
    env = {"OMP_NUM_THREADS": "1"}
    if mbit:
        env["LINK_MBIT"] = str(mbit)
        shell = 'exec "$@" --devices 1 --num_nodes 2 --hosts "$FIRST_HOST:1,$SECOND_HOST:1"'
        words = [os.path.join(ROOT, "tests/system/two_hosts_here"), folder, "sh", "-c", shell, "sh", *words]
    measure.run(words, args.limit_seconds, env)
    with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    return statistics.median(step["seconds"] for step in steps[1:])


def sent_bytes(args, strategy):
    """On each way of the cable, in one step. Norms and the small vocabulary are left out."""
    hidden, wide = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    weights = args.layers * (4 * hidden * hidden + 3 * hidden * wide)
    return SENT[strategy] * weights * (2 if args.precision == "bf16-true" else 4)


def seconds_apart(args, folder, base):
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        runs = [both.submit(seconds, args, folder, base, 1, "", 0, f"alone{i}") for i in range(2)]
        return max(run.result() for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default=os.path.join(ROOT, "build/snug"))
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"])
    parser.add_argument("--share", type=float, default=0.6, help="of the computation, that the bytes alone take")
    parser.add_argument("--mbit", type=int, help="the cable's rate, instead of one for that share")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=900)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--precision", default="bf16-true")
    parser.add_argument("--limit_seconds", type=float, default=600)
    args = parser.parse_args()
    print("| strategy | link | computation | communication | sum | overlapped | overlapped / larger |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        base = prepare(args, folder)
        alone = seconds_apart(args, folder, base)
        for strategy in args.strategies:
            mbit = args.mbit or round(8e-6 * sent_bytes(args, strategy) / (args.share * alone))
            apart = seconds(args, folder, base, 2, f"--strategy {strategy} {OFF}", mbit)
            together = seconds(args, folder, base, 2, f"--strategy {strategy}", mbit)
            sending = apart - alone
            larger = max(alone, sending)
            print(
                f"| {strategy} | {mbit} Mbit/s | {alone:.2f} s | {sending:.2f} s | {apart / larger:.2f} of the larger | "
                f"{together:.2f} s | {together / larger:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
