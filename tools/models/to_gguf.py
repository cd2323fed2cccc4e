"""A test model as a GGUF file has it: metadata and tensors by the conventions of llama.cpp's converters."""

import math

import numpy as np

from models import vocabulary
from models.weights import Tensor, encode

# Architectures whose files rely on the reader's default base of 10000, and windows without a pattern.
NO_FREQ_BASE = ("gemma2",)
# Every p-th layer is global where a file says nothing.
DEFAULT_PATTERN = {"gemma2": 2, "gemma3": 6}
FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
              "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}


def metadata(m):
    """(key, kind, value) each."""
    shape = [
        ("context_length", "u32", m.context),
        ("embedding_length", "u32", m.width),
        ("block_count", "u32", m.layers),
        ("feed_forward_length", "u32", m.ff),
        ("attention.head_count", "u32", m.heads),
        ("attention.head_count_kv", "u32", m.kv_heads),
        ("attention.layer_norm_rms_epsilon", "f32", m.eps),
        ("vocab_size", "u32", m.vocab),
    ]
    if m.head_dim * m.heads != m.width or m.norm_offset:
        shape += [("attention.key_length", "u32", m.head_dim), ("attention.value_length", "u32", m.head_dim)]
    general = [
        ("general.architecture", "str", m.arch),
        ("general.name", "str", m.name),
        ("general.file_type", "u32", FILE_TYPES[m.type]),
        ("general.quantization_version", "u32", 2),
    ]
    own = shape + rope_keys(m) + window_keys(m) + scale_keys(m)
    return general + [(f"{m.arch}.{k}", kind, v) for k, kind, v in own] + vocabulary.gguf_metadata()


def rope_keys(m):
    keys = []
    if m.permuted or m.fused:
        keys.append(("rope.dimension_count", "u32", m.rope_dims))
    if m.arch not in NO_FREQ_BASE:
        keys.append(("rope.freq_base", "f32", m.rope_base))
    if m.rope_base_local not in (0.0, 10000.0):
        keys.append(("rope.freq_base_swa", "f32", m.rope_base_local))
    kind = rope_type(m)
    if kind in ("linear", "yarn"):
        keys += [("rope.scaling.type", "str", kind), ("rope.scaling.factor", "f32", m.rope_scaling["factor"])]
    if kind == "yarn":
        keys += [("rope.scaling.yarn_beta_fast", "f32", m.rope_scaling["beta_fast"]),
                 ("rope.scaling.yarn_beta_slow", "f32", m.rope_scaling["beta_slow"])]
    if kind == "longrope":
        keys.append(("rope.scaling.attn_factor", "f32", longrope_magnitude(m)))
    if m.original_context:
        keys.append(("rope.scaling.original_context_length", "u32", m.original_context))
    return keys


def rope_type(m):
    scaling = m.rope_scaling or {}
    return scaling.get("rope_type", scaling.get("type", "default"))


def longrope_magnitude(m):
    """Of cosine and sine (Ding et al. 2024): sqrt(1 + ln(context / original) / ln(original))."""
    return math.sqrt(1 + math.log(m.context / m.original_context) / math.log(m.original_context))


def window_keys(m):
    if not m.window:
        return [("attention.sliding_window", "u32", 0)] if m.arch == "phi3" else []
    keys = [("attention.sliding_window", "u32", m.window)]
    p = DEFAULT_PATTERN.get(m.arch, 0)
    usual = tuple(not p or (i + 1) % p != 0 for i in range(m.layers))
    if m.windowed != usual:
        keys.append(("attention.sliding_window_pattern", "[bool]", m.windowed))
    return keys


def scale_keys(m):
    keys = []
    if m.arch == "granite":
        keys += [("embedding_scale", "f32", m.embed_scale), ("residual_scale", "f32", m.residual_scale),
                 ("logit_scale", "f32", m.logit_scale)]
    if m.attn_scale and abs(m.attn_scale - m.head_dim**-0.5) > 1e-6:
        keys.append(("attention.scale", "f32", m.attn_scale))
    if m.attn_cap:
        keys.append(("attn_logit_softcapping", "f32", m.attn_cap))
    if m.final_cap:
        keys.append(("final_logit_softcapping", "f32", m.final_cap))
    return keys


def tensors(m, weights):
    """weights.make's result in GGUF's row order, fused where the architecture fuses."""
    out = {}
    for name, t in weights.items():
        if m.permuted and name.endswith(("attn_q.weight", "attn_k.weight")) and t.values is not None:
            t = encode(adjacent_pairs(t.values, m.head_dim), t.type)
        out[name] = t
    if m.fused:
        out = fuse(m, out)
    for name, factors in rope_factors(m).items():
        out[name] = encode(np.array(factors), "F32")
    return out


def adjacent_pairs(rows, head_dim):
    """Rows (i, i + d/2) of each head become (2i, 2i + 1)."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def fuse(m, tensors_by_name):
    out = dict(tensors_by_name)
    for i in range(m.layers):
        at = f"blk.{i}."
        out[at + "attn_qkv.weight"] = stack(out, [at + "attn_q.weight", at + "attn_k.weight", at + "attn_v.weight"])
        out[at + "ffn_up.weight"] = stack(out, [at + "ffn_gate.weight", at + "ffn_up.weight"])
    return out


def stack(out, names):
    """One tensor of the rows of several, which are taken out."""
    values = np.concatenate([out[n].values for n in names])
    kind = out[names[0]].type
    for n in names:
        del out[n]
    return encode(values, kind)


def rope_factors(m):
    """Divisors of the frequencies, by tensor name."""
    kind = rope_type(m)
    if kind == "longrope":
        return {"rope_factors_long.weight": m.rope_scaling["long_factor"],
                "rope_factors_short.weight": m.rope_scaling["short_factor"]}
    return {"rope_freqs.weight": llama3_factors(m)} if kind == "llama3" else {}


def llama3_factors(m):
    """Llama 3.1's rule: wavelengths above original / low are stretched by factor, below original / high kept, and those
    between by the interpolated speed."""
    s = m.rope_scaling
    original = s["original_max_position_embeddings"]
    factors = []
    for i in range(m.rope_dims // 2):
        wavelength = 2 * math.pi * m.rope_base ** (2 * i / m.rope_dims)
        smooth = (original / wavelength - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return factors
