#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of tests/data as llama.cpp's converter writes them: tests/data/formats/converted/NAME.gguf, without a
vocabulary, which those models do not have. Weights are in float32, experts in MXFP4 as they were.

Run: python3 gguf_converted.py LLAMA_CPP       (its sources, such as vendor/llama.cpp in the sdist of llama-cpp-python
0.3.36; torch, transformers 5)
"""
import json
import sys
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


def main():
    folder = DATA / "formats/converted"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, source) in MODELS.items():
        config = json.loads((DATA / source / "config.json").read_text()) | {"architectures": [kind]}
        if kind == "GPT2LMHeadModel":
            config["n_ctx"] = config["n_positions"]
        if rotated := config.get("rope_parameters", {}).get("partial_rotary_factor"):
            config["rotary_pct"] = rotated  # as published models of GPT-NeoX have it
        model = get_model_class(kind)(DATA / source, gguf.LlamaFileType.ALL_F32, folder / f"{name}.gguf", model_name=name,
                                      hparams=config)
        getattr(model, "impl", model).set_vocab = lambda: None
        with torch.inference_mode():
            model.write()


if __name__ == "__main__":
    main()
