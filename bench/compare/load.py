# SPDX-License-Identifier: Apache-2.0
"""How fast a large checkpoint is read, and how much memory that takes: writes a BLIP-2 of a config in
float32 shards (constant numbers: nobody looks at the captions), then captions one picture with it in
bfloat16, beside reading the same files with nothing else to do. Run as root the page cache is
emptied before each."""

import argparse
import glob
import json
import os
import time

import measure
import safetensors.torch
import torch
import transformers

GIB = 2**30


def write_model(config_json, folder, shard_bytes=2 * GIB):
    os.makedirs(folder, exist_ok=True)
    config = transformers.Blip2Config.from_pretrained(config_json)
    with torch.device("meta"):
        model = transformers.Blip2ForConditionalGeneration(config)
    config.save_pretrained(folder)
    shards, size, index = [{}], 0, {}
    tied = set(model._tied_weights_keys or [])
    for name, parameter in model.state_dict().items():
        if name in tied:
            continue
        if size + 4 * parameter.numel() > shard_bytes and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = parameter.shape
        size += 4 * parameter.numel()
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        tensors = {name: torch.full(shape, 0.001) for name, shape in shard.items()}
        safetensors.torch.save_file(tensors, os.path.join(folder, file), metadata={"format": "pt"})
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snug", default="build/snug")
    parser.add_argument("--config", required=True, help="a BLIP-2's config.json")
    parser.add_argument("--tokenizer", required=True, help="a folder with a tokenizer to copy")
    parser.add_argument("--picture", required=True)
    parser.add_argument("--folder", required=True, help="where the checkpoint is written")
    args = parser.parse_args()
    write_model(args.config, args.folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(args.tokenizer, name), encoding="utf-8") as source:
            text = source.read()
        with open(os.path.join(args.folder, name), "w", encoding="utf-8") as out:
            out.write(text)
    files = sorted(glob.glob(os.path.join(args.folder, "*.safetensors")))
    size = sum(os.path.getsize(file) for file in files)
    forget_files()
    start = time.perf_counter()
    for file in files:
        measure.run(["dd", f"if={file}", "of=/dev/null", "bs=16M"], 3600)
    read = time.perf_counter() - start
    forget_files()
    command = [args.snug, "caption", args.folder, args.picture, "--precision", "bf16-true",
               "--num_beams", "1", "--max_new_tokens", "1"]
    run = measure.run(command, 3600)
    print(f"{size / GIB:.2f} GiB of float32: dd {read:.1f} s ({size / GIB / read:.2f} GiB/s); loaded as "
          f"bfloat16 and one picture captioned {run['seconds']:.1f} s ({size / GIB / run['seconds']:.2f} "
          f"GiB/s), peak resident {run['peak_rss_bytes'] / GIB:.2f} GiB, weights {size / 2 / GIB:.2f} GiB")
    print(f"`{' '.join(command)}`")


if __name__ == "__main__":
    main()
