# SPDX-License-Identifier: Apache-2.0
"""Writes a BLIP-2 of random weights as transformers keeps it, and a folder of pictures with captions
(metadata.jsonl), so that two programs can be timed on the same work. The shape is BLIP-2's with
everything narrower: 257 places a picture of which 32 queries reach an OPT decoder."""

import argparse
import json
import os
import random

import numpy
import tokenizers
import torch
import transformers
from PIL import Image

WORDS = ("a red green blue small large round bowl plate of soup rice bread fruit with on the wooden "
         "table and fresh leaves cut apple lemon tomato cheese noodle egg fish hot cold sweet").split()


def make_tokenizer(folder, captions):
    """Byte-level BPE with OPT's habits: </s> stands before every text."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(captions, vocab_size=600,
                            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<image>"])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, bos_token="</s>", eos_token="</s>", unk_token="</s>",
        pad_token="<pad>", additional_special_tokens=["<image>"])
    fast._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", fast.convert_tokens_to_ids("</s>"))])
    fast.save_pretrained(folder)
    return fast


def config_of(args, tokenizer):
    vision = {"hidden_size": args.vision_width, "num_hidden_layers": args.vision_layers,
              "num_attention_heads": args.vision_width // 64, "intermediate_size": 4 * args.vision_width,
              "image_size": 224, "patch_size": 14}
    qformer = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
               "intermediate_size": 1536, "encoder_hidden_size": args.vision_width, "vocab_size": 30522}
    text = {"model_type": "opt", "hidden_size": args.text_width, "num_hidden_layers": args.text_layers,
            "num_attention_heads": args.text_width // 64, "ffn_dim": 4 * args.text_width,
            "word_embed_proj_dim": args.text_width, "vocab_size": args.vocabulary,
            "max_position_embeddings": 512}
    config = transformers.Blip2Config(vision_config=vision, qformer_config=qformer, text_config=text,
                                      num_query_tokens=32)
    config.image_token_index = tokenizer.convert_tokens_to_ids("<image>")
    return config


def write_pictures(folder, count):
    """Smooth random pictures of 640 x 480 as JPEG."""
    os.makedirs(folder, exist_ok=True)
    draw = random.Random(7)
    numbers = numpy.random.default_rng(7)
    captions = [" ".join(draw.choices(WORDS, k=draw.randint(6, 24))) for _ in range(count)]
    with open(os.path.join(folder, "metadata.jsonl"), "w", encoding="utf-8") as rows:
        for i, caption in enumerate(captions):
            coarse = Image.fromarray(numbers.integers(0, 255, (12, 16, 3), dtype=numpy.uint8))
            coarse.resize((640, 480), Image.BICUBIC).save(os.path.join(folder, f"{i:04}.jpg"), quality=90)
            rows.write(json.dumps({"file_name": f"{i:04}.jpg", "text": caption}) + "\n")
    return captions


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder to write the model to")
    parser.add_argument("pictures", help="folder to write pictures to")
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--vision_width", type=int, default=512)
    parser.add_argument("--vision_layers", type=int, default=8)
    parser.add_argument("--text_width", type=int, default=768)
    parser.add_argument("--text_layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=50304)
    args = parser.parse_args()
    captions = write_pictures(args.pictures, args.count)
    tokenizer = make_tokenizer(args.model, captions)
    torch.manual_seed(7)
    model = transformers.Blip2ForConditionalGeneration(config_of(args, tokenizer))
    model.save_pretrained(args.model)
    transformers.BlipImageProcessor(size={"height": 224, "width": 224}).save_pretrained(args.model)
    print(f"{model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
