"""Random blocks of ggml's quantized types. Any bytes are a valid block but for its float16 scales, so quants, 6-bit and
8-bit scales are random bytes, and the scales are set so that the weights have the deviation that is asked for."""

from dataclasses import dataclass

import numpy as np

from models import bits


@dataclass(frozen=True)
class Block:
    elements: int
    bytes: int
    scale_at: int  # offset of the float16 scale d
    second_at: int = -1  # offset of the minimum, or of the minimums' scale
    second: float = 0.0  # its ratio to d, so that a block's mean is about zero
    # Deviation of an element at d = 1. Of q uniform over 16 values 4.61, over 32 9.23, over int8 73.9; K-quants have
    # that of (scale * q - minimum) with uniform scales and minimums; IQ4 that of its 16 values, times the scale's.
    deviation: float = 0.0


BLOCKS = {
    "Q4_0": Block(32, 18, 0, deviation=4.61),
    "Q4_1": Block(32, 20, 0, 2, -7.5, 4.61),
    "Q5_0": Block(32, 22, 0, deviation=9.23),
    "Q5_1": Block(32, 24, 0, 2, -15.5, 9.23),
    "Q8_0": Block(32, 34, 0, deviation=73.9),
    "Q2_K": Block(256, 84, 80, 82, 1.5, 13.9),
    "Q3_K": Block(256, 110, 108, deviation=43.3),
    "Q4_K": Block(256, 144, 0, 2, 7.5, 258.0),
    "Q5_K": Block(256, 176, 0, 2, 15.5, 527.0),
    "Q6_K": Block(256, 210, 208, deviation=1366.0),
    "IQ4_NL": Block(32, 18, 0, deviation=67.4),
    "IQ4_XS": Block(256, 136, 0, deviation=1246.0),
}


def random_blocks(name, type_name, shape, deviation):
    """The bytes of a (rows, columns) matrix."""
    b = BLOCKS[type_name]
    assert shape[-1] % b.elements == 0, (name, shape)
    n = int(np.prod(shape)) // b.elements
    raw = bits.random_bytes(name, n * b.bytes).reshape(n, b.bytes)
    scale = deviation / b.deviation * (0.75 + 0.5 * bits.uniform(name + "/scale", n))
    if b.second_at < 0:  # scales of either sign occur in files
        scale *= 1 - 2 * bits.integers(name + "/sign", n, 2)
    put_f16(raw, b.scale_at, scale)
    if b.second_at >= 0:
        put_f16(raw, b.second_at, scale * b.second)
    return raw.tobytes()


def put_f16(raw, at, values):
    raw[:, at : at + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)
