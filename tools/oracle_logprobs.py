#!/usr/bin/env python3
"""Float32 reference of the Llama forward pass in PyTorch, on the dequantized weights of a GGUF file.

Makes tests/data/score/reference.json: teacher-forced log-probabilities of a text, and greedy continuations of
three prompts with the reference's 20 best tokens at every position. Needs torch, numpy and gguf (PyPI); no test
needs it. From the repository's root:

    build/release/sluice tokenize --model MODEL --file tests/data/score/text.txt > ids.json
    for p in 1 2 3; do
        build/release/sluice tokenize --model MODEL --file tests/data/score/prompt$p.txt
    done > prompts.jsonl
    python3 tools/oracle_logprobs.py MODEL ids.json prompts.jsonl > tests/data/score/reference.json

With `--distributions FILE` instead of the two files it writes the whole log-softmax after each id of that text,
(n, vocab) in float32, as numpy does: for tools/oracle_llama_cpp.py.

Written from the definitions (RMSNorm: Zhang and Sennrich 2019; RoPE: Su et al. 2021, GGUF's llama pairs
(2i, 2i+1); grouped-query attention: Ainslie et al. 2023; SwiGLU: Shazeer 2020), with no code of Sluice.
"""

import json
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

GREEDY_TOKENS = 64
TOP = 20


class Model:
    def __init__(self, path):
        r = GGUFReader(path)
        field = lambda k: r.fields[k].contents()
        self.w = {t.name: torch.from_numpy(np.ascontiguousarray(dequantize(t.data, t.tensor_type)).astype(np.float32))
                  for t in r.tensors}
        self.layers = field("llama.block_count")
        self.heads = field("llama.attention.head_count")
        self.kv_heads = field("llama.attention.head_count_kv")
        self.eps = field("llama.attention.layer_norm_rms_epsilon")
        self.base = field("llama.rope.freq_base")
        self.dim = field("llama.embedding_length") // self.heads

    def norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.w[name]

    def rope(self, x):
        """x: (n, heads, dim). Angles in float64, rounded once: what a float32 computation approximates."""
        n, _, dim = x.shape
        freq = self.base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.arange(n, dtype=torch.float64)[:, None] * freq
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    @torch.no_grad()
    def logprobs(self, ids):
        """(n, vocab) log-softmax after each position."""
        n, w = len(ids), self.w
        x = w["token_embd.weight"][torch.tensor(ids)]
        mask = torch.full((n, n), float("-inf")).triu(1)
        for i in range(self.layers):
            p = f"blk.{i}."
            h = self.norm(x, p + "attn_norm.weight")
            q = self.rope((h @ w[p + "attn_q.weight"].T).view(n, self.heads, self.dim))
            k = self.rope((h @ w[p + "attn_k.weight"].T).view(n, self.kv_heads, self.dim))
            v = (h @ w[p + "attn_v.weight"].T).view(n, self.kv_heads, self.dim)
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
            scores = torch.einsum("nhd,mhd->hnm", q, k) / self.dim ** 0.5 + mask
            out = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).reshape(n, -1)
            x = x + out @ w[p + "attn_output.weight"].T
            h = self.norm(x, p + "ffn_norm.weight")
            gate = torch.nn.functional.silu(h @ w[p + "ffn_gate.weight"].T)
            x = x + (gate * (h @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
        head = w.get("output.weight", w["token_embd.weight"])
        return (self.norm(x, "output_norm.weight") @ head.T).log_softmax(-1)


def greedy(model, prompt_ids):
    ids = list(prompt_ids)
    for _ in range(GREEDY_TOKENS):
        ids.append(int(model.logprobs(ids)[-1].argmax()))
    lp = model.logprobs(ids)[len(prompt_ids) - 1:-1]
    top = lp.topk(TOP, -1)
    return {"prompt": list(prompt_ids), "ids": ids[len(prompt_ids):],
            "top": [[[int(t), round(float(v), 5)] for t, v in zip(ts, vs)] for ts, vs in zip(top.indices, top.values)]}


def main():
    path, ids_file, prompts_file = sys.argv[1:4]
    torch.set_num_threads(1)
    model = Model(path)
    if ids_file == "--distributions":
        ids = json.load(open("tests/data/score/reference.json"))["ids"]
        np.save(prompts_file, model.logprobs(ids).numpy())
        return
    ids = json.load(open(ids_file))["ids"]
    lp = model.logprobs(ids)
    target = [None] + [round(float(lp[i - 1, t]), 6) for i, t in enumerate(ids) if i]
    prompts = [json.loads(line) for line in open(prompts_file)]
    out = {"command": "tools/oracle_logprobs.py MODEL ids.json prompts.jsonl (see its header)", "torch": torch.__version__,
           "ids": ids, "logprobs": target, "greedy": [greedy(model, p["ids"]) for p in prompts]}
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


main()
