"""Writes GGUF v3 (ggml's format description): metadata, tensor table, tensors at multiples of ALIGNMENT."""

import pathlib
import struct

ALIGNMENT = 32
TENSOR_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11,
                "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30}
KINDS = {"u16": (2, "<H"), "u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "str": (8, None)}
ARRAY = 9


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind, value):
    return text(value) if kind == "str" else struct.pack(KINDS[kind][1], value)


def entry(key, kind, value):
    """kind: a key of KINDS, or one in brackets for an array."""
    if kind.startswith("["):
        kind = kind[1:-1]
        items = b"".join(scalar(kind, v) for v in value)
        return text(key) + struct.pack("<IIQ", ARRAY, KINDS[kind][0], len(value)) + items
    return text(key) + struct.pack("<I", KINDS[kind][0]) + scalar(kind, value)


def padded(raw):
    return raw + bytes(-len(raw) % ALIGNMENT)


def write(path, metadata, tensors):
    """metadata: (key, kind, value) each; tensors: name to weights.Tensor."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(*m) for m in metadata)
    offset = 0
    for name, t in tensors.items():
        dims = t.shape[::-1]  # the contiguous one first
        head += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", TENSOR_TYPES[t.type], offset)
        offset += len(padded(t.data))
    with open(path, "wb") as f:
        f.write(padded(head))
        for t in tensors.values():
            f.write(padded(t.data))


def write_split(folder, name, n, metadata, tensors):
    """n files as llama.cpp's gguf-split names and marks them; the first has the metadata."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = list(tensors)
    for i in range(n):
        marks = [("split.no", "u16", i), ("split.count", "u16", n), ("split.tensors.count", "i32", len(names))]
        mine = names[i * len(names) // n : (i + 1) * len(names) // n]
        path = folder / f"{name}-{i + 1:05}-of-{n:05}.gguf"
        write(path, (metadata if i == 0 else []) + marks, {k: tensors[k] for k in mine})
