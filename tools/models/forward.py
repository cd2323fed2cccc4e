"""What a test model computes, in float64 from its GGUF metadata and tensors, and wrong variants of it (mutants) that
show what each part of the structure changes. The references themselves come from another implementation.

From the definitions: RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021) with linear scaling (Chen et al. 2023),
YaRN (Peng et al. 2023), Llama 3.1's and LongRoPE's (Ding et al. 2024) factors, grouped-query attention (Ainslie et al.
2023), GLU variants (Shazeer 2020), Gemma 2's caps and alternating windows (2024)."""

import math
from dataclasses import dataclass, replace

import numpy as np

from models.to_gguf import DEFAULT_PATTERN

ADJACENT = ("llama", "granite")  # rotate pairs (2i, 2i + 1); the others (i, i + d/2)
OFFSET_NORMS = ("gemma2", "gemma3")


@dataclass(frozen=True)
class Structure:
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_dims: int
    rope_base: float
    rope_base_windowed: float
    rope_scaling: str  # "none", "linear" or "yarn"
    rope_factor: float
    original_context: int
    beta_fast: float
    beta_slow: float
    rope_divisors: str  # name of the tensor; "": none
    rope_magnitude: float  # of cosine and sine
    adjacent: bool
    windows: tuple  # per layer; 0: none
    norms: str  # "pre", "post", "both"; mutants: "both-late" norms after the residual is added
    activation: str
    qk_norm: str
    bias: bool
    attn_scale: float
    embed_scale: float
    residual_scale: float
    logit_scale: float
    attn_cap: float
    final_cap: float
    norm_shift: float = 0.0
    query_shift: int = 0
    gate_is_up: bool = False


def structure(metadata, tensors, context):
    """context: the configured one, which chooses LongRoPE's divisors."""
    meta = {k: v for k, _, v in metadata}
    arch = meta["general.architecture"]
    get = lambda key, default=None: meta.get(f"{arch}.{key}", default)
    width, heads = get("embedding_length"), get("attention.head_count")
    head_dim = get("attention.key_length", width // heads)
    gemma = arch in OFFSET_NORMS
    scaling, original = get("rope.scaling.type", "none"), get("rope.scaling.original_context_length", 0)
    factor = get("rope.scaling.factor", 1.0)
    base = get("rope.freq_base", 10000.0)
    q_norm = tensors.get("blk.0.attn_q_norm.weight")
    return Structure(
        layers=get("block_count"), heads=heads, kv_heads=get("attention.head_count_kv"), head_dim=head_dim,
        eps=get("attention.layer_norm_rms_epsilon"), rope_dims=get("rope.dimension_count", head_dim), rope_base=base,
        rope_base_windowed=get("rope.freq_base_swa", 10000.0 if arch == "gemma3" else base), rope_scaling=scaling,
        rope_factor=factor, original_context=original, beta_fast=get("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=get("rope.scaling.yarn_beta_slow", 1.0), rope_divisors=divisors(tensors, original, context),
        rope_magnitude=0.1 * math.log(factor) + 1 if scaling == "yarn" else get("rope.scaling.attn_factor", 1.0),
        adjacent=arch in ADJACENT, windows=windows(arch, get),
        norms="both" if gemma else "post" if arch == "olmo2" else "pre",
        activation="gelu_tanh" if gemma else "silu",
        qk_norm="" if q_norm is None else "head" if q_norm.shape == (head_dim,) else "full",
        bias="blk.0.attn_q.bias" in tensors, attn_scale=get("attention.scale", head_dim**-0.5),
        embed_scale=math.sqrt(width) if gemma else get("embedding_scale", 1.0),
        residual_scale=get("residual_scale", 1.0), logit_scale=get("logit_scale", 1.0),
        attn_cap=get("attn_logit_softcapping", 0.0), final_cap=get("final_logit_softcapping", 0.0),
    )


def divisors(tensors, original, context):
    if "rope_freqs.weight" in tensors:
        return "rope_freqs.weight"
    if "rope_factors_long.weight" in tensors:
        return f"rope_factors_{'long' if context > original else 'short'}.weight"
    return ""


def windows(arch, get):
    n, p = get("block_count"), DEFAULT_PATTERN.get(arch, 0)
    pattern = get("attention.sliding_window_pattern", [not p or (i + 1) % p != 0 for i in range(n)])
    return tuple(get("attention.sliding_window", 0) if windowed else 0 for windowed in pattern)


def unfused(tensors, s):
    """Float64 weights by name, with fused matrices taken apart."""
    w = {k: t.values.astype(np.float64) for k, t in tensors.items()}
    for i in range(s.layers):
        at = f"blk.{i}."
        if at + "attn_qkv.weight" in w:
            q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
            parts = np.split(w.pop(at + "attn_qkv.weight"), [q, q + kv])
            w.update(zip((at + "attn_q.weight", at + "attn_k.weight", at + "attn_v.weight"), parts))
            w[at + "ffn_gate.weight"], w[at + "ffn_up.weight"] = np.split(w[at + "ffn_up.weight"], 2)
    return w


def rope_frequencies(s, w, windowed):
    """(rope_dims / 2), radians per position."""
    i = np.arange(s.rope_dims // 2)
    freq = (s.rope_base_windowed if windowed else s.rope_base) ** (-2.0 * i / s.rope_dims)
    if s.rope_divisors:
        return freq / w[s.rope_divisors][: len(i)]
    if windowed and s.rope_base_windowed != s.rope_base:
        return freq  # Gemma 3's local layers are not scaled
    if s.rope_scaling == "linear":
        return freq / s.rope_factor
    if s.rope_scaling == "yarn":
        kept = 1 - yarn_ramp(s, i)
        return freq * (kept + (1 - kept) / s.rope_factor)
    return freq


def yarn_ramp(s, i):
    """0 where a pair turns more than beta_fast times in the original context, 1 below beta_slow times."""
    pair = lambda turns: (s.rope_dims * math.log(s.original_context / (turns * 2 * math.pi))
                          / (2 * math.log(s.rope_base)))
    low = max(math.floor(pair(s.beta_fast)), 0)
    high = min(math.ceil(pair(s.beta_slow)), s.rope_dims - 1)
    return np.clip((i - low) / max(high - low, 0.001), 0, 1)


def rotate(s, x, freq, shift):
    """x: (n, heads, head_dim); row t is at position t + shift."""
    angle = (np.arange(len(x)) + shift)[:, None, None] * freq
    cos, sin = np.cos(angle) * s.rope_magnitude, np.sin(angle) * s.rope_magnitude
    out, d = x.copy(), s.rope_dims
    first, second = (slice(0, d, 2), slice(1, d, 2)) if s.adjacent else (slice(0, d // 2), slice(d // 2, d))
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def activate(s, x):
    if s.activation == "silu":
        return x / (1 + np.exp(-x))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def norm(s, w, x, name):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + s.eps) * (w[name] + s.norm_shift)


def linear(x, matrix):
    return x @ matrix.T


def attention(s, w, x, i):
    """x: (n, width), the block's (normed) input."""
    n, at, window = len(x), f"blk.{i}.", s.windows[i]
    project = lambda part: linear(x, w[f"{at}{part}.weight"]) + (w[f"{at}{part}.bias"] if s.bias else 0)
    q, k, v = project("attn_q"), project("attn_k"), project("attn_v")
    if s.qk_norm == "full":
        q, k = norm(s, w, q, at + "attn_q_norm.weight"), norm(s, w, k, at + "attn_k_norm.weight")
    q, k, v = (y.reshape(n, -1, s.head_dim) for y in (q, k, v))
    if s.qk_norm == "head":
        q, k = norm(s, w, q, at + "attn_q_norm.weight"), norm(s, w, k, at + "attn_k_norm.weight")
    freq = rope_frequencies(s, w, window > 0)
    q, k = rotate(s, q, freq, s.query_shift), rotate(s, k, freq, 0)
    k, v = (np.repeat(y, s.heads // s.kv_heads, axis=1) for y in (k, v))
    q, k, v = (y.swapaxes(0, 1) for y in (q, k, v))  # (heads, n, head_dim)
    scores = q @ k.swapaxes(1, 2) * s.attn_scale
    if s.attn_cap:
        scores = np.tanh(scores / s.attn_cap) * s.attn_cap
    distance = np.arange(n)[:, None] - np.arange(n)
    hidden = (distance < 0) | (distance >= window if window else False)
    out = softmax(np.where(hidden, -np.inf, scores)) @ v
    return linear(out.swapaxes(0, 1).reshape(n, -1), w[at + "attn_output.weight"])


def mlp(s, w, x, i):
    at = f"blk.{i}."
    gate, up = linear(x, w[at + "ffn_gate.weight"]), linear(x, w[at + "ffn_up.weight"])
    if s.gate_is_up:
        gate, up = up, gate
    return linear(activate(s, gate) * up, w[at + "ffn_down.weight"])


def block(s, w, x, i, function, before, after):
    """One residual branch. before and after name norms; the one that the file lacks is the other's mutant."""
    before, after = f"blk.{i}.{before}.weight", f"blk.{i}.{after}.weight"
    if s.norms == "pre":
        return x + s.residual_scale * function(s, w, norm(s, w, x, before if before in w else after), i)
    if s.norms == "post":
        return x + s.residual_scale * norm(s, w, function(s, w, x, i), after if after in w else before)
    y = function(s, w, norm(s, w, x, before), i)
    return norm(s, w, x + y, after) if s.norms == "both-late" else x + norm(s, w, y, after)


def logprobs(s, w, ids):
    """(len(ids), vocabulary) natural logarithms after each position. w: of unfused()."""
    x = w["token_embd.weight"][ids] * s.embed_scale
    for i in range(s.layers):
        x = block(s, w, x, i, attention, "attn_norm", "post_attention_norm")
        x = block(s, w, x, i, mlp, "ffn_norm", "post_ffw_norm")
    x = norm(s, w, x, "output_norm.weight")
    logits = linear(x, w.get("output.weight", w["token_embd.weight"])) / s.logit_scale
    if s.final_cap:
        logits = np.tanh(logits / s.final_cap) * s.final_cap
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def mutants(s, tensors):
    """Name to a structure that is wrong in one thing; only those that say something else than s."""
    plain = s.head_dim**-0.5
    wrong = {
        "rope_base_doubled": replace(s, rope_base=2 * s.rope_base, rope_base_windowed=2 * s.rope_base_windowed),
        "rope_base_windowed_as_global": replace(s, rope_base_windowed=s.rope_base),
        "rope_pairs_swapped": replace(s, adjacent=not s.adjacent),
        "rope_whole_head": replace(s, rope_dims=s.head_dim, rope_divisors=""),
        "rope_scaling_off": replace(s, rope_scaling="none", rope_divisors="", rope_magnitude=1.0),
        "rope_magnitude_off": replace(s, rope_magnitude=1.0),
        "query_position_off_by_one": replace(s, query_shift=1),
        "window_off": replace(s, windows=(0,) * s.layers),
        "window_plus_one": replace(s, windows=tuple(w and w + 1 for w in s.windows)),
        "activation_swapped": replace(s, activation="silu" if s.activation != "silu" else "gelu_tanh"),
        "gate_and_up_swapped": replace(s, gate_is_up=True),
        "qk_norm_off": replace(s, qk_norm=""),
        "bias_off": replace(s, bias=False),
        "norm_place": replace(s, norms={"pre": "post", "post": "pre", "both": "both-late"}[s.norms]),
        "attn_cap_off": replace(s, attn_cap=0.0),
        "final_cap_off": replace(s, final_cap=0.0),
        "attn_scale_off": replace(s, attn_scale=plain),
        "embed_scale_off": replace(s, embed_scale=1.0),
        "residual_scale_off": replace(s, residual_scale=1.0),
        "logit_scale_off": replace(s, logit_scale=1.0),
    }
    if any(s.windows) and not all(s.windows):
        window = max(s.windows)
        wrong["window_pattern_inverted"] = replace(s, windows=tuple(0 if w else window for w in s.windows))
    if s.norms == "both":
        wrong["norm_offset_off"] = replace(s, norm_shift=-1.0)
    if "long" in s.rope_divisors or "short" in s.rope_divisors:
        other = "short" if "long" in s.rope_divisors else "long"
        wrong["rope_divisors_swapped"] = replace(s, rope_divisors=f"rope_factors_{other}.weight")
    return {name: m for name, m in wrong.items() if m != s}
