"""Writes a GGUF model with a NaN as the first value of one tensor of floats, and everything else as it was.

    python3 tools/damaged_gguf.py IN.gguf OUT.gguf output_norm.weight

For end-to-end tests of what a model whose logits are not finite does to a server: with a NaN in the last norm's
weights every row of logits is. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3).
"""

import struct
import sys

from shallow_gguf import Reader, align, pairs, tensors

F32 = 0


def damage(data, name):
    r = Reader(data)
    if data[:4] != b"GGUF" or struct.unpack_from("<I", data, 4)[0] != 3:
        sys.exit("not a GGUF file of version 3")
    r.at = 8
    n_tensors, n_pairs = r.scalar("Q"), r.scalar("Q")
    meta = dict(pairs(r, n_pairs, 0))
    to = struct.unpack("<I", meta[b"general.alignment"][-4:])[0] if b"general.alignment" in meta else 32
    found = {t[0]: t for t in tensors(r, n_tensors)}
    if name not in found or found[name][2] != F32:
        sys.exit(f"no tensor of floats with the name {name.decode()}")
    at = align(r.at, to) + found[name][3]
    return data[:at] + struct.pack("<f", float("nan")) + data[at + 4:]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n\n")[1].strip())
    with open(sys.argv[1], "rb") as f:
        out = damage(f.read(), sys.argv[3].encode())
    with open(sys.argv[2], "wb") as f:
        f.write(out)


if __name__ == "__main__":
    main()
