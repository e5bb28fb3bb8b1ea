#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/system/tiny: a byte-level tokenizer of 300 entries with a chat template and the
config of a two-block Llama, for tests of the whole program. Run: tiny_checkpoint.py TARGET"""
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

target = Path(sys.argv[1])
target.mkdir(parents=True, exist_ok=True)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|im_start|>", "<|im_end|>"],
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
text = "the package is a library that provides a small program which reads and writes files"
tokenizer.train_from_iterator([text] * 50, trainer)
tokenizer.save(str(target / "tokenizer.json"))
template = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
            "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
(target / "tokenizer_config.json").write_text(json.dumps({
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>", "chat_template": template}, indent=1) + "\n")
(target / "config.json").write_text(json.dumps({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 304,
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "initializer_range": 0.1, "bos_token_id": 0, "eos_token_id": 1},
    indent=1) + "\n")
