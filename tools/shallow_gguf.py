"""Writes a GGUF model's first LAYERS blocks to another file, with everything else as it was.

    python3 tools/shallow_gguf.py IN.gguf OUT.gguf LAYERS

Same tokenizer, template and code paths at a fraction of the time: for end-to-end tests of sanitized builds.
What it writes is nonsense. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3).
"""

import os
import re
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        n = self.scalar("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, n = self.scalar("I"), self.scalar("Q")
            for _ in range(n):
                self.skip_value(of)
        else:
            self.scalar(SCALARS[kind])


def pairs(r, n, layers):
    """The metadata as (bytes of key, type and value), with the block count changed."""
    for _ in range(n):
        start = r.at
        key, kind = r.string(), r.scalar("I")
        value = r.at
        r.skip_value(kind)
        raw = r.data[start:r.at]
        if key.endswith(b".block_count"):
            raw = raw[:value - start] + struct.pack("<" + SCALARS[kind], layers)
        yield key, raw


def tensors(r, n):
    """(name, dimensions, type, offset) of each tensor."""
    for _ in range(n):
        name = r.string()
        dims = [r.scalar("Q") for _ in range(r.scalar("I"))]
        yield name, dims, r.scalar("I"), r.scalar("Q")


def align(n, to):
    return (n + to - 1) // to * to


def shallow(data, layers):
    r = Reader(data)
    if data[:4] != b"GGUF" or struct.unpack_from("<I", data, 4)[0] != 3:
        sys.exit("not a GGUF file of version 3")
    r.at = 8
    n_tensors, n_pairs = r.scalar("Q"), r.scalar("Q")
    meta = list(pairs(r, n_pairs, layers))
    to = next((struct.unpack("<I", raw[-4:])[0] for key, raw in meta if key == b"general.alignment"), 32)
    found = list(tensors(r, n_tensors))
    base = align(r.at, to)
    ends = sorted(offset for *_, offset in found) + [len(data) - base]
    kept = [t for t in found if not (m := re.match(rb"blk\.(\d+)\.", t[0])) or int(m.group(1)) < layers]
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(kept), len(meta)), b""
    head += b"".join(raw for _, raw in meta)
    for name, dims, kind, offset in kept:
        end = next(e for e in ends if e > offset)
        head += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", kind, len(body))
        body += data[base + offset:base + end]
        body += bytes(align(len(body), to) - len(body))
    return head + bytes(align(len(head), to) - len(head)) + body


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n\n")[1].strip())
    with open(sys.argv[1], "rb") as f:
        out = shallow(f.read(), int(sys.argv[3]))
    with open(sys.argv[2] + ".part", "wb") as f:
        f.write(out)
    os.replace(sys.argv[2] + ".part", sys.argv[2])


if __name__ == "__main__":
    main()
