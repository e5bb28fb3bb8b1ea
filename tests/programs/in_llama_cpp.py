#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What snug writes for llama.cpp, by llama.cpp's own library: GGUF adapters beside their base give the logits of
the merged model, a file that snug quantizes is continued greedily as one that the library quantizes, and models
of several families give texts the probability there that they have here, and are continued alike. So is a text after a
picture, whose features the library computes from the second file of a small Idefics3.

Needs llama-cpp-py-sync (a wheel with llama.cpp's libraries; glibc 2.38), cffi and numpy. SmolLM2's file is looked
at where `snug demo --fetch_only` has put it.
Run: in_llama_cpp.py SNUG
"""
import json
import math
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from tiny import TINY, base_model, run, train

try:
    import numpy as np
    from llama_cpp_py_sync import _cffi_bindings as llama

    ffi, lib, mtmd = llama.get_ffi(), llama.get_lib(), llama.get_mtmd_lib()
except (AttributeError, ImportError, OSError, RuntimeError) as error:
    print(f"skipped: needs numpy and llama-cpp-py-sync ({error})")
    sys.exit(77)

CACHE = Path(os.environ.get("SNUG_CACHE", Path.home() / ".cache/snug"))
SMOLLM2 = CACHE / "models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
MIXES = {"Q8_0": 7, "Q4_K_M": 15}  # numbers of llama.h
LLAMA = dict(hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4)
MODELS = {
    "llama": dict(model_type="llama", architectures=["LlamaForCausalLM"], tie_word_embeddings=False, **LLAMA),
    "qwen2": dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True, **LLAMA),
}
SMALL = dict(tie_word_embeddings=False, num_hidden_layers=3, **LLAMA)
# llama.cpp rounds the bounds of YaRN's ramp, gpt-oss does not: here one is 0 and the other so near to 8 that it is the same.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False}
FAMILIES = {
    "mixtral": dict(model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2,
                    **SMALL),
    "qwen3_moe": dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=12, num_experts_per_tok=3,
                      moe_intermediate_size=256, norm_topk_prob=True, head_dim=48, **SMALL),
    "olmoe": dict(model_type="olmoe", architectures=["OlmoeForCausalLM"], num_experts=16, num_experts_per_tok=4,
                  **{**SMALL, "num_key_value_heads": 8}),
    "gpt_neox": dict(model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], **{**SMALL, "num_key_value_heads": 8}),
    "gpt_neox, serial": dict(model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], use_parallel_residual=False,
                             rotary_pct=1.0, **{**SMALL, "num_key_value_heads": 8}),
    "stablelm": dict(model_type="stablelm", architectures=["StableLmForCausalLM"], use_qkv_bias=True, **SMALL),
    "ministral3": dict(model_type="ministral3", architectures=["Ministral3ForCausalLM"],
                       rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
                                     "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3, "beta_fast": 4.0, "beta_slow": 0.5},
                       **SMALL, head_dim=32),
    "gpt2": dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=256, n_inner=512, n_head=8, n_layer=3,
                 n_positions=256, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, tie_word_embeddings=True),
    "gpt_oss": dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], num_local_experts=6, num_experts_per_tok=3,
                    sliding_window=8, rope_theta=(64 / math.tau) ** (32 / (2 * 7.9999)), rope_scaling=YARN, **SMALL,
                    head_dim=32),
}
MODELS["gpt_neox"] = FAMILIES["gpt_neox"]  # whose rows have another order there
ADAPTERS = {
    "lora": ["--lora_r", 4, "--lora_alpha", 6, "--lora_target_modules", "all-linear"],
    "rslora": ["--lora_r", 4, "--lora_alpha", 6, "--lora_use_rslora", "true", "--lora_target_modules",
               ".*(q_proj|k_proj|query_key_value)"],
}


class Model:
    def __init__(self, file, adapter=None, size=128):
        params = lib.llama_model_default_params()
        params.use_extra_bufts = False
        self.model = lib.llama_model_load_from_file(str(file).encode(), params)
        assert self.model != ffi.NULL, file
        wanted = lib.llama_context_default_params()
        wanted.n_ctx = wanted.n_batch = size
        wanted.n_threads = wanted.n_threads_batch = 2
        wanted.type_k = wanted.type_v = 0  # float32
        wanted.flash_attn_type = 0  # off: it rounds to float16
        self.context = lib.llama_init_from_model(self.model, wanted)
        if adapter is not None:
            loaded = lib.llama_adapter_lora_init(self.model, str(adapter).encode())
            assert loaded != ffi.NULL, adapter
            assert lib.llama_set_adapters_lora(self.context, [loaded], 1, [1.0]) == 0
        self.size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def close(self):
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)

    def logits(self, ids):
        """After the last of these tokens, which follow those of earlier calls."""
        tokens = ffi.new("llama_token[]", list(ids))
        assert lib.llama_decode(self.context, lib.llama_batch_get_one(tokens, len(ids))) == 0
        found = ffi.buffer(lib.llama_get_logits_ith(self.context, -1), 4 * self.size)
        return np.frombuffer(found, np.float32).copy()

    def greedy(self, ids, count):
        found = []
        while len(found) < count:
            ids = [int(self.logits(ids).argmax())]
            found += ids
        return found

    def tokens(self, text):
        found, raw = ffi.new("llama_token[128]"), text.encode()
        count = lib.llama_tokenize(lib.llama_model_get_vocab(self.model), raw, len(raw), found, 128, True, True)
        return list(found[0:count])

    def answer(self, ids):
        """Up to a token that ends it."""
        vocabulary = lib.llama_model_get_vocab(self.model)
        raw, found = b"", ffi.new("char[64]")
        for token in ids:
            if lib.llama_vocab_is_eog(vocabulary, token):
                break
            count = lib.llama_token_to_piece(vocabulary, token, found, 64, 0, False)
            raw += ffi.buffer(found, count)[:]
        return raw.decode(errors="replace")


def look(file, question, adapter=None, size=128):
    model = Model(file, adapter, size)
    try:
        return question(model)
    finally:
        model.close()


def check_adapters(snug, folder, name, base):
    """Each alone, and one whose second kind of layer has an alpha of its own."""
    ids = [5, 17, 80, 41, 200, 3, 9]
    run(snug, "convert", base, folder / "base.gguf")
    plain = look(folder / "base.gguf", lambda model: model.logits(ids))
    for kind, options in ADAPTERS.items():
        adapter = train(snug, "finetune_lora", base, folder / kind, 20, "--lr", 0.02, *options)
        for alpha in ({}, {"k_proj": 2}):
            config = json.loads((adapter / "adapter_config.json").read_text())
            (adapter / "adapter_config.json").write_text(json.dumps({**config, "alpha_pattern": alpha}))
            merged, case = folder / f"{kind}-{len(alpha)}", f"{name}, {kind}, {alpha}"
            run(snug, "convert", adapter, f"{merged}-adapter.gguf")
            run(snug, "merge", adapter, "--out_dir", merged)
            run(snug, "convert", merged, f"{merged}.gguf")
            wanted = look(f"{merged}.gguf", lambda model: model.logits(ids))
            found = look(folder / "base.gguf", lambda model: model.logits(ids), f"{merged}-adapter.gguf")
            error, moved = np.abs(found - wanted).max(), np.abs(plain - wanted).max()
            print(f"{case}: {error:.1e} from the merged model's logits, where the base's are {moved:.1e} away")
            assert error < 1e-5 * np.abs(wanted).max() < moved, case


def check_quantized(snug, folder, name, source):
    """From one float16 file."""
    whole = folder / f"{name}-f16.gguf"
    run(snug, "convert", source, whole, "--dtype", "float16")
    for mix, number in MIXES.items():
        ours, theirs = folder / f"{name}-{mix}.gguf", folder / f"{name}-{mix}-by-llama-cpp.gguf"
        run(snug, "convert", whole, ours, "--gguf_type", mix)
        params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
        params.ftype, params.nthread = number, 2
        assert lib.llama_model_quantize(str(whole).encode(), str(theirs).encode(), params) == 0
        for text in ("say 3", "The apt package manager resolves"):
            continued = [look(file, lambda model: model.greedy(model.tokens(text), 32)) for file in (ours, theirs)]
            assert continued[0] == continued[1], (name, mix, text, continued)
        print(f"{name}, {mix}: the same 2 x 32 tokens")


def surprise(model, ids):
    """The mean negative logarithm of the probability of each token but the first, fed one by one."""
    found = []
    for now, then in zip(ids, ids[1:]):
        logits = model.logits([now]).astype(np.float64)
        found.append(np.logaddexp.reduce(logits) - logits[then])
    return float(np.mean(found))


def check_family(snug, folder, name, base):
    """By the library and by snug, both from the GGUF file."""
    file, row = folder / f"{name}.gguf", folder / "row.jsonl"
    run(snug, "convert", base, file, "--dtype", "float32")
    row.write_text(json.dumps({"instruction": "say 5, ", "output": "bbbbb, no: abcabc say 3 or say 6 cba"}) + "\n")
    ours = json.loads(run(snug, "evaluate", file, "--data.json_path", row, "--data.prompt_style", "plain",
                          "--data.mask_prompt", "false", "--precision", "32-true", "--json"))
    ids = look(file, lambda model: model.tokens("".join(json.loads(row.read_text()).values()) + "<|im_end|>"))
    theirs = look(file, lambda model: surprise(model, ids))
    print(f"{name}: a loss of {theirs:.6f} over {len(ids) - 1} tokens, {ours['loss'] - theirs:.1e} more by snug evaluate")
    assert ours["tokens"] == len(ids) - 1, (ours, ids)
    # Its GELU is a table of float16, of the form with tanh.
    assert abs(ours["loss"] - theirs) < (1e-4 if name.startswith(("gpt2", "gpt_neox")) else 1e-5) * theirs, name
    answers = []
    for text in ("say 3", "say 6", "b"):
        wanted = json.loads(run(snug, "generate", file, "--prompt", text, "--prompt_style", "plain", "--max_new_tokens", 12,
                                "--temperature", 0, "--precision", "32-true", "--json", "true"))["text"]
        found = look(file, lambda model: model.answer(model.greedy(model.tokens(text), 12)))
        assert found == wanted, (name, text, wanted, found)
        answers.append(wanted)
    assert any(answers), name
    print(f"{name}: the same answers {answers}")


def write_png(path, pixels):
    """(height, width, 3) bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def describe(model, mmproj, pixels, text, count):
    """A greedy answer to a text that has each of a picture's tiles, and the whole, as "<image>"."""
    params = mtmd.mtmd_context_params_default()
    params.use_gpu = params.print_timings = params.warmup = False
    params.n_threads, params.flash_attn_type = 2, 0
    context = mtmd.mtmd_init_from_file(str(mmproj).encode(), model.model, params)
    assert context != ffi.NULL, mmproj
    raw = ffi.from_buffer("unsigned char[]", np.ascontiguousarray(pixels))
    bitmap = mtmd.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], raw)
    marker = mtmd.mtmd_default_marker()
    wanted = ffi.new("mtmd_input_text *", {"text": marker, "text_len": len(ffi.string(marker))})
    chunks = mtmd.mtmd_input_chunks_init()
    assert mtmd.mtmd_tokenize(context, chunks, wanted, ffi.new("const mtmd_bitmap *[]", [bitmap]), 1) == 0
    all_chunks = [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    pictures = [chunk for chunk in all_chunks if mtmd.mtmd_input_chunk_get_type(chunk) == 1]
    pieces = text.split("<image>")
    assert len(pieces) == len(pictures) + 1, (len(pieces), len(pictures))
    past = 0
    for piece, picture in zip(pieces, pictures + [None]):
        ids = model.tokens(piece)
        logits = model.logits(ids)
        past += len(ids)
        if picture is not None:
            after = ffi.new("llama_pos *")
            assert mtmd.mtmd_helper_eval_chunk_single(context, model.context, picture, past, 0, 256, False, after) == 0
            past = after[0]
    found = [int(logits.argmax())]
    found += model.greedy(found, count - 1)
    mtmd.mtmd_input_chunks_free(chunks)
    mtmd.mtmd_bitmap_free(bitmap)
    mtmd.mtmd_free(context)
    return model.answer(found)


def check_pictures(snug, folder):
    """Whole tiles, since the library scales pictures in its own way; the whole it still makes small."""
    file, picture = folder / "smolvlm.gguf", folder / "picture.png"
    run(snug, "convert", TINY.parent / "smolvlm", file, "--dtype", "float32")
    tiles = "".join("".join(f"<fake_token_around_image><row_{row}_col_{column}><image>" for column in range(1, 5)) + "\n"
                    for row in range(1, 5))
    text = f"User:{tiles}\n<fake_token_around_image><global-img><image><fake_token_around_image>What is this?" \
           "<end_of_utterance>\nAssistant:"
    answers = []
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8).repeat(14, 0).repeat(14, 1)
        write_png(picture, pixels)
        wanted = json.loads(run(snug, "generate", file, "--prompt", "What is this?", "--image", picture, "--max_new_tokens",
                                12, "--temperature", 0, "--precision", "32-true", "--json", "true"))["text"]
        found = look(file, lambda model: describe(model, folder / "mmproj-smolvlm.gguf", pixels, text, 12), size=512)
        answers.append(wanted)
        assert found == wanted, (seed, wanted, found)
    assert len(set(answers)) > 1, answers
    print(f"smolvlm: the same answers {answers} about pictures")


def main():
    quiet = ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda *_: None)
    lib.llama_log_set(quiet, ffi.NULL)
    mtmd.mtmd_log_set(quiet, ffi.NULL)
    mtmd.mtmd_helper_log_set(quiet, ffi.NULL)
    snug = sys.argv[1]
    with tempfile.TemporaryDirectory() as temporary:
        check_pictures(snug, Path(temporary))
    for models, check in ((MODELS, check_adapters), (FAMILIES, check_family)):
        for name, config in models.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                base = base_model(snug, folder, **config)
                check(snug, folder, name, base)
                check_quantized(snug, folder, name, base)
    if not SMOLLM2.exists():
        print(f"without SmolLM2: {SMOLLM2} is missing (snug demo --fetch_only)")
        return
    with tempfile.TemporaryDirectory() as temporary:
        check_quantized(snug, Path(temporary), "SmolLM2", SMOLLM2)


if __name__ == "__main__":
    main()
