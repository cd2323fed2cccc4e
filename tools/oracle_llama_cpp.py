#!/usr/bin/env python3
"""llama.cpp's own distance from the float32 reference on the same file: mean and maximum |difference| of the targets'
log-probabilities of tests/data/score/reference.json, the Kullback-Leibler divergence of its distributions from the
reference's, and the worst greedy choice. Needs PyPI llama-cpp-python and numpy; writes tests/data/score/llama_cpp.json.

    python3 tools/oracle_logprobs.py MODEL --distributions ref.npy
    VENV/bin/python tools/oracle_llama_cpp.py MODEL ref.npy > tests/data/score/llama_cpp.json
"""

import ctypes
import json
import sys

import llama_cpp as L
import numpy as np


def logprobs(model, ids, n_vocab):
    """(n, vocab) log-softmax after each id, as one prompt."""
    p = L.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = 1024, 1024, 512, 2, 2
    ctx = L.llama_init_from_model(model, p)
    b = L.llama_batch_init(len(ids), 0, 1)
    b.n_tokens = len(ids)
    for i, t in enumerate(ids):
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, i, 1, 1
        b.seq_id[i][0] = 0
    if L.llama_decode(ctx, b) != 0:
        sys.exit("llama_decode failed")
    x = np.ctypeslib.as_array(L.llama_get_logits(ctx), (len(ids), n_vocab)).astype(np.float64)
    L.llama_batch_free(b)
    L.llama_free(ctx)
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def main():
    ref = json.load(open("tests/data/score/reference.json"))
    quiet = L.llama_log_callback(lambda *a: None)  # kept alive: llama.cpp calls it
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    model = L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params())
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    ids = ref["ids"]
    lp = logprobs(model, ids, n_vocab)
    d = np.abs(lp[np.arange(len(ids) - 1), ids[1:]] - np.array(ref["logprobs"][1:]))
    want = np.load(sys.argv[2], mmap_mode="r").astype(np.float64)
    kl = (np.exp(want) * (want - lp)).sum(-1)
    regret = want.max(-1) - want[np.arange(len(ids)), lp.argmax(-1)]
    worst = 0.0
    for g in ref["greedy"]:
        n = len(g["prompt"])
        lp = logprobs(model, g["prompt"] + g["ids"][:-1], n_vocab)[n - 1:]
        for row, top in zip(lp, g["top"]):
            best = dict(map(tuple, top)).get(int(row.argmax()), -1e9)
            worst = max(worst, top[0][1] - best)
    json.dump({"command": "tools/oracle_llama_cpp.py (see its head)", "llama_cpp_python": L.__version__,
               "tokens": len(ids), "logprob_mean": round(float(d.mean()), 6), "logprob_max": round(float(d.max()), 6),
               "kl_mean": round(float(kl.mean()), 6), "kl_p99": round(float(np.quantile(kl, 0.99)), 6),
               "regret_p99": round(float(np.quantile(regret, 0.99)), 6), "regret_max": round(float(regret.max()), 6),
               "greedy_regret_max": round(worst, 6)}, sys.stdout, indent=1)
    print()


main()
