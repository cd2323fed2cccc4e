#!/usr/bin/env python3
"""llama.cpp (PyPI llama-cpp-python) on the same file with the same threads: prefill and decode of one and eight sequences.

    VENV/bin/python bench/peer_llama_cpp.py MODEL [threads]
"""

import ctypes
import os
import sys
import time

import llama_cpp as L
import numpy as np

PROMPT, GENERATE = 256, 32


def context(model, n_seq, threads):
    p = L.llama_context_default_params()
    p.n_ctx = 512 * n_seq
    p.n_batch = p.n_ubatch = 512
    p.n_seq_max = n_seq
    p.n_threads = p.n_threads_batch = threads
    return L.llama_init_from_model(model, p)


def decode(ctx, tokens, positions, sequences, want):
    b = L.llama_batch_init(len(tokens), 0, 1)
    b.n_tokens = len(tokens)
    for i, (t, p, s) in enumerate(zip(tokens, positions, sequences)):
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, p, 1, want(i)
        b.seq_id[i][0] = s
    if L.llama_decode(ctx, b) != 0:
        sys.exit("llama_decode failed")
    L.llama_batch_free(b)


def main():
    path = sys.argv[1].encode()
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    quiet = L.llama_log_callback(lambda *a: None)  # kept alive: llama.cpp calls it
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    model = L.llama_model_load_from_file(path, L.llama_model_default_params())
    ids = [100 + i % 4000 for i in range(PROMPT)]
    for n in (1, 8, 32):
        ctx = context(model, n, threads)
        start = time.perf_counter()
        for s in range(n):
            decode(ctx, ids, range(PROMPT), [s] * PROMPT, lambda i: i == PROMPT - 1)
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for g in range(GENERATE):
            decode(ctx, [200 + g] * n, [PROMPT + g] * n, range(n), lambda i: 1)
            np.ctypeslib.as_array(L.llama_get_logits(ctx), (n, 49152)).argmax(-1)
        seconds = time.perf_counter() - start
        print(f"batch {n}: prefill {n * PROMPT / prefill:.0f} tokens/s, decode {n * GENERATE / seconds:.0f} tokens/s")
        L.llama_free(ctx)


main()
