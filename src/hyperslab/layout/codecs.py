"""Decoding chunks: the codecs of a chunk undone one by one, each held to the size it must give."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError, HyperslabError, IntegrityError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ByteArray", "ChunkDecoder", "Codec", "Size", "chunk_decoder", "numcodec"]

# Bytes on their way through the codecs: one axis, contiguous, often a view of what was fetched.
ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Size:
    """How many bytes a codec must give: `nbytes` exactly, or at most so many.

    >>> Size(8, exact=True).fits(7), Size(8, exact=False).fits(7)
    (False, True)
    """

    nbytes: int
    exact: bool

    def fits(self, nbytes: int) -> bool:
        return nbytes == self.nbytes or (not self.exact and nbytes < self.nbytes)

    def check(self, nbytes: int, key: str) -> None:
        """Raise ChunkSizeError if `nbytes` is not what the chunk must hold here."""
        if not self.fits(nbytes):
            raise ChunkSizeError(key, nbytes, self.nbytes)


class Codec(Protocol):
    """One codec of a chain: knows what it made of a chunk's size, and undoes itself."""

    @property
    def name(self) -> str: ...

    def encoded(self, size: Size) -> Size:
        """Return the size that bytes of `size` have once encoded."""
        ...

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        """Return the decoded bytes, which must fit `size`; never allocates much more than that."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkDecoder:
    """Undoes a chunk's codecs.

    `stages` are in the order of decoding, each with the size it must give. The bytes they end in
    are cells of type `stored`, row-major over the axes in `order`. `encoded` is the size of a stored chunk.
    """

    chunks: tuple[int, ...]
    stored: np.dtype[np.generic]
    order: tuple[int, ...]
    stages: tuple[tuple[Codec, Size], ...]
    encoded: Size
    # Worked out once, as every chunk asks for them: bytes of the cells, and from one to the next along each axis.
    _nbytes: int = field(init=False, repr=False, compare=False)
    _strides: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strides, step = dict[int, int](), self.stored.itemsize
        for axis in reversed(self.order):
            strides[axis], step = step, step * self.chunks[axis]
        object.__setattr__(self, "_nbytes", step)
        object.__setattr__(self, "_strides", tuple([strides[axis] for axis in range(len(self.chunks))]))

    def decode(self, data: memoryview, key: str) -> npt.NDArray[np.generic]:
        """Return the chunk's cells, shaped like the chunk; a view of `data` where nothing was compressed."""
        flat: ByteArray = np.frombuffer(data, np.uint8)
        for codec, size in self.stages:
            try:
                flat = codec.decode(flat, size, key)
            except (HyperslabError, MemoryError):
                raise
            except ImportError as error:
                raise UnsupportedError(f"codec {codec.name!r} needs a package that is missing: {error}") from error
            except Exception as error:
                # Codecs raise whatever their library does; all of it means that these bytes do not decode.
                raise IntegrityError(f"chunk {key!r} is damaged: {codec.name} cannot decode it ({error})") from error
        if flat.nbytes != self._nbytes:
            raise ChunkSizeError(key, flat.nbytes, self._nbytes)
        return np.ndarray(self.chunks, self.stored, flat, 0, self._strides)

    @property
    def names(self) -> tuple[str, ...]:
        """The codecs, in the order of encoding."""
        return tuple([codec.name for codec, _ in reversed(self.stages)])

    def for_mask(self, mask: int) -> "ChunkDecoder":
        """Return the decoder of chunks that lack some of the codecs: bit n stands for the n-th in order of encoding."""
        return chunk_decoder(self.codecs_of(mask), chunks=self.chunks, stored=self.stored, order=self.order)

    def codecs_of(self, mask: int = 0) -> tuple[Codec, ...]:
        """Return the codecs that a chunk with that mask went through, in the order of encoding."""
        codecs = [codec for codec, _ in reversed(self.stages)]
        return tuple([codec for n, codec in enumerate(codecs) if not mask >> n & 1])


def chunk_decoder(
    codecs: "Iterable[Codec]",
    *,
    chunks: tuple[int, ...],
    stored: np.dtype[np.generic],
    order: tuple[int, ...],
) -> ChunkDecoder:
    """Return the decoder of chunks that `codecs` encoded, given in the order of encoding."""
    size = Size(prod(chunks) * stored.itemsize, exact=True)
    stages: list[tuple[Codec, Size]] = []
    for codec in codecs:
        stages.append((codec, size))
        size = codec.encoded(size)
    return ChunkDecoder(chunks, stored, order, tuple(reversed(stages)), size)


@lru_cache(maxsize=128)
def numcodec(*config: tuple[str, Any]) -> Any:
    """Return the numcodecs codec of that configuration.

    Imported on first use: a tenth of a second that only encoded arrays need to spend.
    """
    # The package, not its registry: that is filled only once all of it is imported, maybe by another thread.
    import numcodecs  # type: ignore[import-untyped,unused-ignore]

    return numcodecs.get_codec(dict(config))
