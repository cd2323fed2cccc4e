"""The test models, one entry per architecture and variant: what config.json and GGUF metadata are made from.

All are small and shrunk so that 128 positions cross every border: windows of 16, original contexts of 32. GAINS scales
the random weights so that attention is neither flat nor a single peak, every part of a layer matters and the mean
entropy of the next token is at most half of log(vocabulary)."""

from dataclasses import dataclass, field, replace

from models import vocabulary

POSITIONS = 128


@dataclass(frozen=True)
class Model:
    name: str
    arch: str  # GGUF's general.architecture
    hf_class: str
    hf_type: str
    width: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ff: int = 160
    vocab: int = vocabulary.SIZE
    context: int = 256
    rope_base: float = 10000.0
    rope_base_local: float = 0.0  # of windowed layers; 0: the same
    rope_scaling: dict = None  # as in config.json
    rotary: float = 1.0  # rotated part of a head
    original_context: int = 0
    eps: float = 1e-5
    tied: bool = False
    permuted: bool = False  # GGUF's Q and K rows are in adjacent-pair order
    qkv_bias: bool = False
    qk_norm: str = ""  # "head": (head_dim); "full": (heads * head_dim)
    norms: str = "pre"  # "pre", "post" (of each block's output), "both"
    norm_offset: float = 0.0  # config.json's architecture adds it to stored norm weights; GGUF has the sum
    activation: str = "silu"  # or "gelu_tanh"
    fused: bool = False  # one matrix for Q, K, V and one for gate and up
    window: int = 0
    windowed: tuple = ()  # per layer
    attn_scale: float = 0.0  # 0: 1 / sqrt(head_dim)
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0  # logits are divided by it
    attn_cap: float = 0.0
    final_cap: float = 0.0
    type: str = "F32"  # of the matrices; in a quantized model of all of them
    shards: int = 1  # files of either format
    hf_keys: dict = field(default_factory=dict)  # of config.json, beyond what the fields above give
    contexts: tuple = (POSITIONS,)  # configured contexts that references are made for
    gains: dict = field(default_factory=dict)

    @property
    def rope_dims(self):
        return int(self.head_dim * self.rotary)


# Standard deviations of what a matrix gives for inputs of unit size: embeddings, Q and K, V, attention output, gate and
# up, down, logits; of biases; of norm weights around their mean, which is `post` after a block, `qk_norm`, or `final`.
# Branches (o, down, post) are small beside the residual, so that rounding to float16 is not blown up: at these values
# rounding each matrix's input to float16 moves a log-probability by 0.0006 on average, to bfloat16 by 0.005.
GAINS = {"embed": 1.0, "qk": 1.2, "v": 1.0, "o": 0.3, "up": 0.9, "down": 0.3, "post": 0.2, "qk_norm": 1.2,
         "final": 1.0, "logit": 3.1, "bias": 0.6, "norm_spread": 0.25}

LLAMA = Model("", "llama", "LlamaForCausalLM", "llama", permuted=True)
MISTRAL = replace(LLAMA, hf_class="MistralForCausalLM", hf_type="mistral")
QWEN2 = Model("", "qwen2", "Qwen2ForCausalLM", "qwen2", qkv_bias=True, eps=1e-6,
              # Files carry a window that use_sliding_window turns off.
              hf_keys={"use_sliding_window": False, "sliding_window": 16, "max_window_layers": 2})
QWEN3 = Model("", "qwen3", "Qwen3ForCausalLM", "qwen3", qk_norm="head", eps=1e-6, head_dim=32,
              hf_keys={"use_sliding_window": False, "sliding_window": None, "max_window_layers": 4})
GEMMA = {"norms": "both", "norm_offset": 1.0, "activation": "gelu_tanh", "tied": True, "eps": 1e-6, "window": 16,
         "embed_scale": 8.0, "gains": {"embed": 0.125, "final": 3.6}}
GEMMA2 = Model("", "gemma2", "Gemma2ForCausalLM", "gemma2", attn_cap=2.5, final_cap=14.0,
               windowed=(True, False, True, False), **{**GEMMA, "gains": {"embed": 0.125, "final": 4.8}})
GEMMA3 = Model("", "gemma3", "Gemma3ForCausalLM", "gemma3_text", layers=6, qk_norm="head", rope_base=100000.0,
               rope_base_local=10000.0, rope_scaling={"rope_type": "linear", "factor": 4.0}, **GEMMA)
PHI3 = Model("", "phi3", "Phi3ForCausalLM", "phi3", fused=True, original_context=256)
GRANITE = Model("", "granite", "GraniteForCausalLM", "granite", permuted=True, tied=True, embed_scale=6.0,
                residual_scale=0.5, logit_scale=2.0, attn_scale=0.4,
                gains={"embed": 0.2, "final": 3.6, "o": 0.6, "down": 0.6})
OLMO2 = Model("", "olmo2", "Olmo2ForCausalLM", "olmo2", norms="post", qk_norm="full", eps=1e-6)


def longrope(original, context, dims):
    """Long and short divisors of the frequencies, as in Phi's files rising with the wavelength."""
    long = [round(1.0 + 0.9 * i * i / (dims // 2), 2) for i in range(dims // 2)]
    short = [round(1.0 + 0.07 * i, 2) for i in range(dims // 2)]
    return {"rope_scaling": {"type": "longrope", "long_factor": long, "short_factor": short},
            "original_context": original, "context": context}


ARCHITECTURES = [
    replace(LLAMA, name="llama2", kv_heads=4),
    replace(LLAMA, name="llama-gqa", width=96, heads=6, kv_heads=2, ff=224, shards=2),
    replace(LLAMA, name="llama3-rope", rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    replace(LLAMA, name="llama-linear", rope_scaling={"type": "linear", "factor": 4.0}),
    replace(LLAMA, name="llama-yarn", context=128, heads=2, kv_heads=1, head_dim=32, original_context=32,
            rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                          "original_max_position_embeddings": 32}),
    replace(LLAMA, name="smollm", width=96, heads=6, kv_heads=2, ff=224, layers=5, tied=True, rope_base=100000.0,
            gains={"embed": 0.6, "final": 0.55}),
    replace(LLAMA, name="llama-f16", type="F16"),
    replace(LLAMA, name="llama-bf16", type="BF16"),
    replace(MISTRAL, name="mistral", window=16, windowed=(True,) * 4),
    replace(QWEN2, name="qwen2"),
    replace(QWEN3, name="qwen3"),
    replace(GEMMA2, name="gemma2", attn_scale=24**-0.5),
    replace(GEMMA2, name="gemma2-27b", attn_scale=16**-0.5),
    replace(GEMMA3, name="gemma3", windowed=(True,) * 5 + (False,), attn_scale=16**-0.5, shards=2),
    replace(GEMMA3, name="gemma3-pattern", layers=5, windowed=(False, True, True, False, True), attn_scale=24**-0.5,
            rope_base_local=4000.0),
    replace(PHI3, name="phi-longrope", rotary=0.75, contexts=(POSITIONS, 32), **longrope(32, 256, 12)),
    replace(PHI3, name="phi-short", rotary=0.75, **longrope(256, 1024, 12)),
    replace(PHI3, name="phi-window", window=16, windowed=(True,) * 4, kv_heads=4),
    replace(GRANITE, name="granite"),
    replace(OLMO2, name="olmo2"),
]

QUANTIZED_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")
QUANTIZED = [
    replace(LLAMA, name="llama-" + t.lower(), type=t, width=256, layers=2, heads=4, head_dim=64, ff=512)
    for t in QUANTIZED_TYPES
]

MODELS = {m.name: m for m in ARCHITECTURES + QUANTIZED}


def chosen(names):
    """The models of these names; all where none is named."""
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        raise SystemExit(f"no such model: {', '.join(unknown)} (make_model.py --list names them)")
    return [MODELS[n] for n in names] or list(MODELS.values())
