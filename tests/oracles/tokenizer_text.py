# SPDX-License-Identifier: Apache-2.0
"""The mixed text on which tokenizers are compared: many scripts, emoji, code, odd white space.

mixed_lines() draws from tests/data/tokenizer/pieces.json by a seeded generator that
tests/unit/text/mixed_text.h repeats step by step, so that no megabyte of text is stored.
Hashes of what tokenizers make of it are FNV-1a, as the test computes them.

Usage: python tokenizer_text.py, which writes pieces.json.
"""
import json
import pathlib
import struct

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizer"
MASK = (1 << 64) - 1


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def load_pieces():
    return json.loads((DATA / "pieces.json").read_text(encoding="utf-8"))


def draw(random, pieces):
    kind = random.below(16)
    if kind < 9:
        group = pieces["groups"][random.below(len(pieces["groups"]))]
        return group[random.below(len(group))]
    if kind < 11:
        first, last = pieces["ranges"][random.below(len(pieces["ranges"]))]
        return "".join(chr(first + random.below(last - first + 1)) for _ in range(1 + random.below(8)))
    if kind < 12:
        return str(random.below(10 ** (1 + random.below(12))))
    if kind < 13:
        spaces = pieces["spaces"]
        return "".join(spaces[random.below(len(spaces))] for _ in range(1 + random.below(5)))
    if kind < 14:
        return " " * (1 + random.below(20))
    if kind < 15:
        words = pieces["words"]
        return words[random.below(len(words))].upper()
    words = pieces["words"]
    return "".join(words[random.below(len(words))] for _ in range(1 + random.below(4)))


def mixed_lines(seed, count):
    pieces = load_pieces()
    random = SplitMix(seed)
    lines = []
    for _ in range(count):
        line = ""
        for _ in range(1 + random.below(20)):
            line += draw(random, pieces)
            if random.below(4) != 0:
                line += " "
        endings = pieces["endings"]
        lines.append(line + endings[random.below(len(endings))])
    return lines


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value & 0xFFFFFFFF


def hash_ids(ids):
    return f"{fnv(b''.join(struct.pack('<i', i) for i in ids)):08x}"


WORDS = """the of and to in is that for it was on as with be by at from this have or an not are but which one you
all were her she there been their has would when who will more no if out so what time up go about than into could
state only new year some take come these know see use get like then first any work now may such give over think
most even find day also after way many must look before great back through long where much should well people down
own just because good each those feel seem how high too place little world very still nation hand old life tell
write become here show house both between need mean call develop under last right move thing general school never
same another begin while number part turn real leave might want point form off child few small since against ask
late home interest large person end open public follow during present without again hold govern around possible
head consider word program problem however lead system set order eye plan run keep face fact group play stand
increase early course change help line tokenization gradient checkpoint memory model training network language
doesn't I'm we've they'll it's he'd you're Don't CAN'T""".split()

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.", "Fine-tuning fits the memory you have.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.", "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.", "いろはにほへと ちりぬるを わかよたれそ つねならむ",
    "東京は日本の首都です。人口は約1400万人。", "人工智能正在改变世界，而显存永远不够。", "我們在這裡測試繁體中文的分詞。", "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر", "דג סקרן שט בים מאוכזב ולפתע מצא חברה", "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश",
    "আমি কাচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না।", "நான் கண்ணாடி சாப்பிடுவேன்", "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า", "ကျွန်တော် မှန်စားနိုင်တယ်",
    "ກິນແກ້ວໄດ້ໂດຍທີ່ມັນບໍ່ໄດ້ເຮັດໃຫ້ຂອຍເຈັບ", "მინას ვჭამ და არა მტკივა", "Կրնամ ապակի ուտել և ինծի անհանգիստ չըներ", "Tôi có thể ăn thủy tinh mà không hại gì.",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İSTANBUL ışık", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ", "አማርኛ ጽሑፍ ነው።",
    "ខ្ញុំអាចញុំកញ្ចក់បាន", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ", "ꦧꦱꦗꦮ", "ⵜⴰⵎⴰⵣⵉⵖⵜ"]

EMOJI = ["😀", "🤣", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️‍🔥", "1️⃣", "🧑🏿‍🚀", "☎️", "🫠", "⌚", "🀄", "👁️‍🗨️"]

CODE = ["def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "if (a&&b||!c) { x->y = *p++; }", "https://example.org/a/b?q=1&r=%20#top",
        "SELECT * FROM t WHERE id='1';--", "{\"key\": [1, 2.5e-3, null, true], \"π\": \"\\u00e9\"}", "#include <vector>\r\nint main() {}\r\n", "$ ls -la | grep '^d' > /dev/null 2>&1",
        "<div class=\"a b\">&nbsp;</div>", "x = [i for i in range(10) if i % 2 == 0]", "user@example.com", "C:\\Users\\name\\file.txt", "0xDEADBEEF 1e-05 3.14159 1,000,000", "--option=value", "camelCaseName snake_case_name SCREAMING_CASE",
        "'''doc'''", "\\begin{equation} E=mc^2 \\end{equation}", "a\tb\tc", "!!!???...", "=====-----*****", "「引用」『二重』（括弧）", "“quoted” ‘text’ — dash – en…"]

COMBINING = ["e\u0301", "a\u0300\u0316", "\u1100\u1161\u11a8", "\ufb01", "\u212b", "\u00c5", "A\u030a", "\u0344", "\u1e9b\u0323", "\u2126", "\u00bd", "\u2460", "\u3392", "\uff21\uff22\uff23", "\uff76\uff9e", "\u01c4", "\u0132", "\u017f", "\u1e9e", "\u0130", "Z\u0351\u036b\u0343\u036a", "\u0f77", "\u0958"]

ODD = ["\u0000", "a\u0000b", "\ue000\uf8ff", "\U000f0000", "\U0010fffd", "\ufeff", "\ufffd", "\ufffe", "\u00ad", "\u200b", "\u200d", "\u2060", "\u061c", "\u202e", "\u0001\u0002", "\u001b[0m", "\u007f", "\u0080", "\u2028", "\u2029", "\u0378", "\U0001f9ff", "\u180e", "\u3000"]

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<|eot_id|>", "<|im_start", "im_end|>", "<0x41>", "▁", "Ġ", "[INST] x [/INST]", "<extra_id_0>", "<tool>"]

RANGES = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE5B), (0x1100, 0x11FF),
          (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2070, 0x20CF), (0x2100, 0x218B), (0x2190, 0x23FF), (0x2460, 0x27BF), (0x3000, 0x30FF), (0x3200, 0x33FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
          (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFE00, 0xFE6F), (0xFF00, 0xFFEF), (0x10000, 0x100FA), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x20000, 0x2A6DF), (0x0300, 0x036F)]

SPACES = [" ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200a", "\u1680", "\u000b", "\u000c", "\u0085", "\u2028", "\u202f", "\u205f"]
ENDINGS = ["\n", "\n", "\n", "\n", "\r\n", "\n\n", "", " \n", "\t\n", "\n\n\n  "]

if __name__ == "__main__":
    document = {"words": WORDS, "groups": [WORDS, WORDS, WORDS, SENTENCES, SENTENCES, CODE, EMOJI, COMBINING, ODD, SPECIAL],
                "ranges": RANGES, "spaces": SPACES, "endings": ENDINGS}
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / "pieces.json").write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
