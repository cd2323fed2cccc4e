#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/fuzz_tokenizer.c: python3 tests/fuzz/seeds_tokenizer.py tests/fuzz/corpus/tokenizer"""

import pathlib
import struct
import sys

GPT2, LLAMA, T5, BERT = range(4)
SCORES, MERGES, CHARSMAP, LYING, MERGES_SPACES, NO_PREFIX, EOS = (1 << i for i in range(7))
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(6)
SP = "\u2581"


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return bytes([len(b)]) + b


def seed(kind, how, tokens, text, scores=(), merges=(), charsmap=b"", count=None):
    out = bytes([kind, how, len(tokens)]) + b"".join(string(t) for t, _ in tokens) + bytes(k for _, k in tokens)
    if how & SCORES:
        out += (struct.pack("<Q", count) if how & LYING else b"") + bytes(scores)
    if how & MERGES:
        out += bytes([len(merges)]) + b"".join(string(m) for m in merges)
    if how & CHARSMAP:
        out += struct.pack("<H", len(charsmap)) + charsmap
    return out + text.encode()


def trie(*units, texts=b"x\0"):
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


BPE = [("a", NORMAL), ("b", NORMAL), ("ab", NORMAL), ("<x>", CONTROL), ("\u0120", NORMAL)]
SPM = [("<unk>", UNKNOWN), (SP, NORMAL), ("a", NORMAL), ("b", NORMAL), ("ab", NORMAL), ("<0x41>", BYTE), (SP + "a", NORMAL)]
WORDS = [("[UNK]", UNKNOWN), (SP + "he", NORMAL), ("llo", NORMAL), (SP + ",", NORMAL)]
SEEDS = {
    "bpe": seed(GPT2, MERGES, BPE, "abab <x> a", merges=["a b"]),
    "bpe_llama3": seed(GPT2 + 4, MERGES, BPE, "abab 1234 a\n\n", merges=["a b"]),
    "bpe_nfc": seed(GPT2 + 8, MERGES, BPE, "ae\u0301\u0323\u0301 b", merges=["a b"]),
    "bpe_missing_token": seed(GPT2, MERGES, BPE, "ab", merges=["a c"]),
    "bpe_merge_to_control": seed(GPT2, MERGES, [("<", NORMAL), ("x>", NORMAL), ("<x>", CONTROL)], "<x>", merges=["< x>"]),
    "spm": seed(LLAMA, SCORES, SPM, "ab aA \u4e2d", scores=[0, 9, 10, 11, 2, 0, 3]),
    "spm_merges": seed(LLAMA, MERGES, SPM, "ab a", merges=["a b", SP + " a"]),
    "spm_scores_lie": seed(LLAMA, SCORES | LYING, SPM, "ab", scores=[0] * 7, count=1 << 63),
    "spm_scores_short": seed(LLAMA, SCORES | LYING, SPM, "ab", scores=[0] * 7, count=3),
    "spm_score_nan": seed(LLAMA, SCORES, SPM, "ab", scores=[255] * 7),
    "spm_bad_byte": seed(LLAMA, SCORES, [("<0x-1>", BYTE)], "ab", scores=[0]),
    "unigram": seed(T5, SCORES | MERGES_SPACES | EOS, SPM, " ab  a x", scores=[0, 2, 3, 3, 7, 0, 4]),
    "unigram_map": seed(
        T5,
        SCORES | CHARSMAP,
        SPM,
        "a~b",
        scores=[0, 2, 3, 3, 7, 0, 4],
        charsmap=trie(*([0] * 0x7E + [(0x7E ^ 0x7F) << 10 | 1 << 8 | 0x7E, 1 << 31 | 0])),
    ),
    "unigram_map_past_end": seed(
        T5,
        SCORES | CHARSMAP,
        SPM,
        "a~b",
        scores=[0, 2, 3, 3, 7, 0, 4],
        charsmap=trie(*([0] * 0x7E + [(0x7E ^ 0x7F) << 10 | 1 << 8 | 0x7E, 0xFFFFFFFF])),
    ),
    "unigram_map_size": seed(T5, SCORES | CHARSMAP, SPM, "ab", scores=[0] * 7, charsmap=b"\xff\xff\xff\x7f" + b"x\0"),
    "wordpiece": seed(BERT, 0, WORDS, "Hello, h\u00e9 \u4e2d hex"),
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, data in SEEDS.items():
    (folder / name).write_bytes(data)
