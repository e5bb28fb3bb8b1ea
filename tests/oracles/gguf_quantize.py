#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for quantized GGUF files, by llama.cpp's library: tests/data/formats/

  quantize.gguf     rows (float32) and, under each type's name, the blocks that ggml makes of them
  importance.gguf   importances of 512 columns
  weighted.json     checksums of each row's blocks with each importance, of rows cut to a number of columns
  imatrix.gguf, imatrix.dat   importance matrices as llama-imatrix writes them: two entries, and one
                    without a count
  gguf_types.json   the type that llama_model_quantize gives each tensor of small models of several
                    shapes, for the mixes that snug knows; "weighted": Q4_0 with an importance matrix, with
                    which the other mixes are the same

Needs gguf, numpy, cffi and llama-cpp-py-sync (a wheel with llama.cpp's libraries; glibc 2.38):
gguf_quantize.py

With a file in float32, made from that of `snug demo --fetch_only` by `snug convert … f32.gguf --dtype float32`, it
writes ../parity/smollm2_mixes.json, a checksum of all tensors of each mix, without and with an importance matrix:
gguf_quantize.py f32.gguf
"""
import ctypes
import json
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from llama_cpp_py_sync import _cffi_bindings as llama

OUT = Path(__file__).resolve().parents[1] / "data" / "formats"
SEED = 20251124
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
MIXES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18}


def rows():
    """Rows of 512 that weights look like, and rows that they do not."""
    rng = np.random.default_rng(SEED)
    usual = rng.standard_normal((6, 512)) * np.array([[0.02], [0.02], [1], [1e-4], [30], [1e-7]])
    outlier = rng.standard_normal((2, 512)) * 0.02
    outlier[:, ::97] *= 60
    positive = np.abs(rng.standard_normal(512)) + 0.5
    heavy = rng.standard_cauchy(512).clip(-200, 200) * 0.01
    ties = rng.integers(-40, 41, 512) / 8
    few = np.where(rng.random(512) < 0.9, 0, rng.standard_normal(512))
    same = np.full(512, 0.25)
    mixed = np.concatenate([np.zeros(256), np.full(128, -0.5), np.full(64, 1e-20), np.full(64, 1e-16)])
    small = rng.standard_normal(512) * 10.0 ** rng.integers(-44, -30, 512)
    wide = rng.standard_normal(512) * 10.0 ** rng.integers(-6, 3, 512)
    dead = rng.standard_normal(512) * np.repeat(np.tile([1, 1e-17], 16), 16)  # groups of 16
    # The last step that is tried is the best for Q4_K in the first and third, for Q5_K in the second and third.
    last = [np.random.default_rng(seed).exponential(size=512) for seed in (4, 11, 107)]
    special = [positive, -positive, heavy, ties, few, same, -same, mixed, small, wide, dead, *last]
    return np.concatenate([usual, outlier, special]).astype(np.float32)


def importances():
    """Of 512 columns: as of real inputs, over many magnitudes, and with columns that are never used."""
    rng = np.random.default_rng(SEED + 1)
    usual = rng.chisquare(1, 512)
    unused = {"groups": np.arange(512) % 64 < 32, "most": rng.random(512) < 0.9, "block": np.arange(512) < 256}
    return {"usual": usual, "wide": 10.0 ** rng.uniform(-6, 4, 512), "none": np.zeros(512),
            **{name: np.where(where, 0, usual) for name, where in unused.items()}}


def quantize_rows(values, kind, importance=None):
    """By the library's own function; numpy versions in gguf must agree where they exist."""
    base = ctypes.CDLL(str(Path(llama.__file__).parent / "libggml-base.so.0"))
    base.ggml_quantize_chunk.restype = ctypes.c_size_t
    base.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((values.shape[0], values.shape[1] // per_block * block_bytes), np.uint8)
    written = base.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, *values.shape,
                                       None if importance is None else importance.ctypes.data)
    assert written == out.nbytes
    return out


def write_rows():
    values = np.ascontiguousarray(rows())
    writer = gguf.GGUFWriter(OUT / "quantize.gguf", "llama")
    writer.add_tensor("rows", values)
    for name in TYPES:
        blocks = quantize_rows(values, Type[name])
        if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
            by_numpy = gguf.quantize(values, Type[name])
            print(name, "numpy differs in rows", np.flatnonzero((by_numpy != blocks).any(1)))
        writer.add_tensor(name, blocks, raw_dtype=Type[name])
    close(writer)


def write_weighted():
    values, found = rows(), {}
    writer = gguf.GGUFWriter(OUT / "importance.gguf", "llama")
    for importance, columns in importances().items():
        columns = columns.astype(np.float32)
        writer.add_tensor(importance, columns)
        for name in TYPES:
            widths = [512] if name.endswith("K") else [512, 96]
            found[f"{importance} {name}"] = {width: [zlib.crc32(row.tobytes()) for row in quantize_rows(
                np.ascontiguousarray(values[:, :width]), Type[name], columns[:width].copy())] for width in widths}
    close(writer)
    lines = [f'"{case}": {json.dumps(widths)}' for case, widths in found.items()]
    (OUT / "weighted.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_matrices():
    """In float32 sums of squares, and how many there were."""
    entries = {"blk.0.attn_q.weight": (np.arange(1, 5, dtype=np.float32), 3),
               "blk.0.ffn_down.weight": (np.array([0.5, 0, 7, 1e-3, 2], np.float32), 12)}
    writer = gguf.GGUFWriter(OUT / "imatrix.gguf", arch="")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["rows.txt"])
    writer.add_uint32("imatrix.chunk_count", 2)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, (sums, count) in (entries | {"blk.0.ffn_up.weight": (np.zeros(3, np.float32), 0)}).items():
        writer.add_tensor(name + ".in_sum2", sums.reshape(1, -1))
        writer.add_tensor(name + ".counts", np.array([[count]], np.float32))
    close(writer)
    data = struct.pack("<i", len(entries))
    for name, (sums, count) in entries.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", count, len(sums)) + sums.tobytes()
    (OUT / "imatrix.dat").write_bytes(data + struct.pack("<ii", 2, 8) + b"rows.txt")


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(path, arch, layers, heads, kv_heads, hidden, intermediate, tied, experts=0):
    """Weights that no one looks at, in the shapes and names of a model."""
    writer = gguf.GGUFWriter(path, arch)
    head = hidden // heads
    vocabulary = 64
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(intermediate)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(vocabulary)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(intermediate)
    if arch in ("gemma2", "gemma3", "phi3", "gpt-oss"):
        writer.add_sliding_window(64)
    if arch in ("gptneox", "stablelm"):
        writer.add_layer_norm_eps(1e-5)
        writer.add_parallel_residual(False)
    if arch == "granite":
        writer.add_logit_scale(1.0)

    def add(name, *shape):
        writer.add_tensor(name, np.zeros(shape, np.float32))

    add("token_embd.weight", vocabulary, hidden)
    add("output_norm.weight", hidden)
    if not tied:
        add("output.weight", vocabulary, hidden)
    for i in range(layers):
        add(f"blk.{i}.attn_norm.weight", hidden)
        if arch in ("phi3", "gptneox"):
            add(f"blk.{i}.attn_qkv.weight", (heads + 2 * kv_heads) * head, hidden)
            add(f"blk.{i}.ffn_up.weight", (2 if arch == "phi3" else 1) * intermediate, hidden)
        else:
            add(f"blk.{i}.attn_q.weight", hidden, hidden)
            add(f"blk.{i}.attn_k.weight", kv_heads * head, hidden)
            add(f"blk.{i}.attn_v.weight", kv_heads * head, hidden)
            if experts:
                add(f"blk.{i}.ffn_gate_inp.weight", experts, hidden)
                add(f"blk.{i}.ffn_gate_exps.weight", experts, intermediate, hidden)
                add(f"blk.{i}.ffn_up_exps.weight", experts, intermediate, hidden)
                add(f"blk.{i}.ffn_down_exps.weight", experts, hidden, intermediate)
            else:
                add(f"blk.{i}.ffn_gate.weight", intermediate, hidden)
                add(f"blk.{i}.ffn_up.weight", intermediate, hidden)
        add(f"blk.{i}.attn_output.weight", hidden, hidden)
        add(f"blk.{i}.{'post_attention' if arch == 'gpt-oss' else 'ffn'}_norm.weight", hidden)
        if not experts:
            add(f"blk.{i}.ffn_down.weight", hidden, intermediate)
        if arch == "qwen2":
            add(f"blk.{i}.attn_q.bias", hidden)
        if arch == "gpt-oss":
            add(f"blk.{i}.attn_sinks.weight", heads)
            for name, *shape in (("attn_q", hidden), ("attn_output", hidden), ("ffn_gate_inp", experts),
                                 ("ffn_gate_exps", experts, intermediate), ("ffn_up_exps", experts, intermediate),
                                 ("ffn_down_exps", experts, hidden)):
                add(f"blk.{i}.{name}.bias", *shape)
    close(writer)


def matrix_of(source):
    """Numbers that a test can make again, for every matrix in the layers, of experts for each."""
    return {tensor.name: np.tile((1 + np.arange(tensor.shape[0]) * 7919 % 97).astype(np.float32),
                                 tensor.shape[2] if len(tensor.shape) > 2 else 1)
            for tensor in gguf.GGUFReader(source).tensors
            if len(tensor.shape) > 1 and tensor.name.startswith("blk.")}


def quantize_file(source, destination, mix, matrix=None):
    ffi, lib = llama.get_ffi(), llama.get_lib()
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype, params.nthread, params.allow_requantize = MIXES[mix], 2, True
    if matrix is not None:
        names = [ffi.new("char[]", name.encode()) for name in matrix]
        entries = ffi.new("struct llama_model_imatrix_data[]", len(matrix) + 1)
        for entry, name, columns in zip(entries, names, matrix.values()):
            entry.name, entry.data, entry.size = name, ffi.from_buffer("float[]", columns), len(columns)
        params.imatrix = entries
    result = lib.llama_model_quantize(str(source).encode(), str(destination).encode(), params)
    assert result == 0, (source, mix)


CASES = {
    "llama": dict(arch="llama", layers=5, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=False),
    "llama-tied": dict(arch="llama", layers=16, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=True),
    "smollm2": dict(arch="llama", layers=30, heads=3, kv_heads=3, hidden=96, intermediate=256, tied=True),
    "odd": dict(arch="llama", layers=2, heads=2, kv_heads=1, hidden=40, intermediate=72, tied=False),
    "llama-70b": dict(arch="llama", layers=80, heads=4, kv_heads=2, hidden=256, intermediate=256, tied=False),
    "llama-65b": dict(arch="llama", layers=80, heads=4, kv_heads=4, hidden=256, intermediate=256, tied=True),
    "qwen2": dict(arch="qwen2", layers=9, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=False),
    "qwen2-72b": dict(arch="qwen2", layers=80, heads=4, kv_heads=2, hidden=256, intermediate=256, tied=False),
    "qwen3": dict(arch="qwen3", layers=6, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=True),
    "phi3": dict(arch="phi3", layers=8, heads=4, kv_heads=4, hidden=256, intermediate=512, tied=False),
    "gemma3": dict(arch="gemma3", layers=18, heads=4, kv_heads=1, hidden=256, intermediate=512, tied=True),
    "gemma2": dict(arch="gemma2", layers=7, heads=4, kv_heads=2, hidden=256, intermediate=320, tied=True),
    "granite": dict(arch="granite", layers=4, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=True),
    "olmo2": dict(arch="olmo2", layers=4, heads=4, kv_heads=4, hidden=256, intermediate=512, tied=False),
    "smollm3": dict(arch="smollm3", layers=4, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=True),
    "mixtral": dict(arch="llama", layers=9, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=False, experts=8),
    "four-experts": dict(arch="llama", layers=5, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=False, experts=4),
    "qwen3moe": dict(arch="qwen3moe", layers=8, heads=4, kv_heads=2, hidden=256, intermediate=96, tied=True, experts=12),
    "gptneox": dict(arch="gptneox", layers=6, heads=4, kv_heads=4, hidden=256, intermediate=512, tied=False),
    "stablelm": dict(arch="stablelm", layers=8, heads=4, kv_heads=4, hidden=256, intermediate=320, tied=False),
    "mistral3": dict(arch="mistral3", layers=9, heads=4, kv_heads=2, hidden=256, intermediate=512, tied=False),
    "gpt-oss": dict(arch="gpt-oss", layers=8, heads=4, kv_heads=2, hidden=256, intermediate=96, tied=False, experts=32),
    "olmoe": dict(arch="olmoe", layers=4, heads=4, kv_heads=4, hidden=256, intermediate=256, tied=False, experts=64),
}


def by_kind(path, value):
    """Of each kind of tensor; where layers differ, a list in their order."""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        found.setdefault(".".join(parts[2:]) if parts[0] == "blk" else tensor.name, []).append(value(tensor))
    return {name: values[0] if all(v == values[0] for v in values) else values for name, values in found.items()}


def write_types():
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            source, out = Path(folder) / "in.gguf", Path(folder) / "out.gguf"
            write_model(source, **case)
            shapes = by_kind(source, lambda tensor: [int(size) for size in reversed(tensor.shape)])
            types = {}
            for mix in MIXES:
                quantize_file(source, out, mix)
                types[mix] = by_kind(out, lambda tensor: tensor.tensor_type.name)
                quantize_file(source, out, mix, matrix_of(source))
                weighted = by_kind(out, lambda tensor: tensor.tensor_type.name)
                if mix == "Q4_0":
                    types["weighted"] = weighted
                else:
                    assert weighted == types[mix], (name, mix)
            lines.append(f'"{name}": {json.dumps({"layers": case["layers"], "shapes": shapes, "types": types})}')
    (OUT / "gguf_types.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_checksums(source):
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.gguf"
        for matrix in (None, matrix_of(source)):
            for mix in MIXES:
                quantize_file(source, out, mix, matrix)
                case = mix if matrix is None else mix + " weighted"
                found[case] = 0
                for tensor in sorted(gguf.GGUFReader(out).tensors, key=lambda tensor: tensor.name):
                    found[case] = zlib.crc32(np.asarray(tensor.data).tobytes(), found[case])
    (OUT.parent / "parity" / "smollm2_mixes.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_checksums(sys.argv[1])
    else:
        write_rows()
        write_weighted()
        write_matrices()
        write_types()
