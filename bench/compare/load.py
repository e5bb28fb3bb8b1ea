# SPDX-License-Identifier: Apache-2.0
"""How fast a large checkpoint is read, and how much memory that takes: writes a BLIP-2 of a config in
float32 shards (random numbers: nobody looks at the captions), then captions one picture with it in
each of the ways that are named, beside reading the same files with nothing else to do. Run as root
the page cache is emptied before each; then all memory but a little is touched once and freed. In a
virtual machine the first touch of memory that the host has not given yet takes longer than a disk.

  python3 bench/compare/load.py --config recipes/models/blip2-flan-t5-xxl.json --how nf4 \\
    --tokenizer FOLDER --picture photo.jpg --folder out/bench/xxl
"""

import argparse
import glob
import json
import math
import os
import re
import shutil
import struct
import sys
import time

import measure
import torch
import transformers

GIB = 2**30
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}  # as safetensors names them
# What each way adds to `snug caption`.
WAYS = {
    "float32": ["--precision", "32-true"],
    "bfloat16": ["--precision", "bf16-true"],
    "nf4": ["--precision", "bf16-true", "--quantize", "bnb.nf4"],
}

# A process of its own, so that all of it is free again.
TOUCH_MEMORY = """
import mmap, re
free = int(re.search(r"MemAvailable: +([0-9]+)", open("/proc/meminfo").read())[1]) * 1024
memory = mmap.mmap(-1, int(free * 0.92), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(memory), 4096):
    memory[at] = 1
"""


def shapes_of(config_json):
    config = transformers.Blip2Config.from_pretrained(config_json)
    with torch.device("meta"):
        model = transformers.Blip2ForConditionalGeneration(config)
    tied = set(model._tied_weights_keys or [])
    return config, {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in tied}


def write_shard(file, shapes, some, dtype):
    """A safetensors file, written as it is made: no tensor of it is ever in memory."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in sorted(shapes.items()):
        begin, end = end, end + dtype.itemsize * math.prod(shape)
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for left in range(end, 0, -len(some)):
            out.write(some[: min(left, len(some))])


def write_model(config, shapes, folder, shard_bytes, dtype=torch.float32):
    """Shards as save_pretrained cuts them: in the model's order, and within one by name."""
    os.makedirs(folder, exist_ok=True)
    config.save_pretrained(folder)
    shards, size, index = [{}], 0, {}
    for name, shape in shapes.items():
        nbytes = dtype.itemsize * math.prod(shape)
        if size + nbytes > shard_bytes and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += nbytes
    values = torch.randn(1 << 24).mul_(0.02).to(dtype)  # repeated: faster made
    some = memoryview(values.view(torch.uint8).numpy())
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(os.path.join(folder, file), shard, some, dtype)
        index.update(dict.fromkeys(shard, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {}, "weight_map": index}, out)


def forget_files():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except PermissionError:
        print("(the page cache was not emptied: not root)")
    measure.run([sys.executable, "-c", TOUCH_MEMORY], 600)


def read_files(files, *flags):
    """Seconds that dd takes for all of them."""
    forget_files()
    start = time.perf_counter()
    for file in files:
        measure.run(["dd", f"if={file}", "of=/dev/null", "bs=16M", *flags], 3600)
    return time.perf_counter() - start


def caption(args, way):
    """One picture, of which a word is told: (seconds to load, bytes of weights, measure.run's figures)."""
    forget_files()
    command = [args.snug, "caption", args.folder, args.picture, *WAYS[way], "--num_beams", "1",
               "--max_new_tokens", "1", "--verbose"]
    run = measure.run(command, 3600)
    found = re.search(r"([\d.]+) GiB of weights loaded from .* in ([\d.]+) s", run["output"])
    return float(found[2]), float(found[1]), run, " ".join(command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--config", required=True, help="a BLIP-2's config.json")
    parser.add_argument("--tokenizer", required=True, help="a folder with a tokenizer to copy")
    parser.add_argument("--picture", required=True)
    parser.add_argument("--folder", required=True, help="where the checkpoint is written, or was by an earlier run")
    parser.add_argument("--how", default="bfloat16", help=f"some of {','.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=1, help="how often, dd and all ways in turns")
    parser.add_argument("--shard_gib", type=float, default=2)
    parser.add_argument("--leave_gib", type=float, default=15, help="disk that must stay free")
    parser.add_argument("--delete", action="store_true", help="the checkpoint in the end")
    args = parser.parse_args()
    config, shapes = shapes_of(args.config)
    size = sum(4 * math.prod(shape) for shape in shapes.values())
    largest = max(4 * math.prod(shape) for shape in shapes.values())
    if not os.path.exists(os.path.join(args.folder, "model.safetensors.index.json")):
        os.makedirs(args.folder, exist_ok=True)
        free = shutil.disk_usage(args.folder).free
        if free < size + args.leave_gib * GIB:
            raise SystemExit(f"{args.folder}: {free / GIB:.1f} GiB are free, {size / GIB:.1f} are needed "
                             f"beside the {args.leave_gib} that must stay free")
        write_model(config, shapes, args.folder, int(args.shard_gib * GIB))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(os.path.join(args.tokenizer, name), os.path.join(args.folder, name))
    files = sorted(glob.glob(os.path.join(args.folder, "*.safetensors")))
    size = sum(os.path.getsize(file) for file in files)
    print(f"{size / GIB:.2f} GiB of float32 in {len(files)} files, the largest tensor {largest / GIB:.2f} GiB\n")
    print("| read by | s | GiB/s | weights GiB | resident at most GiB | weights + a tensor GiB |")
    print("|---|---:|---:|---:|---:|---:|")
    commands = {}
    for _ in range(args.rounds):
        for name, flags in (("dd", []), ("dd past the page cache", ["iflag=direct"])):
            seconds = read_files(files, *flags)
            print(f"| {name} | {seconds:.1f} | {size / GIB / seconds:.2f} | | | |", flush=True)
        for way in args.how.split(","):
            seconds, weights, run, commands[way] = caption(args, way)
            print(f"| snug, as {way} | {seconds:.1f} | {size / GIB / seconds:.2f} | {weights:.2f} | "
                  f"{run['peak_rss_bytes'] / GIB:.2f} | {weights + largest / GIB:.2f} |", flush=True)
    for way, command in commands.items():
        print(f"\n{way}: `{command}`")
    if args.delete:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
