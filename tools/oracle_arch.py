#!/usr/bin/env python3
"""Float32 references of the test models: teacher-forced log-probabilities by transformers and torch on the CPU.

    python3 -m venv V && V/bin/pip install torch transformers gguf
    V/bin/python tools/make_model.py MODELS
    V/bin/python tools/oracle_arch.py MODELS [NAME...]

writes tests/data/arch/NAME.json (and NAME-ctx32.json where a model has a second configured context):

    command, versions    what made the file
    gguf, folder         the model's names under MODELS; folder is null for quantized models
    gguf_sha256          of the file that the values are for
    context_tokens       the configured context: it chooses LongRoPE's factors
    ids                  n + 1 token ids; ids[0..n) is the model's input
    logprobs             n natural logarithms: of ids[i + 1] after ids[0..i]
    top1                 n ids: the most likely token after ids[0..i]
    mean_entropy         of the n distributions, in nats
    own_difference       mean |difference| of logprobs to tools/models/forward.py, float64 on the GGUF's tensors
    mutants              mean |difference| of logprobs when forward.py is wrong in one thing

Full-precision models are read from their Hugging Face folder, quantized ones from their GGUF, dequantized by the gguf
package. Nothing is written for a model where the two implementations differ, a mutant hides or the entropy is high.
With --llama-cpp, instead, llama-cpp-python scores the stored ids from the GGUF files, and the differences are shown."""

import argparse
import hashlib
import json
import math
import pathlib
import sys
from dataclasses import replace
from importlib import metadata

import numpy as np

from models import bits, forward, to_gguf, to_hf, vocabulary, weights
from models.quantized import BLOCKS
from models.table import POSITIONS, chosen

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/arch"
OWN_DIFFERENCE_MAX = 1e-4  # float32 against float64
MUTANT_MIN = 0.01  # nats; ten times what a right implementation may differ


def choose_ids(name, structure, w, n):
    """BOS, then seven tokens drawn from the model itself, one from the whole vocabulary, and so on: likely and unlikely
    tokens, and no loop."""
    draws, others = bits.uniform(f"{name}/draw", n), bits.integers(f"{name}/other", n, vocabulary.SIZE)
    ids = [vocabulary.BOS]
    for i in range(n):
        if i % 8 == 7:
            ids.append(int(others[i]))
            continue
        p = np.exp(forward.logprobs(structure, w, np.array(ids))[-1])
        ids.append(min(int(np.searchsorted(np.cumsum(p), draws[i])), vocabulary.SIZE - 1))
    return ids


def dequantized(path):
    """Name to Tensor with values, by the gguf package."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    return {t.name: weights.encode(dequantize(t.data, t.tensor_type), "F32") for t in GGUFReader(path).tensors}


def adjacent_undone(rows, head_dim):
    """The inverse of to_gguf.adjacent_pairs."""
    heads = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return heads.swapaxes(1, 2).reshape(rows.shape)


class Transformers:
    """The reference: a Hugging Face folder, or a configuration and tensors, in float32 on the CPU."""

    def __init__(self):
        import torch
        import transformers

        self.torch, self.transformers = torch, transformers
        self.versions = {p: metadata.version(p) for p in ("torch", "transformers", "gguf", "numpy")}

    def logprobs(self, model, ids):
        """float64 (len(ids), vocabulary)."""
        with self.torch.no_grad():
            logits = model(self.torch.tensor([ids]), use_cache=False).logits[0]
        return self.torch.log_softmax(logits.double(), -1).numpy()

    def from_folder(self, folder, context):
        config = self.transformers.AutoConfig.from_pretrained(folder)
        force_longrope(config, context)
        return self.transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=self.torch.float32, attn_implementation="eager").eval()

    def from_tensors(self, m, named):
        """m: of the llama family; named: GGUF's tensors with values."""
        config = self.transformers.LlamaConfig(**to_hf.config(replace(m, type="F32")), attn_implementation="eager")
        model = self.transformers.LlamaForCausalLM(config)
        state = {}
        for name, t in named.items():
            permuted = name.endswith(("attn_q.weight", "attn_k.weight"))
            values = adjacent_undone(t.values, m.head_dim) if permuted else t.values
            state[to_hf.hf_name(m, name)] = self.torch.tensor(values)
        model.load_state_dict(state, strict=True)
        return model.float().eval()


def force_longrope(config, context):
    """transformers chooses the factors by the current length; a configured context chooses them once: both lists become
    the chosen one."""
    rope = config.rope_parameters
    if "long_factor" in rope:
        original = config.original_max_position_embeddings
        chosen = rope["long_factor" if context > original else "short_factor"]
        rope["long_factor"] = rope["short_factor"] = chosen


def reference(m, context, folder, oracle):
    path = folder / f"{m.name}.gguf"
    quantized = m.type in BLOCKS
    tensors = dequantized(path) if quantized else to_gguf.tensors(m, weights.make(m))
    structure = forward.structure(to_gguf.metadata(m), tensors, context)
    w = forward.unfused(tensors, structure)
    ids = choose_ids(m.name, structure, w, min(POSITIONS, context))
    model = oracle.from_tensors(m, tensors) if quantized else oracle.from_folder(folder / m.name, context)
    table = oracle.logprobs(model, ids[:-1])
    score = lambda t: t[np.arange(len(ids) - 1), ids[1:]]
    run = lambda s: score(forward.logprobs(s, w, np.array(ids[:-1])))
    own = run(structure)
    return {
        "command": f"python3 tools/oracle_arch.py MODELS {m.name}",
        "versions": oracle.versions,
        "gguf": path.name,
        "gguf_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "folder": None if quantized else m.name,
        "context_tokens": context,
        "ids": ids,
        "logprobs": [round(float(v), 6) for v in score(table)],
        "top1": [int(v) for v in table.argmax(-1)],
        "mean_entropy": round(float(-(np.exp(table) * table).sum(-1).mean()), 6),
        "own_difference": float(f"{np.abs(score(table) - own).mean():.2g}"),
        "mutants": {k: round(float(np.abs(run(s) - own).mean()), 4)
                    for k, s in forward.mutants(structure, tensors).items()},
    }


def complaints(r):
    if r["own_difference"] > OWN_DIFFERENCE_MAX:
        yield f"the implementations differ by {r['own_difference']}"
    if r["mean_entropy"] > math.log(vocabulary.SIZE) / 2:
        yield f"mean entropy {r['mean_entropy']}"
    for name, d in r["mutants"].items():
        if d < MUTANT_MIN:
            yield f"mutant {name} moves the result by {d}"


def file_of(m, context):
    return DATA / (f"{m.name}.json" if context == m.contexts[0] else f"{m.name}-ctx{context}.json")


def write_references(models, folder):
    """False: something was wrong with one."""
    oracle, good = Transformers(), True
    DATA.mkdir(parents=True, exist_ok=True)
    for m, context in ((m, c) for m in models for c in m.contexts):
        r = reference(m, context, folder, oracle)
        least = min(r["mutants"], key=r["mutants"].get)
        print(f"{m.name:16} context {context:3}: entropy {r['mean_entropy']:.2f}, difference to float64 "
              f"{r['own_difference']:.1e}, least mutant {least} {r['mutants'][least]:.3f}")
        wrong = list(complaints(r))
        if wrong:
            print(*wrong, sep="\n")
            good = False
            continue
        file_of(m, context).write_text(json.dumps(r, separators=(",", ":")).replace(',"', ',\n"') + "\n")
    return good


def llama_cpp_logprobs(path, context, ids):
    """float64 (len(ids), vocabulary), with a float32 KV cache."""
    from llama_cpp import Llama

    f32 = 0  # ggml's type id
    llama = Llama(str(path), n_ctx=context, n_batch=len(ids), logits_all=True, n_threads=1, type_k=f32, type_v=f32,
                  verbose=False)
    llama.eval(ids)
    x = np.array(llama.scores[: len(ids)], dtype=np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare_llama_cpp(models, folder):
    """About 1e-6 where llama.cpp computes the same in float32. It does not everywhere, by design: it rounds activations
    of F16, BF16 and quantized models, takes GELU from a float16 table, gives a context at least 256 positions (so
    phi-longrope at 32 gets the long factors), knows no window for llama and phi3, no attention.scale for gemma2, and
    one fixed pattern for gemma3."""
    for m, context in ((m, c) for m in models for c in m.contexts):
        r = json.loads(file_of(m, context).read_text())
        ids = r["ids"]
        table = llama_cpp_logprobs(folder / r["gguf"], context, ids[:-1])
        d = np.abs(table[np.arange(len(ids) - 1), ids[1:]] - r["logprobs"])
        print(f"{m.name:16} context {context:3}: mean |difference| {d.mean():.2g}, largest {d.max():.2g}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path, help="what make_model.py wrote")
    p.add_argument("names", nargs="*")
    p.add_argument("--llama-cpp", action="store_true")
    args = p.parse_args()
    models = chosen(args.names)
    if args.llama_cpp:
        compare_llama_cpp(models, args.folder)
    elif not write_references(models, args.folder):
        sys.exit(1)


if __name__ == "__main__":
    main()
