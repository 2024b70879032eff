"""Zstandard by engines that are used again: to make one takes as long as a small chunk.

An engine serves one thread at a time. Those that nobody uses wait in a list, as taking one out is one step.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["compress", "decompress", "error"]

# Compressors of more memory are not kept.
_KEPT_BYTES = 4 << 20

ByteArray = npt.NDArray[np.uint8]


def decompress(data: ByteArray, nbytes: int) -> ByteArray:
    """Return the `nbytes` that one frame holds, which states them and fills all of `data`.

    Raises ValueError if it states something else, before anything is allocated, and whatever the library does.

    >>> decompress(np.frombuffer(compress(b"hello", 1), np.uint8), 5).tobytes()
    b'hello'
    """
    waiting, stated = _decompressors()
    if stated(data) != nbytes:
        raise ValueError(f"the frame does not state that it holds {nbytes} bytes")
    try:
        engine = waiting.pop()
    except IndexError:
        import zstandard

        engine = zstandard.ZstdDecompressor()
    held = engine.decompress(data, allow_extra_data=False)
    # One that has failed is not used again.
    waiting.append(engine)
    return np.frombuffer(held, np.uint8)


def compress(data: ByteArray | memoryview | bytes, level: int, parts: int = 1) -> bytes:
    """Return bytes as one frame, which states its size; blocks of it end where each of so many equal parts does."""
    waiting = _compressors(level)
    try:
        engine = waiting.pop()
    except IndexError:
        import zstandard

        engine = zstandard.ZstdCompressor(level)
    made: bytes = engine.compress(data) if parts == 1 else _in_parts(engine, data, parts)
    # One that has become large is let go: to make another takes little of the time that what made it large did.
    if engine.memory_size() <= _KEPT_BYTES:
        waiting.append(engine)
    return made


def _in_parts(engine: Any, data: ByteArray | memoryview | bytes, parts: int) -> bytes:
    from zstandard import COMPRESSOBJ_FLUSH_BLOCK

    stream, each, made = engine.compressobj(size=len(data)), -(-len(data) // parts), []
    for start in range(0, len(data), each):
        made += [stream.compress(data[start : start + each]), stream.flush(COMPRESSOBJ_FLUSH_BLOCK)]
    return b"".join([*made, stream.flush()])


def error() -> type[Exception]:
    """Return what `decompress` raises."""
    from zstandard import ZstdError

    return ZstdError


@lru_cache(maxsize=1)
def _decompressors() -> tuple[list[Any], Callable[[Any], int]]:
    """Return the engines that wait, and what says how much a frame states to hold."""
    import zstandard

    return [], zstandard.frame_content_size


@lru_cache(maxsize=32)
def _compressors(level: int) -> list[Any]:
    return []
