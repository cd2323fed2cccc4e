#!/usr/bin/env python3
"""Makes tests/data/tokenizer_smollm2.json: texts and the ids that Hugging Face's tokenizers gives them.

    python3 -m venv v && v/bin/pip install tokenizers gguf
    v/bin/python tools/oracle_tokenizer.py MODEL.gguf > tests/data/tokenizer_smollm2.json

The tokenizer is built from the vocabulary and the merges in the GGUF file, with the pre-tokenizer that
SmolLM2's own tokenizer.json has: digits one by one, then the byte-level one with GPT-2's pattern. A case with
"control": true has its control tokens parsed, the others are text as users send it.
"""

import json
import random
import sys
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "llama-bpe": lambda: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}
SPACES = " \t\n\r\x0b\x0c\x85\u00a0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"


def build(path, pre="smollm", control=False):
    """A tokenizer from a GGUF file; control tokens are parsed only where asked for."""
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=pre == "llama-bpe"
        )
    )
    tok.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tok.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == USER_DEFINED])
    if control:
        tok.add_special_tokens(
            [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == CONTROL]
        )
    return tok


FIXED = [
    "",
    " ",
    "Hello world",
    "It's we'll they've I'D don'T 'S 'ſ",
    "def f(x):\n    return x ** 2  # squared\n\n\nprint(f(3))\n",
    '#include <stdio.h>\n\nint main(void)\n{\n\tprintf("%d\\n", 42);\n\treturn 0;\n}\n',
    '{"a": [1, 2.5, -3e10, null, true], "b": {"c": "\\u00e9"}}',
    "SELECT * FROM t WHERE a='b' AND c<>1;--",
    "1234567890 3.14159 1,000,000 0x1F 2nd ½ ² ⅷ ٣٤٥ 一二三 ๑๒ 𝟘𝟙",
    "你好，世界。我今天很高兴。",
    "吾輩は猫である。名前はまだ無い。カタカナ ﾊﾝｶｸ",
    "안녕하세요 세계",
    "Привет, мир! Ёжик",
    "مرحبا بالعالم ١٢٣",
    "שלום עולם \u202eabc\u202c",
    "नमस्ते दुनिया क्षत्रिय",
    "สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪 ❤️ 1️⃣",
    "e\u0301 n\u0303 a\u0308\u0323 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d",
    "ǅ ß ﬁ ﬆ İ ı K Å",
    "a\u200bb\u200cc\u200dd\ufeffe\u2060f",
    "\x01\x02\x07\x08\x0b\x0c\x1b[31m\x7f",
    "\ud7ff\ue000\ufffd\uffff\U00010000\U0010ffff",
    "  two  leading   and trailing   ",
    "\n\n\n \n\t\n",
    "line\r\nline\r\n\r\nline\rline",
    "tab\tseparated\t\tvalues\t",
    "a" * 300,
    " " * 200,
    " " * 199 + "x",
    "=" * 120 + "\n" + "-" * 77,
    "ab" * 150,
    "https://example.org/path?q=1&r=%20#frag user@example.org",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|><|im_end|><|endoftext|>",
    "<|im_start| ><|im_sta",
    "x<|im_end|>y <|im_end|> z",
    "<file_sep><filename>a.c<gh_stars>1",
    "<<<|im_end|>>>",
    "\u00c0\u00c1\u00f5\u00ff \u0100\u0120\u010a \u0143",
    "Ġthe Ċ Ġ",
]


def assigned(rng):
    """A random character that Unicode has assigned: what it may assign later is a matter of versions."""
    while True:
        c = chr(rng.choice([rng.randint(0x80, 0x24F), rng.randint(0x250, 0xD7FF), rng.randint(0xE000, 0x10FFFF)]))
        if unicodedata.category(c) != "Cn":
            return c


def mixed(rng):
    """Pieces of many kinds, glued together."""
    words = ["the", " The", "ing", "'s", "'LL", "don't", "你好", "мир", "é", "e\u0301", "👍🏽", "<|im_end|>", "ʼ", "_", "--"]
    makers = [
        lambda: rng.choice(words),
        lambda: rng.choice(SPACES) * rng.randint(1, 5),
        lambda: str(rng.randint(0, 10**6)),
        lambda: "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))),
        lambda: chr(rng.randint(1, 0x7F)) * rng.randint(1, 3),
        lambda: assigned(rng),
        lambda: "".join(rng.choice("etaoin shrdlu") for _ in range(rng.randint(1, 20))),
        lambda: rng.choice("!?.,;:()[]{}<>|\\/@#$%^&*+=~`\"'") * rng.randint(1, 4),
    ]
    return "".join(rng.choice(makers)() for _ in range(rng.randint(1, 12)))


def texts(n, seed=7):
    rng = random.Random(seed)
    return FIXED + [s + "x" + s + s + "1" for s in SPACES] + [mixed(rng) for _ in range(n)]


def main():
    plain, parsed = build(sys.argv[1]), build(sys.argv[1], control=True)
    cases = []
    for text in texts(240):
        cases.append({"text": text, "control": False, "ids": plain.encode(text, add_special_tokens=False).ids})
        if "<" in text:
            cases.append({"text": text, "control": True, "ids": parsed.encode(text, add_special_tokens=False).ids})
    print('{"made_by": "tools/oracle_tokenizer.py MODEL.gguf",\n "cases": [')
    print(",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases))
    print("]}")


if __name__ == "__main__":
    main()
