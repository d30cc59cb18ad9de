"""Random damage to the content of a file."""

import numpy as np

EXTREMES = (b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\x80" * 10, b"\x01\0\0\0")


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the content with one to three mutations: bits flipped; bytes cut, inserted, copied or set to extremes."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = int(rng.integers(0, len(data) + 1))
        size = int(rng.integers(1, 33))
        match rng.integers(0, 8):
            case 0 | 1 | 2:
                for place in rng.integers(0, max(len(data), 1), size=rng.choice([1, 1, 2, 8])).tolist():
                    if place < len(data):
                        data[place] ^= 1 << int(rng.integers(0, 8))
            case 3:
                del data[at:]
            case 4:
                data[at:at] = rng.bytes(size)
            case 5:
                start = int(rng.integers(0, len(data) + 1))
                data[at : at + size] = data[start : start + size]
            case 6:
                del data[at : at + size]
            case 7:
                word = EXTREMES[int(rng.integers(0, len(EXTREMES)))]
                data[at : at + len(word)] = word
    return bytes(data)
