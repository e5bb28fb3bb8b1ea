# Reads the files that writer_test.cpp wrote (tests/data/formats/written.*) with the libraries they are
# made for, and checks names, shapes, types and bytes. To run again whenever a writer's bytes change.
# Needs torch, safetensors, gguf, numpy: python tests/oracles/formats_readback.py
# SPDX-License-Identifier: Apache-2.0
import pathlib

import gguf
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "formats"
WANTED = {
    "model.embed.weight": (torch.bfloat16, (4, 3)),
    "flags": (torch.bool, (3,)),
    "model.norm.weight": (torch.float32, (5,)),
    "scalar": (torch.float64, ()),
    "empty": (torch.float16, (0, 2)),
    "ids": (torch.int64, (2, 2)),
}


def sample_bytes(dtype, size):
    return bytes(i % 2 if dtype is torch.bool else (i * 7 + 3) % 60 for i in range(size))


def check_sample(tensors, what):
    assert set(tensors) == set(WANTED), what
    for name, (dtype, shape) in WANTED.items():
        tensor = tensors[name]
        assert tensor.dtype is dtype and tuple(tensor.shape) == shape, (what, name)
        found = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        assert found == sample_bytes(dtype, tensor.numel() * tensor.element_size()), (what, name)


def check_gguf():
    reader = gguf.GGUFReader(FOLDER / "written.gguf")
    tensors = {t.name: t for t in reader.tensors}
    ramp = np.arange(64, dtype=np.float32) - 31.5
    q8 = gguf.quantize(ramp.reshape(2, 32), gguf.GGMLQuantizationType.Q8_0)
    assert tensors["f32"].data.shape == (3, 1) and np.array_equal(tensors["f32"].data.ravel(), ramp[:3])
    assert np.array_equal(tensors["q8"].data, q8)
    assert list(tensors["b"].shape) == [2, 2, 2]
    assert reader.fields["a.texts"].contents() == ["x", "", "ü"]
    assert reader.fields["a.f32s"].contents() == [1, 2.5]
    assert reader.fields["a.i32s"].contents() == [3, -4]
    assert reader.fields["a.bool"].contents() is False
    assert reader.fields["test.uint64"].contents() == 2**63 + 5
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["<unk>", "<s>", "hello", "ä€𝄞"]


if __name__ == "__main__":
    check_sample(load_file(FOLDER / "written.safetensors"), "safetensors")
    with safe_open(FOLDER / "written.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    check_sample(torch.load(FOLDER / "written.pth", weights_only=True), "pth")
    check_sample(torch.load(FOLDER / "written.pth", weights_only=True, mmap=True), "pth, mapped")
    check_gguf()
    print("written.safetensors, written.pth and written.gguf read back as they should")
