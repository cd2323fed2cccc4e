"""The weights of a test model, by their GGUF names, rows in Hugging Face's order and norms with any offset added."""

import math
from dataclasses import dataclass

import numpy as np

from models import bits, quantized
from models.table import GAINS


@dataclass(frozen=True)
class Tensor:
    type: str
    shape: tuple  # rows first
    data: bytes
    values: np.ndarray = None  # float32, what data stands for; None for quantized types


def encode(values, type_name):
    """The nearest values of a float type."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if type_name == "F16":
        half = values.astype("<f2")
        return Tensor("F16", values.shape, half.tobytes(), half.astype(np.float32))
    if type_name == "BF16":
        word = values.view(np.uint32)
        word = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
        return Tensor("BF16", values.shape, word.astype("<u2").tobytes(), (word << 16).view(np.float32))
    return Tensor("F32", values.shape, values.astype("<f4").tobytes(), values)


def make(m):
    """Name to Tensor, in the order of the files."""
    gains = {**GAINS, **m.gains}
    out = {}

    def matrix(name, rows, columns, gain):
        key, deviation = f"{m.name}/{name}", gain / math.sqrt(columns)
        if m.type in quantized.BLOCKS:
            raw = quantized.random_blocks(key, m.type, (rows, columns), deviation)
            out[name] = Tensor(m.type, (rows, columns), raw)
        else:
            out[name] = encode(bits.normal(key, (rows, columns)) * deviation, m.type)

    def norm(name, n, mean):
        # Multiples of 1/64 below 4 are exact in every float type, and so is the difference to Gemma's 1.
        w = mean * (1 + gains["norm_spread"] * bits.normal(f"{m.name}/{name}", (n,)))
        out[name] = encode(np.round(w * 64) / 64, "F32")

    def bias(name, n):
        out[name] = encode(bits.normal(f"{m.name}/{name}", (n,)) * gains["bias"], "F32")

    matrix("token_embd.weight", m.vocab, m.width, gains["embed"] * math.sqrt(m.width))
    for i in range(m.layers):
        layer(m, f"blk.{i}.", gains, matrix, norm, bias)
    # Signs alternate where the output matrix is the embedding, or each token would predict itself.
    norm("output_norm.weight", m.width, gains["final"] * (-1.0) ** np.arange(m.width) if m.tied else gains["final"])
    if not m.tied:
        matrix("output.weight", m.vocab, m.width, gains["logit"])
    return out


def layer(m, at, gains, matrix, norm, bias):
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    if m.norms != "post":
        norm(at + "attn_norm.weight", m.width, 1.0)
        norm(at + "ffn_norm.weight", m.width, 1.0)
    if m.norms != "pre":
        norm(at + "post_attention_norm.weight", m.width, gains["post"])
        norm(at + "post_ffw_norm.weight", m.width, gains["post"])
    matrix(at + "attn_q.weight", q, m.width, gains["qk"])
    matrix(at + "attn_k.weight", kv, m.width, gains["qk"])
    matrix(at + "attn_v.weight", kv, m.width, gains["v"])
    matrix(at + "attn_output.weight", m.width, q, gains["o"])
    if m.qkv_bias:
        for name, n in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            bias(f"{at}{name}.bias", n)
    if m.qk_norm:
        full = m.qk_norm == "full"
        norm(at + "attn_q_norm.weight", q if full else m.head_dim, gains["qk_norm"])
        norm(at + "attn_k_norm.weight", kv if full else m.head_dim, gains["qk_norm"])
    matrix(at + "ffn_gate.weight", m.ff, m.width, gains["up"])
    matrix(at + "ffn_up.weight", m.ff, m.width, gains["up"])
    matrix(at + "ffn_down.weight", m.width, m.ff, gains["down"])
