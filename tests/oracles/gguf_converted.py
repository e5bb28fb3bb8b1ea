#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of tests/data as llama.cpp's converter writes them: tests/data/formats/converted/NAME.gguf, without a
vocabulary, which those models do not have. Weights are in float32, experts in MXFP4 as they were. Of the small Idefics3
smolvlm.gguf, with its vocabulary, mmproj-smolvlm.gguf, and mmproj-smolvlm.json: each tensor's type and a checksum of its
bytes in the second file's other types.

Run: python3 gguf_converted.py LLAMA_CPP       (its sources, such as vendor/llama.cpp in the sdist of llama-cpp-python
0.3.36; torch, transformers 5)
"""
import json
import sys
import tempfile
import zlib
from pathlib import Path

sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "gguf-py")]
import gguf
import torch
from conversion import get_model_class

DATA = Path(__file__).resolve().parents[1] / "data"
MODELS = {"gpt-oss": ("GptOssForCausalLM", "formats/mxfp4"),
          "gpt-neox": ("GPTNeoXForCausalLM", "parity/gpt-neox"),
          "stablelm": ("StableLmForCausalLM", "parity/stablelm"),
          "falcon": ("FalconForCausalLM", "parity/falcon-grouped"),
          "gpt2": ("GPT2LMHeadModel", "parity/gpt2"),
          "ministral3": ("Ministral3ForCausalLM", "parity/ministral3")}


def write(model):
    with torch.inference_mode():
        model.write()


def idefics3(folder):
    source, text = DATA / "system/smolvlm", folder / "smolvlm.gguf"
    config = json.loads((source / "config.json").read_text())
    config["text_config"]["architectures"] = ["VLlama3ForCausalLM"]  # as published models have it
    language = get_model_class("VLlama3ForCausalLM")(source, gguf.LlamaFileType.ALL_F32, text, model_name="smolvlm",
                                                     hparams=json.loads(json.dumps(config)))
    language.get_vocab_base_pre = lambda _: "gpt-2"  # it knows published vocabularies
    write(language)
    types = {}
    for name in ("ALL_F32", "MOSTLY_F16", "MOSTLY_BF16", "MOSTLY_Q8_0"):
        with tempfile.TemporaryDirectory() as temporary:
            kept = name == "ALL_F32"
            file = (folder if kept else Path(temporary)) / "mmproj-smolvlm.gguf"
            write(get_model_class("Idefics3ForConditionalGeneration", mmproj=True)(
                source, gguf.LlamaFileType[name], file, model_name="smolvlm", hparams=json.loads(json.dumps(config))))
            if not kept:
                types[name.removeprefix("MOSTLY_")] = {t.name: [t.tensor_type.name, zlib.crc32(t.data.tobytes())]
                                                       for t in gguf.GGUFReader(file).tensors}
    (folder / "mmproj-smolvlm.json").write_text(json.dumps(types, indent=1) + "\n")


def main():
    folder = DATA / "formats/converted"
    folder.mkdir(parents=True, exist_ok=True)
    idefics3(folder)
    for name, (kind, source) in MODELS.items():
        config = json.loads((DATA / source / "config.json").read_text()) | {"architectures": [kind]}
        if kind == "GPT2LMHeadModel":
            config["n_ctx"] = config["n_positions"]
        if rotated := config.get("rope_parameters", {}).get("partial_rotary_factor"):
            config["rotary_pct"] = rotated  # as published models of GPT-NeoX have it
        model = get_model_class(kind)(DATA / source, gguf.LlamaFileType.ALL_F32, folder / f"{name}.gguf", model_name=name,
                                      hparams=config)
        getattr(model, "impl", model).set_vocab = lambda: None
        write(model)


if __name__ == "__main__":
    main()
