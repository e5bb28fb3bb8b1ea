# SPDX-License-Identifier: Apache-2.0
"""Plans every published fine-tuning run of an experiment list with `snug plan --like`, full or with
adapters, and prints Markdown tables: what was published, what LitGPT, or a Lightning script with another
library's model, is counted to take, what snug takes; of runs on several GPUs also what travels between
them. Runs of models that snug does not have are listed. BLIP-2's runs are the recipes of recipes/blip2.

The list is a YAML file with `suites`, each with `experiments`: id, model, hardware, precision,
optimizer.name, micro_batch, global_batch, seq_len, devices, nodes, strategy, lora, expected (ok or oom)
and, where there are figures, measured[].memory[] with allocated and reserved in GiB right after a forward,
one entry a rank; with adapters lora.r, lora.alpha, lora.dropout and lora.targets (query, key, value,
projection, mlp, head), and quantize."""

import argparse
import json
import os
import subprocess
import tempfile

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
BLIP2 = {f"Salesforce/{name}": name for name in (
    "blip2-opt-2.7b", "blip2-opt-6.7b", "blip2-flan-t5-xl", "blip2-flan-t5-xxl")}
MINGPT = {"gpt2-xl": "mingpt-xl", "gpt2-xxl": "mingpt-xxl", "gpt2-xxxl": "mingpt-xxxl", "gpt2-4xl": "mingpt-4xl"}
# Two published runs end at 14,992 MiB: what CUDA, cuBLAS and NCCL left of those GPUs is taken to be 15,000.
V100_BUDGET = "15600MiB"  # with 600 for libraries
DEVICES = {"H100 94": "h100-94", "V100 16": "v100-16", "A100 80": "a100-80", "A100-80": "a100-80", "V100 32": "v100-32"}


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
        if suite.startswith("blip2") or suite == "fsdp-sweep":
            continue  # blip2_runs, mingpt_runs
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


def suites(path, *names):
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    for suite in document["suites"]:
        if suite["name"].startswith(names):
            yield from suite["experiments"]


def blip2_runs(path):
    for row in suites(path, "blip2"):
        yield {
            "id": row["id"], "model": BLIP2[row["model"]], "device": device_of(row["hardware"]),
            "devices": row["devices"], "expected": row["expected"], "micro": row["micro_batch"],
            "global": row["global_batch"], "strategy": strategy_of(row), "act_ckpt": row["activation_checkpointing"],
            "precision": row["precision"], "optimizer": row["optimizer"]["name"], "lora": row.get("lora"),
            "quantize": "nf4" if row.get("quantize") else "",
        }


def mingpt_runs(path, missing):
    for row in suites(path, "fsdp-sweep"):
        name = (row.get("model") or "").split(" ")[0]
        if name not in MINGPT:
            missing.setdefault(row.get("model"), []).append(row["id"])
            continue
        measured = (row.get("measured") or [{}])[0]
        yield {
            "id": row["id"], "model": MINGPT[name], "device": device_of(row["hardware"]),
            "devices": row["devices"], "nodes": row["nodes"], "expected": row["expected"],
            "micro": row["micro_batch"], "global": row["global_batch"], "tokens": row["seq_len"],
            # The tables of several machines do not say; the runs before them had it.
            "act_ckpt": row["activation_checkpointing"] in (True, None), "reserved": measured.get("memory_MB"),
            "milliseconds": measured.get("iteration_time_ms"),
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
    return run_plan(command)


def plan_blip2(snug, run):
    """The recipe of that name. What snug has no kernel for on a GPU is planned as on a CPU with as much
    memory: the same bytes, with no word on what the GPU's allocator reserves."""
    def planned(device, may_refuse=False):
        return run_plan([
            snug, "plan", "--config", os.path.join(ROOT, "recipes", "blip2", run["id"] + ".yaml"),
            "--model_name", "", "--model.config", os.path.join(ROOT, "recipes", "models", run["model"] + ".json"),
            "--device", device, "--like", "lightning", "--json",
        ], may_refuse)

    result = planned(run["device"], may_refuse=True)
    if result:
        return result
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as profile:
        profile.write("kind: cpu\nmemory: 92.5GiB\n")
        profile.flush()
        result = planned(profile.name)
    result["like"]["peak_reserved"] = result["memory"]["peak_reserved"] = None
    return result


def plan_mingpt(snug, run):
    return run_plan([
        snug, "plan", "--model.config", os.path.join(ROOT, "recipes", "models", run["model"] + ".json"),
        "--device", run["device"], "--memory_budget", V100_BUDGET, "--precision", "16-mixed", "--train.max_seq_length", str(run["tokens"]),
        "--batch_size", str(run["micro"]), "--accumulate_grad_batches", "1", "--act_ckpt", str(run["act_ckpt"]),
        "--devices", str(run["devices"]), "--num_nodes", str(run["nodes"]), "--strategy", "fsdp",
        "--like", "lightning", "--json",
    ])


def run_plan(command, may_refuse=False):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if may_refuse and "no CUDA kernel" in done.stderr:
        return None
    if done.returncode not in (0, 3):  # 3: it does not fit
        raise SystemExit("error: " + " ".join(command) + "\n" + done.stderr)
    return json.loads(done.stdout)


def gib(value):
    return "" if value is None else f"{value / GIB:.1f}"


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
    print_blip2(args.snug, list(blip2_runs(args.experiments)))
    print_mingpt(args.snug, list(mingpt_runs(args.experiments, missing)))
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


def print_blip2(snug, found):
    print("\n| run | model | precision, optimizer | batch | GPUs | published | counted for the script: after a forward "
          "| peak | reserved | on the host | | snug: peak | reserved | on the host | |")
    print("|---|---|---|---|---|---|---:|---:|---:|---:|---|---:|---:|---:|---|")
    for run in found:
        result = plan_blip2(snug, run)
        like, ours = result["like"], result["memory"]
        ckpt = ", checkpointing" if run["act_ckpt"] else ""
        gpus = f"{run['devices']} ({run['strategy'].split(' ')[0]})" if run["devices"] > 1 else "1"
        print(f"| {run['id']} | {run['model']} | {method(run)}{ckpt} | {run['micro']} of {run['global']} | {gpus} "
              f"| {word(run['expected'] == 'ok')} | {gib(like['after_forward'])} | {gib(like['peak_allocated'])} "
              f"| {gib(like['peak_reserved'])} | {gib(like['peak_host'])} | {word(like['fits'])} "
              f"| {gib(ours['peak_allocated'])} | {gib(ours['peak_reserved'])} | {gib(ours.get('offloaded_to_host', 0))} "
              f"| {word(result['fits'])} |")


def print_mingpt(snug, found):
    print("\n| run | model | GPUs | batch a GPU | checkpointing | published | reserved, MiB | counted for the script: at "
          "least | with all blocks gathered | | snug: reserved | |")
    print("|---|---|---|---:|---|---|---:|---:|---:|---|---:|---|")
    for run in found:
        result = plan_mingpt(snug, run)
        like = result["like"]
        most = f"{like['reserved_ahead'] / 2**20:.0f}"
        if run["reserved"]:
            most += f" ({100 * (like['reserved_ahead'] / 2**20 / run['reserved'] - 1):+.1f} %)"
        print(f"| {run['id']} | {run['model']} | {run['devices'] * run['nodes']} | {run['micro']} "
              f"| {'yes' if run['act_ckpt'] else ''} | {word(run['expected'] == 'ok')} | {run['reserved'] or ''} "
              f"| {like['peak_reserved'] / 2**20:.0f} | {most} | {word(like['fits'])} "
              f"| {result['memory']['peak_reserved'] / 2**20:.0f} | {word(result['fits'])} |")


def like_text(result, key, published):
    if "like" not in result:
        return "not counted"
    counted = result["like"][key]
    return against(counted, max(published)) if published else gib(counted)


if __name__ == "__main__":
    main()
