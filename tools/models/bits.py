"""Random numbers that are the same on every machine and with every version of numpy.

Words are SplitMix64's output function (Steele, Lea and Flood 2014) at seed + (i + 1) * golden ratio, where the seed is
FNV-1a of a name; what is made of them uses integers and one rounding of IEEE doubles, never libm."""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def seed_of(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return np.uint64(h)


def words(name, n):
    """n uint64 of the stream called name."""
    with np.errstate(over="ignore"):
        z = seed_of(name) + np.arange(1, n + 1, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def normal(name, shape):
    """float64 of about a standard normal distribution: the sum of four 16-bit uniforms, within +-3.5."""
    n = int(np.prod(shape))
    parts = words(name, n)[:, None] >> np.array([0, 16, 32, 48], dtype=np.uint64)
    total = (parts & np.uint64(0xFFFF)).astype(np.int64).sum(axis=1)
    return ((total - 131070) / 37837.0).reshape(shape)


def uniform(name, shape):
    """float64 in [0, 1), multiples of 2^-53."""
    n = int(np.prod(shape))
    return ((words(name, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def integers(name, n, below):
    """n ints in [0, below); the bias of the remainder is below 2^-50 for what is asked here."""
    return (words(name, n) % np.uint64(below)).astype(np.int64)


def random_bytes(name, n):
    return words(name, (n + 7) // 8).astype("<u8").view(np.uint8)[:n].copy()
