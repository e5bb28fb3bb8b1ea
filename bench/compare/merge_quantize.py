# SPDX-License-Identifier: Apache-2.0
"""What `snug merge` and `snug convert --gguf_type` take of a large model, beside `dd` reading and writing as much:
writes a model of a config in bfloat16 (random numbers) and an adapter of rank 16 on all its linear layers, merges
the two and quantizes the result. Run as root the page cache is emptied before each.

  python3 bench/compare/merge_quantize.py --config recipes/models/open-llama-7b.json --folder out/bench/7b --delete
"""

import argparse
import glob
import json
import os
import shutil
import time

import measure
import torch
import transformers
from load import GIB, write_model
from safetensors.torch import save_file

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK = 16


def write_base(config_json, tokenizer, folder):
    config = transformers.AutoConfig.from_pretrained(config_json)
    config.dtype = torch.bfloat16
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    write_model(config, shapes, folder, 2 * GIB, torch.bfloat16)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(os.path.join(tokenizer, name), os.path.join(folder, name))
    return shapes


def write_adapter(shapes, base, folder):
    os.makedirs(folder)
    tensors = {}
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        if module.rsplit(".", 1)[-1] in LINEARS:
            for matrix, size in (("A", (RANK, shape[1])), ("B", (shape[0], RANK))):
                tensors[f"base_model.model.{module}.lora_{matrix}.weight"] = torch.randn(size).mul_(0.02).bfloat16()
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as out:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": LINEARS,
                   "base_model_name_or_path": os.path.abspath(base)}, out)


def size_of(path):
    files = glob.glob(os.path.join(path, "*.safetensors")) if os.path.isdir(path) else [path]
    return sum(os.path.getsize(file) for file in files)


def forget_files():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def timed(command, then=lambda: None):
    """The command's figures, from a disk that has nothing to do to one whose writes are done."""
    forget_files()
    start = time.monotonic()
    # By time, which is small: what this process holds counts for its own children.
    run = measure.run(["/usr/bin/time", "-f", "%M", *command], 7200)
    then()
    resident = int(run["output"].split()[-1]) * 1024
    return {**run, "seconds": time.monotonic() - start, "peak_rss_bytes": resident}


def each(command, files):
    return ["sh", "-c", f'for file; do {command}; done', "sh", *files]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--config", required=True, help="a decoder's config.json")
    parser.add_argument("--tokenizer", default="tests/data/system/tiny", help="a folder with a tokenizer to copy")
    parser.add_argument("--folder", required=True, help="where all is written; must not exist")
    parser.add_argument("--gguf_type", default="Q4_K_M")
    parser.add_argument("--leave_gib", type=float, default=15, help="disk that must stay free")
    parser.add_argument("--delete", action="store_true", help="the folder in the end")
    args = parser.parse_args()
    base, adapter, merged, file = (os.path.join(args.folder, name) for name in ("base", "adapter", "merged", "q.gguf"))
    os.makedirs(args.folder)
    write_adapter(write_base(args.config, args.tokenizer, base), base, adapter)
    size = size_of(base)
    if shutil.disk_usage(args.folder).free < 1.5 * size + args.leave_gib * GIB:
        raise SystemExit(f"{args.folder}: too little disk for 1.5 times {size / GIB:.1f} GiB more")
    print("| | read GiB | written GiB | s | GiB/s | processor s | resident at most GiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")

    def show(what, read, written, run):
        print(f"| {what} | {read / GIB:.2f} | {written / GIB:.2f} | {run['seconds']:.1f} | "
              f"{(read + written) / GIB / run['seconds']:.2f} | {run['processor_seconds']:.0f} | "
              f"{run['peak_rss_bytes'] / GIB:.2f} |", flush=True)

    shards = sorted(glob.glob(os.path.join(base, "*.safetensors")))
    copy = os.path.join(args.folder, "copy")
    append = "oflag=append conv=notrunc"
    show("`dd`, reading", size, 0, timed(each("dd if=$file of=/dev/null bs=16M", shards)))
    show("`dd`, writing", 0, size, timed(["dd", "if=/dev/zero", f"of={copy}", "bs=16M", f"count={size >> 24}"], os.sync))
    os.remove(copy)
    show("`dd`, copying", size, size, timed(each(f"dd if=$file of={copy} bs=16M {append}", shards), os.sync))
    os.remove(copy)
    run = timed([args.snug, "merge", adapter, "--out_dir", merged], os.sync)
    show("`snug merge`", size, size_of(merged), run)
    run = timed([args.snug, "convert", merged, file, "--gguf_type", args.gguf_type], os.sync)
    show(f"`snug convert --gguf_type {args.gguf_type}`", size_of(merged), size_of(file), run)
    if args.delete:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
