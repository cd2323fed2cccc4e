#!/usr/bin/env python3
"""Writes small models with random weights, each as OUT/NAME.gguf and as a Hugging Face folder OUT/NAME; where the
folder has several shards, also as split GGUF files OUT/NAME-split/NAME-0000i-of-0000n.gguf.

    python3 tools/make_model.py OUT_DIR [NAME...]      all models of tools/models/table.py, or those named
    python3 tools/make_model.py --list                 their names

The same bytes on every machine. Quantized models are GGUF only. Needs numpy. What the models must compute is under
tests/data/arch (tools/oracle_arch.py)."""

import argparse
import pathlib

from models import gguf_file, to_gguf, to_hf, weights
from models.quantized import BLOCKS
from models.table import MODELS, chosen


def write(out, m):
    w = weights.make(m)
    metadata, tensors = to_gguf.metadata(m), to_gguf.tensors(m, w)
    gguf_file.write(out / f"{m.name}.gguf", metadata, tensors)
    if m.shards > 1:
        gguf_file.write_split(out / f"{m.name}-split", m.name, m.shards, metadata, tensors)
    if m.type not in BLOCKS:
        to_hf.write(out / m.name, m, w)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    if args.list:
        print("\n".join(MODELS))
        return
    if args.out is None:
        p.error("OUT_DIR is missing")
    models = chosen(args.names)
    args.out.mkdir(parents=True, exist_ok=True)
    for m in models:
        write(args.out, m)


if __name__ == "__main__":
    main()
