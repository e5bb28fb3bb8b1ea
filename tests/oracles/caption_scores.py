#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Expected values for tests/unit/use/scores from pycocoevalcap: words of captions as its PTBTokenizer
cuts them (Java, its own jar), and BLEU, ROUGE-L and CIDEr-D of random captions and references.

Run: python3 caption_scores.py ../data/scores      (pycocoevalcap 1.2, Java 8 or later)
Writes scores.json: {"words": [[text, words]…], "cases": [{"captions": [[words, [words…]]…],
"bleu": [4], "rouge_l", "cider"}…]}, words joined by spaces.
"""
import json
import random
import sys
from pathlib import Path

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

TEXTS = [
    "A man's hat isn't red, but it's \"very\" old-fashioned (really).",
    "Two dogs playing... in the park & on the grass; they can't stop!",
    "The U.S. flag is 3.5 meters high, about $20.00 or 50% off.",
    "café crème ÉTÉ – a plate — of “fish” and ‘chips’",
    "I'm going to cannot wanna go e.g. to Mr. Smith's house at 5:30 p.m.",
    "a cat/dog and http://example.com/x?y=1 or me@mail.com",
    "it's 1/2 of a 1,000 kg load. Rock 'n' roll don't we'll they've you'd",
    "A red-and-white stop sign.",
    "[brackets] {braces} #hash @user * star ~ tilde a_b c+d e=f",
    "end with etc. and more. The end.",
    "the dogs' toys; rock-n-roll; 90's; '80s music",
    "grapes: a bunch of \"red\" grapes - fresh -- sweet --- good",
    "10:30 am 2nd 3-D x-ray T-shirt, St. John vs. them",
    "ÜBER straße 你好 世界 smiley",
    "multi  spaces\ttab",
    "grass.the dog ran.A cat",
    "five o'clock shadow, ma'am and o'neil's l'eau d'or",
    "hello,world one;two a:b",
    "wow!! really?! hmm.... so.. end...",
    "a man with t-shirt - sitting--standing -dash dash-",
    "5'10\" tall 6ft 20% $5 100km 3x 1st 2,500.5 1.5m 10,5 7:45pm 12/25/2020",
    "mr. mrs. ms. dr. prof. st. ave. inc. co. ltd. jr. sr. vs. e.g. i.e. a.m. u.k. ph.d.",
    "word. x. y. the letter a. b",
    "(one) [two] {three} a(b)c",
    "\"hello\" 'hi' \"a\" ''b'' ``c``",
    "cat & dog r&b black&white",
    "shouldn't won't ain't i'd she'll you're we've let's isn't'",
    "gonna gotta gimme lemme 'tis",
    "*bold* ~10 a*b a=b a+b a_b ^ | \\ / and/or @ # %",
    "x² ½ cup 30° c° ©2020 ® ™ • · … – — ′ ″",
    "naïve Ångström Москва ελλάδα",
    "- a list -- item",
    "\"a man's\" \"it's\"",
    "a close-up. a close-up, (a close-up)",
    "",
]
WORDS = ("a a a the of on in two red small dog cat man woman bowl plate soup rice bread cup table "
         "sits stands holding white with and street bus").split()


def words_of(texts):
    cut = PTBTokenizer().tokenize({i: [{"caption": t}] for i, t in enumerate(texts)})
    return [[text, cut[i][0]] for i, text in enumerate(texts)]


def sentence(draw, least=1):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, 12)))


def case(draw, count, most_references):
    rows = []
    for _ in range(count):
        references = [sentence(draw) for _ in range(draw.randint(1, most_references))]
        caption = sentence(draw)
        if draw.random() < 0.6:  # near one of them
            caption = draw.choice(references).split()
            for _ in range(draw.randint(0, 3)):
                caption[draw.randrange(len(caption))] = draw.choice(WORDS)
            if draw.random() < 0.3:
                caption += caption[:2] * 2
            caption = " ".join(caption)
        rows.append([caption, references])
    return score(rows)


def score(rows):
    expected = {i: references for i, (_, references) in enumerate(rows)}
    found = {i: [caption] for i, (caption, _) in enumerate(rows)}
    return {"captions": rows, "bleu": list(Bleu(4).compute_score(expected, found, verbose=0)[0]),
            "rouge_l": float(Rouge().compute_score(expected, found)[0]),
            "cider": float(Cider().compute_score(expected, found)[0])}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(7)
    cases = [case(draw, count, references)
             for count, references in ((1, 1), (2, 3), (8, 1), (20, 5), (40, 2))]
    cases.append(score([["a", ["a"]], ["the red dog", ["a white bus on the street", "a"]],
                        ["", ["a cat"]]]))
    with open(folder / "scores.json", "w") as file:
        json.dump({"words": words_of(TEXTS), "cases": cases}, file, ensure_ascii=False, indent=0)
        file.write("\n")


main()
