#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/{safetensors,hf_config,tokenizer_json}: small right files and hostile ones, one per
fault that parsers of these formats have had. Run from the root; the output is the same each time."""

import json
import os
import struct

CORPUS = "tests/fuzz/corpus"
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 48, "vocab_size": 288, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}


def write(kind, name, data):
    folder = os.path.join(CORPUS, kind)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def shard(header, data=b"", length=None, pad=True):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def row(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def safetensors():
    four = b"\0" * 4
    cases = {
        "right": shard({"__metadata__": {"format": "pt"}, "a.weight": row("BF16", (2, 3), (4, 16)), "b": row()},
                       b"\0" * 16),
        "empty": shard({}),
        "no-header": b"",
        "header-length-2^63": shard({"a": row()}, four, length=1 << 63),
        "header-length-2^64": shard({"a": row()}, four, length=(1 << 64) - 1),
        "header-100MB": shard({"a": row()}, four, length=100_000_001),
        "dtype-i64": shard({"a": row("I64", (1,), (0, 8))}, b"\0" * 8),
        "dims-wrap": shard({"a": row(shape=(1 << 32, 1 << 32))}, four),
        "bytes-wrap": shard({"a": row(shape=(1 << 62,), offsets=(0, 0))}),
        "dim-0": shard({"a": row(shape=(0,), offsets=(0, 0))}),
        "dim-2^64": shard(b'{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}', four),
        "dims-many": shard({"a": row(shape=[1] * 100)}, four),
        "dim-exponent": shard(b'{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}', four),
        "offset-past-end": shard({"a": row(offsets=(1 << 63, (1 << 63) + 4))}, four),
        "offset-backwards": shard({"a": row(offsets=(4, 0))}, four),
        "overlap": shard({"a": row(), "b": row()}, four),
        "gap": shard({"a": row(), "b": row(offsets=(8, 12))}, b"\0" * 12),
        "tail": shard({"a": row()}, b"\0" * 8),
        "twice": shard(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                       b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"\0" * 8),
        "misaligned": shard({"a": row("F16", (1,), (0, 2)), "b": row(offsets=(2, 6))}, b"\0" * 6),
        "unpadded": shard({"a": row()}, four, pad=False),
        "deep": shard(b'{"a":' + b"[" * 500),
        "escaped-name": shard(b'{"\\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', four),
        "bad-utf8": shard(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', four),
    }
    for name, data in cases.items():
        write("safetensors", name, data)


def config(cls, **more):
    return json.dumps({"architectures": [cls], **SIZES, **more})


def configs():
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 32}
    longrope = {"type": "longrope", "long_factor": [3, 4, 5, 6], "short_factor": [1, 1.5, 2, 2.5]}
    nested = {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    cases = {
        "llama": config("LlamaForCausalLM", rope_scaling=llama3, rope_theta=5e5),
        "mistral": config("MistralForCausalLM", sliding_window=16),
        "qwen2": config("Qwen2ForCausalLM", sliding_window=16, use_sliding_window=True, max_window_layers=1),
        "gemma2": config("Gemma2ForCausalLM", attn_logit_softcapping=None),
        "gemma3": config("Gemma3ForCausalLM", rope_parameters=nested, sliding_window=16, query_pre_attn_scalar=16,
                         head_dim=8, layer_types=["full_attention", "sliding_attention"]),
        "gemma3-nested": json.dumps({"architectures": ["Gemma3ForConditionalGeneration"],
                                     "text_config": {"hidden_size": 32, "num_hidden_layers": 2}}),
        "phi3": config("Phi3ForCausalLM", rope_scaling=longrope, original_max_position_embeddings=16),
        "granite": config("GraniteForCausalLM", attention_multiplier=0.1, logits_scaling=8),
        "yarn": config("Olmo2ForCausalLM", rope_scaling={"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                                                         "mscale_all_dim": 0.7}),
        "dynamic": config("LlamaForCausalLM", rope_scaling={"type": "dynamic", "factor": 2}),
        "layers-4096": config("MistralForCausalLM", sliding_window=16).replace('layers": 2', 'layers": 4096'),
        "layers-2^64": config("LlamaForCausalLM").replace('layers": 2', 'layers": 18446744073709551616'),
        "heads-0": config("LlamaForCausalLM").replace('heads": 4', 'heads": 0'),
        "eps-nan": config("LlamaForCausalLM").replace("1e-05", "1e999"),
        "original-0": config("Phi3ForCausalLM", rope_scaling=longrope, original_max_position_embeddings=0),
        "head-huge": config("LlamaForCausalLM", head_dim=8192, rope_scaling=llama3),
        "period-0": config("Gemma3ForCausalLM", sliding_window=4, sliding_window_pattern=0),
        "deep": '{"architectures":' + "[" * 500,
        "twice": '{"architectures":["LlamaForCausalLM"],"architectures":["Qwen2ForCausalLM"]}',
    }
    for name, data in cases.items():
        write("hf_config", name, data)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
SPACE = "\u2581"


def tokenizer(model, pre=BYTES, normalizer=None, post=None, added=()):
    return json.dumps({"added_tokens": list(added), "normalizer": normalizer, "pre_tokenizer": pre,
                       "post_processor": post, "model": model}, ensure_ascii=False)


def bpe(**more):
    return {"type": "BPE", "vocab": {"h": 0, "e": 1, "he": 2}, "merges": ["h e"], **more}


def tokenizers():
    fallback = {"<unk>": 0, **{"<0x%02X>" % i: i + 1 for i in range(256)}, SPACE: 257, "h": 258, SPACE + "h": 259}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "h", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"h": {"id": "h", "ids": [0], "tokens": ["h"]}}}
    end = {"id": 5, "content": "<|im_end|>", "special": True}
    cases = {
        "bytes": tokenizer(bpe(), added=[end]),
        "bytes-template": tokenizer(bpe(), post=template),
        "bytes-config": tokenizer(bpe(), added=[end]) + '\0{"eos_token":"<|im_end|>","chat_template":"{{ 1 }}"}',
        "templates-named": tokenizer(bpe()) + '\0{"chat_template":[{"name":"default","template":"x"},'
                                              '{"name":"tool_use","template":"y"}]}',
        "merges-pairs": tokenizer(bpe(merges=[["h", "e"]])),
        "spaces": tokenizer({"type": "BPE", "vocab": fallback, "merges": [SPACE + " h"], "byte_fallback": True,
                             "unk_token": "<unk>"}, pre=None, normalizer=spaces),
        "unigram": tokenizer({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], [SPACE + "h", -1.5]]},
                             pre=metaspace, normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}),
        "word-piece": tokenizer({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                                 "vocab": {"[UNK]": 0, "h": 1, "##e": 2}}, pre={"type": "BertPreTokenizer"},
                                normalizer={"type": "BertNormalizer"}),
        "merge-missing-token": tokenizer(bpe(merges=["h zz"])),
        "merge-to-control": tokenizer(bpe(merges=["h e"]), added=[{"id": 2, "content": "he", "special": True}]),
        "merge-no-space": tokenizer(bpe(merges=["he"])),
        "id-twice": tokenizer(bpe()).replace('"e": 1', '"e": 0'),
        "text-twice": tokenizer(bpe()).replace('"e": 1', '"\\u0068": 1'),
        "id-past-end": tokenizer(bpe()).replace('"e": 1', '"e": 600'),
        "id-2^64": tokenizer(bpe()).replace('"e": 1', '"e": 18446744073709551616'),
        "added-past-end": tokenizer(bpe(), added=[{"id": 600, "content": "x", "special": True}]),
        "half-surrogate": tokenizer(bpe()).replace('"e": 1', '"\\ud83d": 1'),
        "nul": tokenizer(bpe()).replace('"e": 1', '"\\u0000": 1'),
        "score-huge": tokenizer({"type": "Unigram", "vocab": [["h", 1]]}, pre=metaspace).replace(", 1]", ", 1e999]"),
        "vocab-deep": '{"model":{"type":"BPE","vocab":' + "[" * 500,
        "sequence-deep": '{"model":{"merges":[]},"normalizer":'
                         + '{"type":"Sequence","normalizers":[' * 40 + "]}" * 40 + "}",
        "empty": "{}",
    }
    for name, data in cases.items():
        write("tokenizer_json", name, data)


safetensors()
configs()
tokenizers()
