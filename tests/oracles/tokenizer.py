# SPDX-License-Identifier: Apache-2.0
"""Expected ids for tests/unit/text, from Hugging Face's tokenizers and from sentencepiece.

Needs tokenizers, sentencepiece, gguf. Usage: python tokenizer.py SMOLLM2.gguf
Trains one small tokenizer of each kind, saves it under tests/data/tokenizer/<name>/, encodes and decodes
the mixed text of tokenizer_text.py and stores one FNV-1a hash a line. The SmolLM2 vocabulary is cut to
its first merges. Versions are stored beside the figures.
"""
import glob
import json
import os
import shutil
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_text import DATA, fnv, hash_ids, load_pieces, mixed_lines

SEED, NUM_LINES = 7, 1200
NUM_MERGES = 6000
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

WORD, OPENING, ENDING = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# The pattern of gpt-oss and GPT-4o: capitals begin words.
O200K = (f"{WORD}{OPENING}*{ENDING}+{SHORT}|{WORD}{OPENING}+{ENDING}*{SHORT}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def hash_text(text):
    return f"{fnv(text.encode('utf-8')):08x}"


def hash_groups(texts):
    return "".join(hash_text("".join(texts[i:i + 20])) for i in range(0, len(texts), 20))


def training_lines():
    lines = mixed_lines(SEED + 1, 3000)
    for path in sorted(glob.glob("/usr/share/common-licenses/*"))[:6]:
        lines += open(path, encoding="utf-8").read().splitlines(keepends=True)
    return lines


def smollm(gguf_path):
    import gguf
    fields = gguf.GGUFReader(gguf_path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()[:NUM_MERGES]
    specials = [t for t, kind in zip(tokens, fields["tokenizer.ggml.token_type"].contents()) if kind == 3]
    # The test rebuilds the tokens from the merges, so their order is checked here.
    start = len(tokens) - len(fields["tokenizer.ggml.merges"].contents())
    assert tokens[:len(specials)] == specials
    found = tokens[:start] + [m.replace(" ", "") for m in merges]
    assert found == tokens[:len(found)]
    model = models.BPE(vocab={t: i for i, t in enumerate(found)}, merges=[tuple(m.split(" ")) for m in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    (DATA / "smollm_merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    (DATA / "smollm_first_tokens.txt").write_text("\n".join(tokens[:start]) + "\n", encoding="utf-8")
    return tokenizer


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(training_lines(), trainer)
    return tokenizer


def bpe_trainer(size, specials, alphabet=True):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])


def gpt2_prefix_space():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, bpe_trainer(700, ["<|endoftext|>"]))
    # One added token of each kind.
    tokenizer.add_tokens([AddedToken("gradient", single_word=True), AddedToken("memory", lstrip=True), AddedToken("model ", rstrip=True),
                          AddedToken("straße", normalized=True), AddedToken("<tool>", normalized=False, lstrip=True, rstrip=True)])
    return tokenizer


def split_bpe(pattern, normalizer, ignore_merges, bos):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, bpe_trainer(900, ["<|endoftext|>", "<|eot_id|>", "<s>"]))
    if bos:
        template = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def falcon():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                                       pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, bpe_trainer(900, ["<|endoftext|>"]))


def byte_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def llama2(metaspace):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Trained on words; used without cutting, as sentencepiece's conversion is.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, bpe_trainer(1100, ["<unk>", "<s>", "</s>"] + byte_tokens(), alphabet=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][:3]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    document["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    document["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False} if metaspace else None
    prepend = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    document["normalizer"] = None if metaspace else {"type": "Sequence", "normalizers": prepend}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def train_sentencepiece(prefix, **options):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        sentences = [text + "\n" for group in load_pieces()["groups"][2:6] for text in group]
        file.writelines(sentences * 20 + training_lines()[3000:])
        file.flush()
        sentencepiece.SentencePieceTrainer.train(input=file.name, model_prefix=prefix, minloglevel=2, num_threads=1, character_coverage=0.98, **options)


def unigram():
    prefix = tempfile.mkdtemp() + "/t5"
    train_sentencepiece(prefix, model_type="unigram", vocab_size=1600, unk_id=2, bos_id=-1, eos_id=1, pad_id=0, normalization_rule_name="nmt_nfkc")
    from transformers.convert_slow_tokenizer import import_protobuf
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(open(prefix + ".model", "rb").read())
    vocab = [(p.piece, p.score) for p in proto.pieces] + [("<extra_id_0>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ["<pad>", "</s>", "<unk>", "<extra_id_0>"]])
    return tokenizer


def normalizer_zoo():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex(r"\d+"), "#")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=False)])
    train(tokenizer, bpe_trainer(600, ["<unk>", "<s>"], alphabet=False))
    tokenizer.add_tokens(["the Memory"])
    return tokenizer


def word_ends():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="@@", fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], show_progress=False, limit_alphabet=150, end_of_word_suffix="</w>", continuing_subword_prefix="@@")
    train(tokenizer, trainer)
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


def expect(tokenizer, lines):
    encoded = [e.ids for e in tokenizer.encode_batch(lines, add_special_tokens=True)]
    plain = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines[:3]]
    return {"ids": "".join(map(hash_ids, encoded)), "first_ids": plain,
            "text": hash_groups(tokenizer.decode_batch(encoded, skip_special_tokens=False)),
            "text_without_special": hash_groups(tokenizer.decode_batch(encoded, skip_special_tokens=True))}


def encode_llama(processor, without_prefix, line, legacy):
    """LLaMA's handling of special tokens: stretches between them are encoded on their own."""
    ids, position = [1], 0
    names = {processor.id_to_piece(i): i for i in range(3)}
    while position < len(line):
        hits = [(line.find(n, position), n) for n in names if line.find(n, position) >= 0]
        end, name = min(hits) if hits else (len(line), "")
        if end > position:
            used = processor if legacy or position == 0 else without_prefix
            ids += used.encode(line[position:end])
        if name:
            ids.append(names[name])
        position = end + len(name)
    return ids


def sentencepiece_model(lines):
    directory = DATA / "sentencepiece"
    directory.mkdir(exist_ok=True)
    prefix = tempfile.mkdtemp() + "/llama"
    train_sentencepiece(prefix, model_type="bpe", vocab_size=1000, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                        split_digits=True, allow_whitespace_only_pieces=True, max_sentence_length=100000)
    shutil.copy(prefix + ".model", directory / "tokenizer.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    from transformers.convert_slow_tokenizer import import_protobuf
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(open(prefix + ".model", "rb").read())
    proto.normalizer_spec.add_dummy_prefix = False
    without_prefix = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return {name: "".join(hash_ids(encode_llama(processor, without_prefix, line, legacy)) for line in lines)
            for name, legacy in (("legacy", True), ("not_legacy", False))}


def main():
    lines = mixed_lines(SEED, NUM_LINES)
    made = {
        "gpt2": gpt2_prefix_space(),
        "llama3": split_bpe(LLAMA3, None, True, bos=True),
        "o200k": split_bpe(O200K, None, True, bos=False),
        "qwen2": split_bpe(QWEN2, normalizers.NFC(), False, bos=False),
        "falcon": falcon(),
        "llama2": llama2(metaspace=False),
        "mistral": llama2(metaspace=True),
        "t5": unigram(),
        "zoo": normalizer_zoo(),
        "word_ends": word_ends(),
    }
    expected = {"versions": {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__}, "seed": SEED, "num_lines": NUM_LINES,
                "text": hash_text("".join(lines)), "tokenizers": {}}
    for name, tokenizer in made.items():
        os.makedirs(DATA / name, exist_ok=True)
        document = json.loads(tokenizer.to_str())
        if name == "llama2":  # merges are found in both spellings
            document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
        (DATA / name / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        expected["tokenizers"][name] = expect(Tokenizer.from_file(str(DATA / name / "tokenizer.json")), lines)
    expected["tokenizers"]["smollm"] = expect(smollm(sys.argv[1]), lines)
    expected["sentencepiece"] = sentencepiece_model(lines)
    (DATA / "expected.json").write_text(json.dumps(expected, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
