# Writes tests/data/formats: small weight files made by torch, safetensors and gguf, and next to each the
# float32 values that those libraries read back from it.
# Needs torch, safetensors, gguf, numpy: python tests/oracles/formats.py
# SPDX-License-Identifier: Apache-2.0
import collections
import pathlib
import zipfile

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[1] / "data" / "formats"
SEED = 20240607


def expect(name, tensors):
    """Stores what a reader must find: everything as contiguous float32."""
    found = {k: v.detach().float().contiguous().clone() for k, v in tensors.items()}
    save_file(found, OUT / f"{name}.expected.safetensors")


def plain_tensors():
    g = torch.Generator().manual_seed(SEED)
    real = torch.randn(3, 5, generator=g)
    whole = torch.randint(-100, 100, (2, 7), generator=g)
    tensors = {f"real.{t}": real.to(getattr(torch, t)) for t in ("float64", "float32", "float16", "bfloat16")}
    tensors |= {f"whole.{t}": whole.to(getattr(torch, t)) for t in ("int64", "int32", "int16", "int8")}
    tensors["whole.uint8"] = whole.abs().to(torch.uint8)
    tensors["bool"] = whole > 0
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 4)
    return tensors


def write_plain():
    tensors = plain_tensors()
    save_file(tensors, OUT / "plain.safetensors", metadata={"format": "pt"})
    expect("plain", tensors)
    torch.save(tensors, OUT / "plain.pth")


def write_wheel():
    """A zip archive as Python packs wheels."""
    with zipfile.ZipFile(OUT / "wheel.zip", "w") as archive:
        for name, content, method in [
            ("model.gguf", "".join(str(i * 37 % 1009) for i in range(400000)), zipfile.ZIP_DEFLATED),
            ("stored.txt", "as it is", zipfile.ZIP_STORED),
            ("empty.txt", "", zipfile.ZIP_DEFLATED),
            ("small.txt", "Twenty small words, packed as a wheel packs them: " * 4 + "and an end.", zipfile.ZIP_DEFLATED),
        ]:
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), content, method, compresslevel=9)


def write_rounding():
    """Float32 values at and around the ties of both 16-bit types, as torch rounds them."""
    g = torch.Generator().manual_seed(SEED)
    bits = torch.randint(-(2**31), 2**31, (2000,), generator=g, dtype=torch.int64)
    halves = torch.arange(0, 65536, 37, dtype=torch.int64)
    ties = torch.cat([(halves << 16) + d for d in (0x7FFF, 0x8000, 0x8001)])
    small = (torch.arange(0x3300, 0x4780, 5, dtype=torch.int64) << 16) + 0x1000
    bits = torch.cat([bits, ties, small, small - 1, small + 1]) & 0xFFFFFFFF
    f32 = torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)
    f32 = f32[~f32.isnan()].contiguous()
    save_file({"f32": f32, "bf16": f32.bfloat16(), "f16": f32.half()}, OUT / "rounding.safetensors")


def write_views():
    """Tensors that do not lie row-major in a storage of their own."""
    g = torch.Generator().manual_seed(SEED)
    base = torch.randn(6, 8, generator=g)
    cube = torch.randn(3, 4, 5, generator=g).bfloat16()
    tensors = {
        "base": base,
        "transposed": base.t(),
        "rows": base[2:4],
        "columns": base[:, 3:6],
        "every_second": base[::2, ::3],
        "permuted": cube.permute(2, 0, 1),
        "parameter": torch.nn.Parameter(base[5]),
        "int8": torch.arange(20, dtype=torch.int8).reshape(4, 5).t(),
        "half": torch.arange(12).half().reshape(3, 4).t(),
        "double": torch.arange(12).double().reshape(3, 4).t(),
    }
    state = collections.OrderedDict(tensors)
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    extra = {"model": state, "step": 7, "lr": 1e-3, "name": "run", "history": [1, (2, 3.5), None, True], "big": 2**90}
    torch.save(extra, OUT / "views.pth")
    torch.save(extra, OUT / "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state}, OUT / "protocol4.pth", pickle_protocol=4)
    expect("views", tensors)


QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
# Where the float16 scales (and minima) of a block stand.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}


def write_quants():
    """Random blocks of every quantized type, random bits in every field, scales finite."""
    rng = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(OUT / "quants.gguf", "llama")
    expected = {}
    for name in QUANTS:
        kind = gguf.GGMLQuantizationType[name]
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (2, 512 // per_block, block_bytes), dtype=np.uint8)
        for at in SCALES[name]:
            scales = (rng.standard_normal(blocks.shape[:2]) * 10.0 ** rng.integers(-7, 2, blocks.shape[:2])).astype(np.float16)
            blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
        if name == "MXFP4":  # exponents: both that make subnormal scales, and none with which numbers overflow
            blocks[:, :, 0] = np.append([0, 1], rng.integers(0, 253, 30)).reshape(2, 16)
        raw = blocks.reshape(2, -1)
        writer.add_tensor(name, raw, raw_dtype=kind)
        expected[name] = torch.from_numpy(gguf.dequantize(raw, kind).copy())
    close(writer)
    expect("quants", expected)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf():
    """Every kind of metadata, and tensors of several ranks."""
    rng = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(OUT / "model.gguf", "llama")
    writer.add_name("small")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    for kind, value in [("uint8", 200), ("int8", -5), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000),
                        ("int32", -2000000000), ("uint64", 2**63 + 5), ("int64", -(2**60)), ("float32", 0.1),
                        ("float64", 0.1), ("bool", True)]:
        getattr(writer, f"add_{kind}")(f"test.{kind}", value)
    writer.add_token_list(["<unk>", "<s>", "hello", "ä€𝄞"])
    writer.add_token_scores([0.0, -1.5, -2.25, -1e30])
    writer.add_token_types([2, 3, 1, 1])
    writer.add_array("test.flags", [True, False])
    base = rng.standard_normal((4, 64)).astype(np.float32)
    expected = {"f32": base, "f16": base.astype(np.float16), "vector": base[0], "cube": base.reshape(2, 4, 32)}
    for name, value in expected.items():
        writer.add_tensor(name, value)
    for name in ["BF16", "Q8_0", "Q4_1"]:
        kind = gguf.GGMLQuantizationType[name]
        raw = gguf.quantize(base, kind)
        writer.add_tensor(name.lower(), raw, raw_dtype=kind)
        expected[name.lower()] = gguf.dequantize(raw, kind)
    close(writer)
    expect("gguf", {k: torch.from_numpy(np.asarray(v, dtype=np.float32).copy()) for k, v in expected.items()})


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    write_plain()
    write_wheel()
    write_rounding()
    write_views()
    write_quants()
    write_gguf()
    print(f"torch {torch.__version__}, gguf, safetensors -> {OUT}")
