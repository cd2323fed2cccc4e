#!/usr/bin/env python3
"""Makes tests/data/tokenizer_vocabs.json: for each vocabulary that tools/fetch_references.sh fetches, what the reference
makes of a corpus of nasty texts.

    python3 -m venv v && v/bin/pip install gguf tokenizers sentencepiece protobuf
    v/bin/python tools/oracle_vocabs.py FOLDER > tests/data/tokenizer_vocabs.json

The references are built from the vocabulary, the merges and the scores in the GGUF file: Hugging Face's tokenizers for
byte-level BPE (with the normalizer and the pre-tokenizers of the models' own tokenizer.json) and for WordPiece,
SentencePiece itself for its BPE and for Unigram's normalizer. Text is as users send it: no control token is parsed. Ids are stored as
FNV-1a over their 32-bit little-endian values, and whether decoding them gives the text again.
"""

import json
import pathlib
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from oracle_tokenizer import LLAMA3, texts

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{M}\p{N}]+[\r\n]*")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def o200k(endings, digits):
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{UPPER}*{LOWER}+{endings}|{start}{UPPER}+{LOWER}*{endings}|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


CASED = (
    r"A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}"
    r"\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}"
    r"\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-"
    r"\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}"
    r"\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{3b9}\x{1fc2}-\x{1fc4}"
    r"\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-"
    r"\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-"
    r"\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-"
    r"\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}"
    r"-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}"
    r"\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}"
    r"-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}"
)
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits(individual):
    return pre_tokenizers.Digits(individual_digits=individual)


GPT2 = lambda: [byte_level(True)]  # noqa: E731
DIGITS_GPT2 = lambda: [digits(True), byte_level(True)]  # noqa: E731


def regexes(*patterns):
    return lambda: [split(p) for p in patterns] + [byte_level(False)]


# name: pre-tokenizers, normal form C, whether a pre-token that is a token is merged at all
PRE = {
    "gpt-2": (GPT2, False, False),
    "phi-2": (GPT2, False, False),
    "jais": (GPT2, False, False),
    "mpt": (GPT2, True, False),
    "olmo": (GPT2, True, False),
    "gpt-neox": (GPT2, True, False),
    "smollm": (DIGITS_GPT2, False, False),
    "starcoder": (DIGITS_GPT2, False, False),
    "refact": (DIGITS_GPT2, False, False),
    "command-r": (DIGITS_GPT2, True, False),
    "llama-bpe": (regexes(LLAMA3), False, True),
    "dbrx": (regexes(LLAMA3), False, False),
    "qwen2": (regexes(QWEN2), True, False),
    "stablelm2": (regexes(QWEN2), True, False),
    "deepseek-r1-qwen": (regexes(QWEN2), True, False),
    "qwen35": (regexes(QWEN35), False, False),
    "gpt-4o": (regexes(o200k(ENDINGS, r"\p{N}{1,3}")), False, False),
    "tekken": (regexes(o200k("", r"\p{N}")), False, True),
    "deepseek-llm": (
        lambda: [
            split(r"[\r\n]"),
            split(rf"\s?[{CASED}]+"),
            split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            split(r"\s+$"),
            split(CJK),
            digits(True),
            byte_level(False),
        ],
        False,
        False,
    ),
    "deepseek-coder": (
        lambda: [
            split(r"[\r\n]"),
            split(r"\s?\p{L}+"),
            split(r"\s?\p{P}+"),
            split(CJK),
            digits(True),
            byte_level(False),
        ],
        False,
        False,
    ),
    "deepseek-v3": (regexes(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3), False, False),
    "falcon": (
        lambda: [
            pre_tokenizers.Punctuation("contiguous"),
            byte_level(True),
            digits(False),
            split("[0-9][0-9][0-9]"),
        ],
        False,
        False,
    ),
    "bloom": (regexes(r" ?[^(\s|.,!?…。，、।۔،)]+"), False, False),
}


class Vocabulary:
    """What a GGUF file says of its tokenizer."""

    def __init__(self, path):
        fields = GGUFReader(path).fields

        def get(key, default=None):
            field = fields.get("tokenizer.ggml." + key)
            return field.contents() if field is not None else default

        self.kind, self.pre = get("model"), get("pre")
        self.tokens, self.types = get("tokens"), get("token_type")
        self.merges, self.scores = get("merges", []), get("scores", [])
        self.charsmap = get("precompiled_charsmap")
        self.adds_space = get("add_space_prefix", True)
        self.merges_spaces = get("remove_extra_whitespaces", False)
        self.unknown = get("unknown_token_id")

    def of_type(self, kind):
        return [t for t, k in zip(self.tokens, self.types) if k == kind]


def byte_level_bpe(v):
    pre, nfc, whole_first = PRE[v.pre]
    merges = [tuple(m.split(" ")) for m in v.merges]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(v.tokens)}, merges, ignore_merges=whole_first))
    tok.pre_tokenizer = pre_tokenizers.Sequence(pre())
    tok.decoder = decoders.ByteLevel()
    if nfc:
        tok.normalizer = normalizers.NFC()
    tok.add_tokens([AddedToken(t, normalized=False) for t in v.of_type(USER_DEFINED)])
    return tok


def wordpiece(v):
    def spelled(i, t):
        if v.types[i] != NORMAL:
            return t
        return t[1:] if t.startswith("\u2581") else "##" + t

    vocab = {}
    for i, t in enumerate(v.tokens):
        vocab.setdefault(spelled(i, t), i)
    tok = Tokenizer(models.WordPiece(vocab, unk_token=v.tokens[v.unknown]))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece(cleanup=False)
    return tok


class SentencePiece:
    def __init__(self, v):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2 as pb

        unknown = v.unknown if v.unknown is not None else v.types.index(UNKNOWN)
        model = pb.ModelProto()
        model.trainer_spec.model_type = 1 if v.kind == "t5" else 2
        model.trainer_spec.byte_fallback = BYTE in v.types
        for i, (text, kind) in enumerate(zip(v.tokens, v.types)):
            if kind == USER_DEFINED and v.kind == "llama":
                text = text.replace(" ", "\u2581")
            if kind == UNKNOWN and i != unknown:
                kind = CONTROL  # Phi-3's placeholders; SentencePiece knows one unknown token
            model.pieces.add(piece=text, score=v.scores[i], type=kind)
        model.trainer_spec.unk_id, model.trainer_spec.unk_piece = unknown, v.tokens[unknown]
        spec = model.normalizer_spec
        spec.name = "user_defined"
        spec.add_dummy_prefix = v.adds_space
        spec.remove_extra_whitespaces = v.kind == "t5" and v.merges_spaces
        spec.escape_whitespaces = True
        if v.charsmap is not None:
            spec.precompiled_charsmap = bytes(b & 0xFF for b in v.charsmap)
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    def encode(self, text):
        return self.sp.encode(text)

    def decode(self, ids):
        return self.sp.decode(ids)


class Unigram(SentencePiece):
    """SentencePiece's normalizer, and Hugging Face's lattice, which adds up scores of one word in double precision;
    SentencePiece adds up those of the whole text in single precision, and rounding decides between equal ways."""

    def __init__(self, v):
        super().__init__(v)
        pieces = [(t if k == NORMAL else f"\0{i}", s) for i, (t, k, s) in enumerate(zip(v.tokens, v.types, v.scores))]
        self.tok = Tokenizer(models.Unigram(pieces, unk_id=v.unknown, byte_fallback=False))
        self.tok.pre_tokenizer = split("\u2581*[^\u2581]+|\u2581+")

    def encode(self, text):
        return self.tok.encode(self.sp.normalize(text), add_special_tokens=False).ids


class HuggingFace:
    def __init__(self, tok):
        self.tok = tok

    def encode(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tok.decode(ids, skip_special_tokens=False)


def reference(v):
    if v.kind == "gpt2":
        return HuggingFace(byte_level_bpe(v))
    if v.kind == "bert":
        return HuggingFace(wordpiece(v))
    return Unigram(v) if v.kind == "t5" else SentencePiece(v)


# Blocks that Unicode had filled by version 10, so that every table knows them alike.
RANGES = [
    (0x1, 0x17F), (0x300, 0x36F), (0x391, 0x3A1), (0x400, 0x52F), (0x5D0, 0x5EA), (0x621, 0x652), (0x660, 0x669),
    (0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE3A), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x2064),
    (0x20A0, 0x20BF), (0x2100, 0x218B), (0x2190, 0x23FE), (0x2500, 0x27BF), (0x2E80, 0x2E99), (0x3000, 0x303F),
    (0x3041, 0x3096), (0x30A0, 0x30FF), (0x3400, 0x4DB5), (0x4E00, 0x9FEA), (0xA000, 0xA48C), (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF), (0xF900, 0xFA6D), (0xFB00, 0xFB06), (0xFE00, 0xFE0F), (0xFF01, 0xFFBE), (0x10280, 0x1029C),
    (0x10400, 0x1049D), (0x1D400, 0x1D454), (0x1D7CE, 0x1D7FF), (0x1F300, 0x1F64F), (0x20000, 0x2A6D6),
    (0xE0020, 0xE007F), (0xF0000, 0xFFFFD),
]  # fmt: skip
MASK = (1 << 64) - 1


def random_text(seed, n_bytes):
    """As random_text in tests/unit/engine/text/test_tokenizer_vocabs.c: splitmix64, a range, a place in it."""
    state, out, size = seed, [], 0
    while size < n_bytes:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        first, last = RANGES[(z >> 32) % len(RANGES)]
        out.append(chr(first + (z & 0xFFFFFFFF) % (last - first + 1)))
        size += len(out[-1].encode())
    return "".join(out)


def hash_ids(ids):
    h = 0xCBF29CE484222325
    for b in b"".join(i.to_bytes(4, "little") for i in ids):
        h = ((h ^ b) * 0x100000001B3) & MASK
    return f"{h:016x}"


SEED, LONG_BYTES = 2026, 100000


def main():
    folder = pathlib.Path(sys.argv[1])
    corpus = texts(160)
    long_text = random_text(SEED, LONG_BYTES)
    vocabs = []
    for path in sorted(folder.glob("ggml-vocab-*.gguf")):
        v = Vocabulary(path)
        if v.kind not in ("gpt2", "llama", "t5", "bert") or (v.kind == "gpt2" and v.pre not in PRE):
            print(f"{path.name}: no reference for {v.kind}, {v.pre}", file=sys.stderr)
            continue
        ref = reference(v)
        ids = [ref.encode(t) for t in corpus]
        vocabs.append(
            {
                "file": path.name,
                "vectors": path.with_name(path.name + ".inp").exists(),
                "hashes": [hash_ids(i) for i in ids],
                "decodes": "".join("01"[ref.decode(i) == t] for i, t in zip(ids, corpus)),
                "long": hash_ids(ref.encode(long_text)),
            }
        )
        print(path.name, v.kind, v.pre, file=sys.stderr)
    data = {"made_by": "tools/oracle_vocabs.py FOLDER", "seed": SEED, "long_bytes": LONG_BYTES, "texts": corpus}
    print(json.dumps(data | {"vocabs": vocabs}, separators=(",", ":")).replace('{"file"', '\n{"file"'))


if __name__ == "__main__":
    main()
