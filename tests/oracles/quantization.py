# Writes tests/data/kernels/quantization.json: codes, scales and dequantized numbers of small weights, as
# bitsandbytes makes them on the CPU. Read by tests/unit/core/kernels/quantized_test.cpp. Floats are written by
# their bits, in hexadecimal. Needs torch and bitsandbytes: python tests/oracles/quantization.py
# SPDX-License-Identifier: Apache-2.0
import json
import os
import struct
from importlib.metadata import version
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes minutes and changes nothing

import bitsandbytes.functional as F  # noqa: E402
import torch  # noqa: E402
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute  # noqa: E402

TARGET = Path(__file__).resolve().parents[1] / "data" / "kernels" / "quantization.json"
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def wanted_types(weight):
    return TYPES if weight.dtype == torch.float32 else {n: t for n, t in TYPES.items() if t == weight.dtype}


def bits(tensor):
    tensor = tensor.detach().contiguous().flatten()
    whole = {4: torch.int32, 2: torch.int16, 1: torch.uint8}[tensor.element_size()]
    digits = 2 * tensor.element_size()
    return "".join(f"{v & (1 << 4 * digits) - 1:0{digits}x}" for v in tensor.view(whole).tolist())


def number(value):
    return struct.pack(">f", float(value)).hex()


def four_bits(kind, nested, weight):
    codes, state = F.quantize_4bit(weight, quant_type=kind, compress_statistics=nested)
    case = {"codes": bits(codes)}
    if nested:
        case |= {"scale_codes": bits(state.absmax), "nested_scales": bits(state.state2.absmax),
                 "mean": number(state.offset)}
    else:
        case["scales"] = bits(state.absmax)
    for name, dtype in wanted_types(weight).items():
        case[name] = bits(dequantized(codes, state, dtype))
    return case


def dequantized(codes, state, dtype):
    if state.shape[-1] % state.blocksize == 0:
        state.dtype = dtype
        return F.dequantize_4bit(codes, state)
    # bitsandbytes 0.50's AVX-512 code takes other blocks' scales here; its code for all devices does not.
    scales = state.absmax
    if state.nested:
        scales = F.dequantize_blockwise(state.absmax, state.state2) + state.offset
    code = F.get_4bit_type(state.quant_type, device="cpu")
    return _dequantize_4bit_compute(codes.reshape(-1), scales, code, state.blocksize, state.shape, dtype)


def eight_bits(weight):
    codes, scales, _ = F.int8_vectorwise_quant(weight)
    case = {"codes": bits(codes), "scales": bits(scales)}
    for name, dtype in wanted_types(weight).items():
        case[name] = bits(F.int8_vectorwise_dequant(codes, scales).to(dtype))
    return case


def borders(kind):
    """Numbers at, just below and just above each border between two codes, beside a 1."""
    code = F.get_4bit_type(kind, device="cpu").sort().values
    middle = (code[:-1] + code[1:]) / 2
    beside = torch.cat([middle, middle.nextafter(torch.tensor(2.0)), middle.nextafter(torch.tensor(-2.0))])
    return torch.cat([torch.ones(1), beside, -torch.zeros(1), torch.zeros(17)])[:64]


def weights():
    wide = torch.randn(3, 64) * torch.logspace(-30, 30, 64)
    special = torch.randn(6, 64)
    special[0, 3], special[1, 5], special[2, 7] = float("nan"), float("inf"), float("-inf")
    special[3] = 0
    special[4] = special[4] * 1e-39
    special[5] = special[5] * 1e37
    return {
        "whole blocks": torch.randn(4, 128), "odd rows": torch.randn(5, 33),
        "one element": torch.randn(1, 1),
        "ragged": torch.randn(3, 70), "few": torch.tensor([[-0.1, -0.2, 0.3]]), "zeros": torch.zeros(2, 48),
        "wide": wide, "special": special,
        "nf4 borders": borders("nf4")[None], "fp4 borders": borders("fp4")[None],
        "uneven blocks": torch.randn(6, 96) * torch.rand(6, 96) ** 6 * 0.02,
    }


def many_scales():
    """Enough blocks for several nested ones; only what quantizing the scales gives is kept."""
    weight = (torch.randn(1031, 64) * (0.5 + torch.rand(1031, 1))).to(torch.bfloat16)
    _, state = F.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    plain = F.quantize_4bit(weight, quant_type="nf4")[1].absmax
    # A block that is all one number has that number for its scale.
    return {"scales": bits(plain), "scale_codes": bits(state.absmax),
            "nested_scales": bits(state.state2.absmax), "mean": number(state.offset)}


def main():
    torch.manual_seed(31)
    torch.set_num_threads(1)  # the order in which the mean is added up depends on it
    cases = []
    for what, weight in weights().items():
        for name, dtype in TYPES.items():
            values = weight.to(dtype)
            finite = bool(values.isfinite().all())
            case = {"what": what, "type": name, "rows": weight.shape[0], "cols": weight.shape[1],
                    "weight": bits(values), "int8": eight_bits(values)}
            for kind in ("nf4", "fp4"):
                case[kind] = four_bits(kind, False, values)
                if finite:
                    case[f"{kind}-dq"] = four_bits(kind, True, values)
            cases.append(case)
    data = {"versions": {p: version(p) for p in ("torch", "bitsandbytes")}, "seed": 31,
            "scale_map": bits(F.create_dynamic_map()), "many_scales": many_scales(), "cases": cases}
    TARGET.write_text(json.dumps(data, separators=(",", ":")) + "\n")
    print(f"{TARGET}: {len(cases)} weights, {TARGET.stat().st_size} bytes")


main()
