#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small Llamas whose weights other programs have quantized, and the numbers that those programs take them for:
tests/data/formats/quantized/NAME/
  config.json, model.safetensors   as transformers (bitsandbytes) writes them, or with the tensors that the
                                   package's own functions make, under the names that its folders have
  expected.safetensors             each matrix as the package dequantizes it, and logits (1, T, V) of transformers in
                                   float32 with these weights for input_ids (1, T)
Run: python3 quantized_folders.py ../data/formats
(torch 2.11, transformers 5.24, bitsandbytes 0.50, compressed-tensors 0.20, auto-gptq 0.7.1, autoawq 0.2.9)
"""
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize as ct_dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from parity_case import jitter
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

LINEAR = ("_proj.weight",)


def model_of(hidden, intermediate, dtype):
    torch.manual_seed(11)
    config = LlamaConfig(vocab_size=32, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                         initializer_range=0.2, bos_token_id=2, eos_token_id=2, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    jitter(model)
    return model


def in_blocks(weight, height, width):
    """The tiles of a matrix, whose last ones may be smaller, as views."""
    rows, cols = weight.shape
    return [[weight[r:r + height, c:c + width] for c in range(0, cols, width)] for r in range(0, rows, height)]


def is_linear(name):
    return name.endswith(LINEAR)


def write(folder, model, quantization, pack):
    """`pack(name, weight)`: the module's tensors by what follows its name, and the weight that they stand for."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, values = {}, {}
    for name, value in model.state_dict().items():
        if is_linear(name):
            parts, values[name] = pack(name, value.clone())
            tensors |= {name.removesuffix("weight") + part: tensor.contiguous() for part, tensor in parts.items()}
        else:
            tensors[name] = value.clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict() | {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    expect(folder, model, values)


def expect(folder, model, values):
    for name, value in values.items():
        model.state_dict()[name].copy_(value)
    ids = torch.randint(0, 32, (1, 12), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = model.float()(input_ids=ids).logits.clone()
    own = {name: value.contiguous() for name, value in values.items()}
    save_file(own | {"input_ids": ids.int(), "logits": logits}, folder / "expected.safetensors")
    print(folder.name, len(values), float(logits.abs().max()))


def bits_and_bytes(target, name, dtype, sizes, **how):
    """Written by transformers itself. Rows are whole blocks of 64: others bitsandbytes 0.50 misreads on CPUs with
    AVX512, by more than the largest weight."""
    folder = target / name
    model = model_of(*sizes, dtype)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        quantized = AutoModelForCausalLM.from_pretrained(
            plain, dtype=dtype, quantization_config=BitsAndBytesConfig(**how), device_map="cpu")
        quantized.save_pretrained(folder)
    values = {}
    for module_name, module in quantized.named_modules():
        if not is_linear(module_name + ".weight"):
            continue
        weight = module.weight
        if how.get("load_in_8bit"):
            scales = weight.SCB if getattr(weight, "SCB", None) is not None else module.state.SCB
            value = bnb.int8_vectorwise_dequant(weight.data, scales).to(dtype)
        else:
            value = bnb.dequantize_4bit(weight.data, weight.quant_state).to(dtype)
        values[module_name + ".weight"] = value.clone()
    for stale in folder.glob("generation_config.json"):
        stale.unlink()
    expect(folder, model, values)


def own_file(package, path):
    """A module without the package around it, which other versions of transformers would need."""
    root = Path(importlib.util.find_spec(package).submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), root / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gptq(bits, group, act_order=False, later=False):
    layer = own_file("auto_gptq", "nn_modules/qlinear/qlinear_cuda.py" if act_order else
                     "nn_modules/qlinear/qlinear_cuda_old.py")

    def pack(name, weight):
        outputs, inputs = weight.shape
        generator = torch.Generator().manual_seed(len(name))
        groups = inputs // group
        order = torch.arange(inputs) // group
        if act_order:
            order = order[torch.randperm(inputs, generator=generator)]
        scales = (torch.rand(outputs, groups, generator=generator) * 0.05 + 0.01).half()
        zeros = torch.randint(1, 2**bits - 1, (outputs, groups), generator=generator)
        codes = torch.randint(0, 2**bits, (outputs, inputs), generator=generator)
        linear = torch.nn.Linear(inputs, outputs, bias=False, dtype=torch.float16)
        linear.weight.data = ((codes - zeros[:, order]) * scales[:, order]).half()
        own = layer.QuantLinear(bits, group, inputs, outputs, False, weight_dtype=torch.float16)
        own.pack(linear, scales.clone(), zeros.float(), order.int())
        own.half()
        with torch.no_grad():
            value = own(torch.eye(inputs, dtype=torch.float16)).t().clone()
        parts = {"qweight": own.qweight, "qzeros": own.qzeros, "scales": own.scales.half(), "g_idx": own.g_idx.int()}
        if later:  # the second version stores zero points as they are
            parts["qzeros"] = parts["qzeros"] + sum(1 << bits * i for i in range(32 // bits - 1)) + (
                1 << 32 - bits if bits > 1 else 0)
            parts["qzeros"] = parts["qzeros"].int()
        if not act_order:
            del parts["g_idx"]
            parts["bias"] = torch.zeros(outputs, dtype=torch.float16)
        return parts, value
    return pack


def awq(group):
    packing = own_file("awq", "utils/packing_utils.py")

    def pack(name, weight):
        outputs, inputs = weight.shape
        generator = torch.Generator().manual_seed(len(name))
        words = lambda *shape: torch.randint(-2**31, 2**31 - 1, shape, generator=generator, dtype=torch.int64).int()
        parts = {"qweight": words(inputs, outputs // 8), "qzeros": words(inputs // group, outputs // 8),
                 "scales": (torch.rand(inputs // group, outputs, generator=generator) * 0.05 + 0.01).half()}
        value = packing.dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"], 4, group)
        return parts, value.t().half()
    return pack


def compressed(kind, **args):
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(kind)

    def pack(_, weight):
        rows, cols = weight.shape
        group = args.group_size or cols
        parts = {"weight": weight}
        if args.strategy == "block":
            height, width = args.block_structure
            tiles = weight.view(rows // height, height, cols // width, width).float()
            low, high = tiles.amin(dim=(1, 3)), tiles.amax(dim=(1, 3))
        elif args.strategy == "tensor":
            low, high = weight.float().min().view(1), weight.float().max().view(1)
        else:
            groups = weight.float().view(rows, cols // group, group)
            low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        all_scale = generate_gparam(weight.float().min(), weight.float().max()) if args.strategy == "tensor_group" else None
        scale, zero = calculate_qparams(low, high, args, global_scale=all_scale)
        if all_scale is not None:
            parts["weight_global_scale"] = all_scale.view(1)
        parts["weight_scale"] = scale if all_scale is not None else scale.to(weight.dtype)
        parts["weight_zero_point"] = zero
        stored = compressor.compress(dict(parts), scheme)
        value = compressor.decompress(dict(stored), scheme)["weight"]
        return stored, value.to(weight.dtype)
    return pack


def block_fp8(height, width, powers=False):
    def pack(_, weight):
        blocks = in_blocks(weight.float(), height, width)
        scale = torch.tensor([[float(block.abs().max()) / 448 for block in row] for row in blocks])
        if powers:
            scale = torch.exp2(torch.ceil(torch.log2(scale)))
        codes = torch.zeros(weight.shape, dtype=torch.float8_e4m3fn)
        value = torch.zeros(weight.shape, dtype=torch.bfloat16)
        for r, row in enumerate(blocks):
            for c, block in enumerate(row):
                own = (block / scale[r, c]).to(torch.float8_e4m3fn)
                place = slice(r * height, (r + 1) * height), slice(c * width, (c + 1) * width)
                codes[place] = own
                value[place] = Fp8Dequantize(None)._dequantize_one(own, scale[r:r + 1, c:c + 1], torch.bfloat16)
        return {"weight": codes, "weight_scale_inv": scale.to(torch.float8_e8m0fnu) if powers else scale}, value
    return pack


def main():
    target = Path(sys.argv[1]) / "quantized"
    torch.set_num_threads(1)
    half, brain = torch.float16, torch.bfloat16
    small = (64, 96)
    bits_and_bytes(target, "bnb-nf4-dq", brain, (128, 192), load_in_4bit=True, bnb_4bit_quant_type="nf4",
                   bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=brain)
    bits_and_bytes(target, "bnb-nf4", brain, (64, 128), load_in_4bit=True, bnb_4bit_quant_type="nf4")
    bits_and_bytes(target, "bnb-fp4", half, (64, 128), load_in_4bit=True, bnb_4bit_quant_type="fp4")
    bits_and_bytes(target, "bnb-int8", half, small, load_in_8bit=True)
    for name, pack, more in (
            ("gptq-4", gptq(4, 32), {"bits": 4}),
            ("gptq-3", gptq(3, 32), {"bits": 3}),
            ("gptq-2", gptq(2, 16), {"bits": 2}),
            ("gptq-8-order", gptq(8, 32, act_order=True), {"bits": 8}),
            ("gptq-v2", gptq(4, 32, later=True), {"bits": 4, "checkpoint_format": "gptq_v2"})):
        write(target / name, model_of(*small, half), {"quant_method": "gptq"} | more, pack)
    write(target / "awq", model_of(*small, half), {"quant_method": "awq", "bits": 4, "version": "gemm"}, awq(32))
    for name, kind, args in (
            ("packed-4", "pack-quantized", dict(num_bits=4, type="int", strategy="group", group_size=32)),
            ("packed-4-zero", "pack-quantized",
             dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False)),
            ("packed-8-row", "pack-quantized", dict(num_bits=8, type="int", strategy="channel")),
            ("packed-3", "pack-quantized", dict(num_bits=3, type="int", strategy="group", group_size=32)),
            ("int8-row", "int-quantized", dict(num_bits=8, type="int", strategy="channel")),
            ("fp8-row", "float-quantized", dict(num_bits=8, type="float", strategy="channel")),
            ("fp8-all", "float-quantized", dict(num_bits=8, type="float", strategy="tensor")),
            ("nvfp4", "nvfp4-pack-quantized",
             dict(num_bits=4, type="float", strategy="tensor_group", group_size=16)),
            ("mxfp8", "mxfp8-quantized",
             dict(num_bits=8, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8,
                  zp_dtype=torch.float8_e4m3fn)),
            ("mxfp4", "mxfp4-pack-quantized",
             dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8,
                  zp_dtype=torch.uint8))):
        write(target / name, model_of(*small, brain), {"quant_method": "compressed-tensors", "format": kind},
              compressed(kind, **args))
    write(target / "fp8-block", model_of(*small, brain),
          {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}, block_fp8(32, 32))
    # Blocks of 40 rows and 48 columns: the last of 64 and 96 are smaller.
    write(target / "fp8-rest", model_of(*small, brain),
          {"quant_method": "fp8", "weight_block_size": [40, 48], "scale_fmt": "ue8m0"}, block_fp8(40, 48, powers=True))


if __name__ == "__main__":
    main()
