"""Values of a tier: an array's bytes behind a header that says which version of the array they are."""

import struct
from enum import Enum

import numpy as np

from hyperslab.layout.checksums import crc32c

__all__ = ["HEADER_BYTES", "Doubt", "sealed", "unsealed"]

# A magic with the format's version, the crc32c of the array's bytes, and how many they are.
_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"HSv1"
HEADER_BYTES = _HEADER.size


class Doubt(Enum):
    """Why a value is no answer."""

    STALE = "of another version of the array"
    WRONG = "not what was stored"


def sealed(data: bytes, crc: int) -> bytes:
    """Return the value for an array's bytes with that crc32c.

    >>> sealed(b"cells", 7)[:4]
    b'HSv1'
    """
    return _HEADER.pack(_MAGIC, crc, len(data)) + data


def unsealed(value: bytes, crc: int, nbytes: int) -> memoryview | Doubt:
    """Return the bytes of the array that has this crc32c and size, not copied; or why the value does not hold them.

    >>> from hyperslab.layout.checksums import crc32c
    >>> crc = crc32c(np.frombuffer(b"cells", np.uint8))
    >>> bytes(unsealed(sealed(b"cells", crc), crc, 5))
    b'cells'
    >>> unsealed(sealed(b"cells", crc), crc + 1, 5), unsealed(b"cells", crc, 5)
    (<Doubt.STALE: 'of another version of the array'>, <Doubt.WRONG: 'not what was stored'>)
    """
    if len(value) < HEADER_BYTES:
        return Doubt.WRONG
    magic, held_crc, held_nbytes = _HEADER.unpack_from(value)
    if magic != _MAGIC or held_nbytes != len(value) - HEADER_BYTES:
        return Doubt.WRONG
    if (held_crc, held_nbytes) != (crc, nbytes):
        return Doubt.STALE
    data = memoryview(value)[HEADER_BYTES:]
    # An empty array has no memory to look at; the crc32c of nothing is 0.
    found = crc32c(np.frombuffer(data, np.uint8)) if nbytes else 0
    return data if found == crc else Doubt.WRONG
