"""Packs: objects that hold arrays one after the other. To the planner a pack is a plain array of bytes in one chunk."""

import secrets
from functools import lru_cache

import numpy as np

from hyperslab.collections.blocks import PACK_NAME_BYTES
from hyperslab.collections.manifest import join
from hyperslab.layout import Layout
from hyperslab.layout.layout import SingleKey

__all__ = ["DEFAULT_BYTES", "NO_PACK", "Pack", "pack_key", "pack_layout"]

# Large enough that a million small arrays are some hundred objects, small enough to be kept whole in a cache.
DEFAULT_BYTES = 16 << 20
# The pack of arrays without cells, and of names that are gone.
NO_PACK = bytes(PACK_NAME_BYTES)


class Pack:
    """A pack that is being filled."""

    def __init__(self, name: bytes | None = None) -> None:
        self.name = secrets.token_bytes(PACK_NAME_BYTES) if name is None else name
        self.data = bytearray()

    def add(self, cells: memoryview) -> int:
        """Take in the bytes of an array; return where they begin."""
        start = len(self.data)
        self.data += cells
        return start


def pack_key(path: str, name: str) -> str:
    return join(path, f"packs/{name}.pack")


@lru_cache(maxsize=1024)
def pack_layout(key: str, nbytes: int) -> Layout:
    """Return the layout of a pack of so many bytes."""
    byte = np.dtype(np.uint8)
    return Layout(
        shape=(nbytes,), dtype=byte, chunks=(nbytes,), keys=SingleKey(key), fill=np.zeros((), byte), stored=byte,
        order=(0,), sparse=False,
    )  # fmt: skip
