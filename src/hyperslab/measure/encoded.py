"""Encoded chunks to be put into what is uploaded for probes, as `hs.save` would write them: real work to decode."""

import os

import numpy as np

from hyperslab.layout.checksums import Checksum
from hyperslab.layout.compression import DEFAULT
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.encode import ChunkEncoder
from hyperslab.store.call import CallLayout

__all__ = ["ENCODED", "GAP_BYTES", "probe_body"]

_CELLS = np.dtype("<i4")
# How the chunks are stored: 64 KiB of cells, zstd, with a checksum.
ENCODED = CallLayout((1 << 14,), _CELLS, (0,), (Zstd(), Checksum("crc32c")))
# Between two chunks, so that they can be read one by one.
GAP_BYTES = 64
_MOST_CHUNKS, _DIFFERENT = 256, 8


def probe_body(nbytes: int) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """Return random bytes, and where in them encoded chunks lie: in half of them at most.

    Neither the store nor the line can make less of random or compressed bytes.
    """
    body, extents = bytearray(os.urandom(nbytes)), list[tuple[int, int]]()
    if nbytes < _DIFFERENT * ENCODED.nbytes:
        return bytes(body), ()
    encoder, chance = ChunkEncoder(_CELLS, (0,), DEFAULT, checksum=True), np.random.default_rng()
    # Small numbers, as counts and labels are: they have a few bits in each cell that cannot be foreseen.
    parts = [encoder.encode(chance.integers(0, 8, ENCODED.chunks, _CELLS)).tobytes() for _ in range(_DIFFERENT)]
    at = 0
    for number in range(_MOST_CHUNKS):
        part = parts[number % _DIFFERENT]
        if at + len(part) > nbytes // 2:
            break
        body[at : at + len(part)] = part
        extents.append((at, at + len(part)))
        at += len(part) + GAP_BYTES
    return bytes(body), tuple(extents)
