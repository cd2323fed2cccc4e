#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/gguf: small right model files and hostile ones, one per fault that parsers of this
format have had. Run from the root; the output is the same each time."""

import os
import struct

FOLDER = "tests/fuzz/corpus/gguf"
U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10


def string(s):
    data = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    if kind == STRING:
        return string(v)
    return struct.pack({U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<B", U64: "<Q"}[kind], v)


def key(name, kind, v):
    return string(name) + struct.pack("<I", kind) + value(kind, v)


def array(name, kind, items, count=None):
    n = len(items) if count is None else count
    return string(name) + struct.pack("<IIQ", ARRAY, kind, n) + b"".join(value(kind, i) for i in items)


def tensor(name, dims, kind, offset, n_dims=None):
    n = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack("<I", n) + struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", kind, offset)


def file(keys=(), tensors=(), data=b"", version=3, n_keys=None, n_tensors=None, magic=b"GGUF"):
    head = magic + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                               len(keys) if n_keys is None else n_keys)
    head += b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + data


def vocabulary(tokens=("a", "b", "ab", "<|im_end|>"), types=(1, 1, 1, 3), merges=("a b",), pre="smollm", eos=3):
    return [
        key("tokenizer.ggml.model", STRING, "gpt2"),
        key("tokenizer.ggml.pre", STRING, pre),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, types),
        array("tokenizer.ggml.merges", STRING, merges),
        key("tokenizer.ggml.eos_token_id", U32, eos),
    ]


def shape(layers=1):
    return [
        key("general.architecture", STRING, "llama"),
        key("general.name", STRING, "seed"),
        key("llama.block_count", U32, layers),
        key("llama.context_length", U32, 16),
        key("llama.embedding_length", U32, 4),
        key("llama.feed_forward_length", U32, 4),
        key("llama.attention.head_count", U32, 2),
        key("llama.attention.head_count_kv", U32, 1),
        key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ]


def weights():
    dims = [("token_embd", (4, 4)), ("output_norm", (4,))]
    for name, d in [("attn_norm", (4,)), ("attn_q", (4, 4)), ("attn_k", (4, 2)), ("attn_v", (4, 2)),
                    ("attn_output", (4, 4)), ("ffn_norm", (4,)), ("ffn_gate", (4, 4)), ("ffn_up", (4, 4)),
                    ("ffn_down", (4, 4))]:
        dims.append(("blk.0." + name, d))
    return [tensor(n + ".weight", d, 0, 64 * i) for i, (n, d) in enumerate(dims)], b"\x3f" * (64 * len(dims))


def seeds():
    tensors, data = weights()
    nested = string("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", ARRAY, 1)
    one = tensor("t", (8,), 0, 0)
    yield "model", file(shape() + vocabulary(), tensors, data)
    yield "model-v2", file(shape() + vocabulary(), tensors, data, version=2)
    yield "vocabulary", file(vocabulary())
    yield "vocabulary-llama-bpe", file(vocabulary(pre="llama-bpe"))
    yield "empty", b""
    yield "header-only", file()
    yield "v1", file(version=1)
    yield "big-endian", file(version=3 << 24)
    yield "keys-2^63", file(n_keys=1 << 63)
    yield "tensors-2^63", file(n_tensors=1 << 63)
    yield "string-2^63", file([string("k") + struct.pack("<IQ", STRING, 1 << 63)])
    yield "key-length-2^64", file([struct.pack("<Q", (1 << 64) - 1) + b"k"])
    yield "array-wraps", file([array("k", U64, [0], count=(1 << 61) + 1)])
    yield "array-of-strings-short", file([array("k", STRING, ["a"], count=1000)])
    yield "array-nested", file([nested])
    yield "array-type-confused", file(vocabulary()[:2] + [array("tokenizer.ggml.tokens", I32, [1, 2, 3])])
    yield "types-as-strings", file(vocabulary()[:3] + [array("tokenizer.ggml.token_type", STRING, ["1"] * 4)])
    yield "type-unknown", file([string("k") + struct.pack("<I", 99)])
    yield "bool-2", file([key("k", BOOL, 2)])
    yield "key-twice", file([key("k", U32, 1)] * 2)
    yield "alignment-0", file([key("general.alignment", U32, 0)], [one], b"\0" * 32)
    yield "alignment-2^31", file([key("general.alignment", U32, 1 << 31)], [one], b"\0" * 32)
    yield "alignment-string", file([key("general.alignment", STRING, "32")], [one], b"\0" * 32)
    yield "dims-wrap", file([], [tensor("t", (1 << 32, 1 << 32), 0, 0)], b"\0" * 32)
    yield "bytes-wrap", file([], [tensor("t", (1 << 31, 1 << 31), 0, 0)], b"\0" * 32)
    yield "dims-0", file([], [tensor("t", (), 0, 0)], b"\0" * 32)
    yield "dims-many", file([], [tensor("t", (1,) * 9, 0, 0)], b"\0" * 32)
    yield "row-no-block", file([], [tensor("t", (16, 2), 8, 0)], b"\0" * 64)
    yield "offset-past-end", file([], [tensor("t", (8,), 0, 1 << 40)], b"\0" * 32)
    yield "offset-wraps", file([], [tensor("t", (8,), 0, (1 << 64) - 32)], b"\0" * 32)
    yield "tensor-twice", file([], [one, tensor("t", (8,), 0, 32)], b"\0" * 64)
    yield "tensors-overlap", file([], [tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], b"\0" * 64)
    yield "tensor-type-q4_k", file([], [tensor("t", (256,), 12, 0)], b"\0" * 256)
    yield "layers-2^32", file(shape(0xFFFFFFFF) + vocabulary(), tensors, data)
    yield "merge-missing-token", file(vocabulary(merges=("a c",)))
    yield "merge-no-space", file(vocabulary(merges=("ab", "")))
    yield "merge-to-control", file(vocabulary(types=(1, 1, 3, 3)))
    yield "token-type-0", file(vocabulary(types=(0, 1, 1, 3)))
    yield "token-byte-minus-1", file(vocabulary(tokens=("<0x-1>", "b", "<0x-1>b", "x"), types=(6, 1, 1, 3), merges=("<0x-1> b",)))
    yield "token-not-utf8", file(vocabulary(tokens=("a", "b", "ab", b"\xff\xfe")))
    yield "control-token-empty", file(vocabulary(tokens=("a", "b", "ab", "")))
    yield "eos-past-end", file(vocabulary(eos=4))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for name, content in seeds():
        with open(os.path.join(FOLDER, name), "wb") as f:
            f.write(content)


if __name__ == "__main__":
    main()
