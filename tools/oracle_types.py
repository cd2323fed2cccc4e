#!/usr/bin/env python3
"""Blocks of every tensor type and the floats they mean, by gguf's own dequantizer.

Makes tests/data/tensor_types.json; no test needs this tool or the package. From the repository's root, with
numpy and gguf (PyPI):

    python3 tools/oracle_types.py > tests/data/tensor_types.json

A block's bytes are random (every pattern of codes and factors is valid); its 16-bit scales are drawn from ordinary
values and from the ends of the format: largest, smallest normal, smallest subnormal, both zeros. Values are the
bits of float32, little-endian, in hexadecimal.
"""

import importlib.metadata
import json
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where a block has its 16-bit scales.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
EXTREME = np.array([65504, -65504, 2.0**-14, -(2.0**-24), 0.0, -0.0, 2.0**-24, 1.0], np.float16)
# Of each sign: zero, the least subnormal, the largest subnormal, one, the largest, infinity, a NaN.
F32_BITS = [0, 1, 0x7FFFFF, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
F16_BITS = [0, 1, 0x3FF, 0x3C00, 0x7BFF, 0x7C00, 0x7E00]
BF16_BITS = [0, 1, 0x7F, 0x3F80, 0x7F7F, 0x7F80, 0x7FC0]


def random_blocks(rng, kind):
    elements, size = GGML_QUANT_SIZES[kind]
    n = 8 if elements == 32 else 3
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for i in range(n):
        for at in SCALES[kind]:
            scale = np.float16(rng.normal()) if i % 2 == 0 else rng.choice(EXTREME)
            blocks[i, at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks


def floats(rng, bits, dtype):
    """The ends of both signs, and any finite bits."""
    sign = 1 << (8 * dtype().itemsize - 1)
    any_bits = [int(b) for b in rng.integers(0, bits[5], 18)]
    return np.array(bits + [b | sign for b in bits] + any_bits, dtype)


def case(data, kind):
    with np.errstate(invalid="ignore"):
        values = dequantize(data, kind).astype(np.float32).ravel()
    return {"blocks": data.tobytes().hex(), "values": values.tobytes().hex()}


def main():
    rng = np.random.default_rng(3)
    out = {"command": "python3 tools/oracle_types.py (see its head)", "gguf": importlib.metadata.version("gguf"),
           "types": {"F32": case(floats(rng, F32_BITS, np.uint32), T.F32),
                     "F16": case(floats(rng, F16_BITS, np.uint16), T.F16),
                     "BF16": case(floats(rng, BF16_BITS, np.uint16).view(np.uint8), T.BF16)}}
    for kind in SCALES:
        out["types"][kind.name] = case(random_blocks(rng, kind), kind)
    json.dump(out, sys.stdout, indent=0)
    print()


main()
