# SPDX-License-Identifier: Apache-2.0
"""What transformers' T5Tokenizer makes of a directory that holds spiece.model alone, as older T5
checkpoints do: tests/data/tokenizer/t5_spiece, for tests/unit/text/parity_test.cpp.

Needs transformers, sentencepiece. Usage: python tokenizer_t5.py
"""
import glob
import json
import pathlib
import tempfile

import sentencepiece
import transformers

from tokenizer_text import DATA, hash_ids, load_pieces, mixed_lines

SEED, NUM_LINES = 7, 1200
SAMPLES = [
    "Hello world", "  two  spaces ", "", " ", "a photo of a cat</s>", "x</s> y", "ﬁ Ⅳ ① ½", "tab\tnew\nline",
    "The <extra_id_0> walks in <extra_id_1> park", "<extra_id_99><extra_id_0>", "<extra_id_5>", " <extra_id_3> ",
    "<extra_id_100> is none", "<pad><unk> <s>", "日本 und Käse", "a<extra_id_0>b", "word <extra_id_1>, end.",
]


def main():
    directory = pathlib.Path(DATA) / "t5_spiece"
    directory.mkdir(exist_ok=True)
    # Words, mostly in Latin letters, so that some lines below hold what the vocabulary lacks.
    sentences = [text for group in load_pieces()["groups"][2:6] for text in group] * 20
    sentences += [line for path in sorted(glob.glob("/usr/share/common-licenses/*"))[:6]
                  for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        prefix = folder + "/t5"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_prefix=prefix, model_type="unigram", vocab_size=1600, unk_id=2, bos_id=-1, eos_id=1, pad_id=0,
            normalization_rule_name="nmt_nfkc", character_coverage=0.98, num_threads=1, minloglevel=2)
        (directory / "spiece.model").write_bytes(pathlib.Path(prefix + ".model").read_bytes())
    tokenizer = transformers.T5Tokenizer.from_pretrained(directory)
    samples = []
    for text in SAMPLES:
        ids = tokenizer(text).input_ids
        samples.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids),
                        "without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    lines = mixed_lines(SEED, NUM_LINES)
    (directory / "expected.json").write_text(json.dumps({
        "transformers": transformers.__version__, "sentencepiece": sentencepiece.__version__,
        "seed": SEED, "num_lines": NUM_LINES, "size": len(tokenizer), "samples": samples,
        "ids": "".join(hash_ids(tokenizer(line).input_ids) for line in lines),
    }, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
