"""A test model as a Hugging Face folder has it: config.json, safetensors in one or several shards, tokenizer files."""

import json
import pathlib
import struct

import numpy as np

from models import vocabulary
from models.weights import encode

NORM_NAMES = {
    "pre": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "post": {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
    "both": {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
             "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
}
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
FUSED_NAMES = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}
TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def config(m):
    c = {
        "architectures": [m.hf_class],
        "model_type": m.hf_type,
        "vocab_size": m.vocab,
        "hidden_size": m.width,
        "intermediate_size": m.ff,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "max_position_embeddings": m.context,
        "rms_norm_eps": m.eps,
        "rope_theta": m.rope_base,
        "rope_scaling": m.rope_scaling,
        "tie_word_embeddings": m.tied,
        "attention_dropout": 0.0,
        "bos_token_id": vocabulary.BOS,
        "eos_token_id": vocabulary.EOS,
        "pad_token_id": vocabulary.PAD,
        "torch_dtype": DTYPES[m.type],
        "use_cache": True,
        ("hidden_activation" if m.norm_offset else "hidden_act"): activation(m),
    }
    return {**c, **family_config(m), **m.hf_keys}


def activation(m):
    return "gelu_pytorch_tanh" if m.activation == "gelu_tanh" else m.activation


def family_config(m):
    """What only one architecture's config.json says."""
    if m.arch == "gemma2":
        return {"head_dim": m.head_dim, "query_pre_attn_scalar": round(m.attn_scale**-2),
                "attn_logit_softcapping": m.attn_cap, "final_logit_softcapping": m.final_cap,
                "sliding_window": m.window, "attention_bias": False}
    if m.arch == "gemma3":
        return {"head_dim": m.head_dim, "query_pre_attn_scalar": round(m.attn_scale**-2), "attention_bias": False,
                "attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": m.window,
                "rope_local_base_freq": m.rope_base_local, **gemma3_pattern(m)}
    if m.arch == "phi3":
        return {"original_max_position_embeddings": m.original_context, "partial_rotary_factor": m.rotary,
                "sliding_window": m.window or None, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_bias": False}
    if m.arch == "granite":
        return {"embedding_multiplier": m.embed_scale, "residual_multiplier": m.residual_scale,
                "attention_multiplier": m.attn_scale, "logits_scaling": m.logit_scale, "attention_bias": False,
                "mlp_bias": False}
    if m.arch == "qwen3":
        return {"head_dim": m.head_dim, "attention_bias": False}
    if m.hf_type == "mistral":
        return {"sliding_window": m.window, "head_dim": m.head_dim}
    return {"attention_bias": False} if m.arch in ("llama", "olmo2") else {}


def gemma3_pattern(m):
    """Files name a regular pattern by its period, an irregular one layer by layer."""
    if m.windowed == tuple((i + 1) % 6 != 0 for i in range(m.layers)):
        return {"sliding_window_pattern": 6}
    return {"layer_types": ["sliding_attention" if w else "full_attention" for w in m.windowed]}


def tensors(m, weights):
    """weights.make's result by Hugging Face's names."""
    out = {hf_name(m, name): stored(m, name, t) for name, t in weights.items()}
    if m.fused:
        for i in range(m.layers):
            for fused, parts in FUSED_NAMES.items():
                fuse(out, f"model.layers.{i}.{fused}.weight", parts)
    return out


def hf_name(m, name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, i, part, kind = name.split(".")
    part = {**LAYER_NAMES, **NORM_NAMES[m.norms]}[part]
    return f"model.layers.{i}.{part}.{kind}"


def stored(m, name, t):
    """Norms and biases are in the model's type too, Gemma's norms less the 1 that its code adds."""
    values = t.values - np.float32(m.norm_offset) if name.endswith("norm.weight") else t.values
    return encode(values, m.type)


def fuse(out, fused, parts):
    folder = fused.rsplit(".", 2)[0]
    names = [f"{folder}.{p}.weight" for p in parts]
    kind = out[names[0]].type
    out[fused] = encode(np.concatenate([out.pop(n).values for n in names]), kind)


def write_safetensors(path, named):
    """Length of the header, header as JSON padded with spaces to 8 bytes, tensors back to back."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in named.items():
        header[name] = {"dtype": t.type, "shape": t.shape, "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for t in named.values():
            f.write(t.data)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write(folder, m, weights):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    named = tensors(m, weights)
    if m.shards == 1:
        write_safetensors(folder / "model.safetensors", named)
    else:
        write_shards(folder, m.shards, named)
    write_json(folder / "config.json", config(m))
    for name, value in vocabulary.hf_files().items():
        write_json(folder / name, value)


def write_shards(folder, n, named):
    """Contiguous runs of about the same number of tensors, and the index that says where each is."""
    names, where = list(named), {}
    for i in range(n):
        shard = f"model-{i + 1:05}-of-{n:05}.safetensors"
        mine = names[i * len(names) // n : (i + 1) * len(names) // n]
        write_safetensors(folder / shard, {k: named[k] for k in mine})
        where.update(dict.fromkeys(mine, shard))
    total = sum(len(t.data) for t in named.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
