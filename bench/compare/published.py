# SPDX-License-Identifier: Apache-2.0
"""Plans every published fine-tuning run of an experiment list with `snug plan --like`, full or with
adapters, and prints Markdown tables: what was published, what LitGPT is counted to take, what snug takes;
of runs on several GPUs also what travels between them. Runs of models that snug does not have are listed.

The list is a YAML file with `suites`, each with `experiments`: id, model, hardware, precision,
optimizer.name, micro_batch, global_batch, seq_len, devices, nodes, strategy, lora, expected (ok or oom)
and, where there are figures, measured[].memory[] with allocated and reserved in GiB right after a forward,
one entry a rank; with adapters lora.r, lora.alpha, lora.dropout and lora.targets (query, key, value,
projection, mlp, head), and quantize."""

import argparse
import json
import os
import subprocess

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GIB = 2**30
MODELS = {
    "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": "tiny-llama",
    "openlm-research/open_llama_3b": "open-llama-3b",
    "openlm-research/open_llama_7b": "open-llama-7b",
    "openlm-research/open_llama_13b": "open-llama-13b",
}
DEVICES = {"A100 80": "a100-80", "A100-80": "a100-80", "V100 32": "v100-32"}


def device_of(hardware):
    for words, name in DEVICES.items():
        if words in hardware:
            return name
    raise SystemExit(f"error: no device profile for {hardware!r}")


def strategy_of(row):
    """The strategy as snug takes it: what stands before a remark."""
    words = str(row.get("strategy") or "auto")
    return words if "(" in words and "=" in words else words.split(" ")[0]


def runs(path, missing):
    """One entry a run: a row of the list with one of its variants' figures, if it has any. Models that
    snug does not have go to `missing`, with their runs."""
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    rows = [(s["name"], e) for s in document["suites"] for e in s["experiments"]]
    for entry in document.get("variants_outside_the_sources", {}).get("v100_32gb_litgpt", []):
        figures = entry.get("allocated_reserved_GiB")
        memory = [{"allocated": a, "reserved": r} for a, r in figures or []]
        # Those that say no more are the first one's on more devices.
        accumulate = entry.get("accumulate", 4 if "tiny" in entry["id"] else 1)
        strategy = next((name for name in ("ddp", "fsdp") if name in entry["id"]), "auto")
        rows.append(("lightning", {
            "optimizer": {"name": "torch.optim.AdamW"}, "precision": "bf16-true", "seq_len": 512,
            "global_batch": entry.get("micro_batch", 8) * accumulate * entry.get("devices", 1), "devices": 1,
            "micro_batch": 8, "expected": "ok", "hardware": "1x V100 32", "strategy": strategy,
            "model": next(name for name in MODELS if "TinyLlama" in name), **entry,
            "measured": [{"memory": memory}] if memory else [],
        }))
    for suite, row in rows:
        if row.get("model") not in MODELS:
            missing.setdefault(row.get("model"), []).append(row["id"])
            continue
        program = "litgpt" if suite == "litgpt-single" else "lightning"
        for measured in row.get("measured") or [{}]:
            accumulates = "accumulation 4" in measured.get("variant", "") and "without" not in measured["variant"]
            yield {
                "id": row["id"],
                "model": MODELS[row["model"]],
                "device": device_of(row["hardware"]),
                "precision": row["precision"],
                # Where weights are quantized, LitGPT takes bitsandbytes' paged AdamW for AdamW.
                "optimizer": "torch.optim.AdamW" if row.get("quantize") else row["optimizer"]["name"],
                "lora": row.get("lora"),
                "quantize": row.get("quantize"),
                "micro": row["micro_batch"],
                "global": row["micro_batch"] * 4 if accumulates else row["global_batch"],
                "tokens": row["seq_len"],
                "program": program,
                "expected": row["expected"],
                "memory": (measured.get("memory") or [None])[0],
                "ranks": measured.get("memory") or [],
                "devices": row["devices"],
                "nodes": row.get("nodes", 1),
                "strategy": strategy_of(row),
            }


def adapter_options(run):
    lora = run["lora"]
    if not lora:
        return []
    words = []
    for name in ("r", "alpha", "dropout"):
        words += ["--lora_" + name, str(lora[name])]
    for target in ("query", "key", "value", "projection", "mlp", "head"):
        words += ["--lora_" + target, "true" if target in lora["targets"] else "false"]
    return words + (["--quantize", run["quantize"]] if run["quantize"] else [])


def method(run):
    optimizer = run["optimizer"].split(".")[-1]
    lora = f", LoRA {run['lora']['r']}" if run["lora"] else ""
    return f"{run['precision']}, {optimizer}{lora}" + (f", {run['quantize']}" if run["quantize"] else "")


def optimizer_of(run):
    """DeepSpeed's Adam for the host is AdamW there; the strategy's name says where states are."""
    return "AdamW" if run["optimizer"] == "DeepSpeedCPUAdam" else run["optimizer"]


def plan(snug, run, like=True):
    command = [
        snug, "plan", "--model.config", os.path.join(ROOT, "recipes", "models", run["model"] + ".json"),
        "--device", run["device"], "--precision", run["precision"], "--optimizer", optimizer_of(run),
        "--train.max_seq_length", str(run["tokens"]), "--train.micro_batch_size", str(run["micro"]),
        "--train.global_batch_size", str(run["global"]), "--json", *adapter_options(run),
    ]
    if run["devices"] * run["nodes"] > 1:
        command += ["--devices", str(run["devices"]), "--num_nodes", str(run["nodes"]),
                    "--strategy", run["strategy"]]
    if like:
        command += ["--like", run["program"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: it does not fit
        raise SystemExit("error: " + " ".join(command) + "\n" + done.stderr)
    return json.loads(done.stdout)


def gib(value):
    return f"{value / GIB:.1f}"


def word(fits):
    return "fits" if fits else "OOM"


def against(counted, published):
    return f"{counted / GIB:.2f} ({100 * (counted / GIB / published - 1):+.1f} %)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("experiments", help="YAML list of published runs")
    parser.add_argument("--snug", default=os.path.join(ROOT, "build", "snug"))
    args = parser.parse_args()

    missing = {}
    found = list(runs(args.experiments, missing))
    print_single(args.snug, [run for run in found if run["devices"] * run["nodes"] == 1])
    print_multi(args.snug, [run for run in found if run["devices"] * run["nodes"] > 1])
    for model, rows in missing.items():
        print(f"\nnot planned, since snug has no {model or 'model that is not named'}: {', '.join(rows)}")


def print_single(snug, found):
    print("| run | model | precision, optimizer, adapters | batch | device | published | counted for LitGPT: peak "
          "| | snug: peak | |")
    print("|---|---|---|---|---|---|---:|---|---:|---|")
    figures = []
    for run in found:
        result = plan(snug, run)
        like = result["like"]
        print(f"| {run['id']} | {run['model']} | {method(run)} "
              f"| {run['micro']} x {run['tokens']} of {run['global']} | {run['device']} "
              f"| {word(run['expected'] == 'ok')} | {gib(like['peak_allocated'])} | {word(like['fits'])} "
              f"| {gib(result['memory']['peak_allocated'])} | {word(result['fits'])} |")
        if run["memory"]:
            figures.append((run, like, result))

    print("\n| run | published after a forward, GiB | counted for LitGPT | published reserved | counted "
          "| snug reserved |")
    print("|---|---:|---:|---:|---:|---:|")
    for run, like, result in figures:
        published = run["memory"]
        print(f"| {run['id']}, {run['micro']} of {run['global']} | {published['allocated']} "
              f"| {against(like['after_forward'], published['allocated'])} | {published['reserved']} "
              f"| {against(like['peak_reserved'], published['reserved'])} "
              f"| {gib(result['memory']['peak_reserved'])} |")


def print_multi(snug, found):
    """Each rank's memory; the published figures of ranks differ by the lengths of their samples."""
    print("\n| run | model | devices | strategy | batch | published after a forward, GiB, by rank "
          "| counted for Lightning, against the highest | published reserved | counted | snug: peak | reserved "
          "| sent by each rank a step | s a step |")
    print("|---|---|---|---|---|---|---:|---|---:|---:|---:|---:|---:|")
    for run in found:
        counted = run["strategy"].startswith(("DDP", "FSDP", "ddp", "fsdp"))
        result = plan(snug, run, like=counted)
        allocated = [rank["allocated"] for rank in run["ranks"]]
        reserved = [rank["reserved"] for rank in run["ranks"]]
        sent = sum(link["sent_within_machine"] + link["sent_between_machines"] for link in result["links"])
        print(f"| {run['id']} | {run['model']} | {run['devices'] * run['nodes']} x {run['device']} "
              f"| {run['strategy']} | {run['micro']} x {run['tokens']} of {run['global']} "
              f"| {', '.join(map(str, allocated))} | {like_text(result, 'after_forward', allocated)} "
              f"| {', '.join(map(str, reserved))} | {like_text(result, 'peak_reserved', reserved)} "
              f"| {gib(result['memory']['peak_allocated'])} | {gib(result['memory']['peak_reserved'])} "
              f"| {gib(sent)} | {result['time']['step_seconds']:.2f} |")


def like_text(result, key, published):
    if "like" not in result:
        return "not counted"
    counted = result["like"][key]
    return against(counted, max(published)) if published else gib(counted)


if __name__ == "__main__":
    main()
