"""The filter pipeline of a dataset: what its chunks went through, as a decoder that undoes it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.hdf5.messages import FilterMessage
from hyperslab.formats.hdf5.plugin import PluginFilter
from hyperslab.layout.codecs import ByteArray, ChunkDecoder, Codec, Size, chunk_decoder
from hyperslab.layout.compressors import Blosc, Bz2, Zstd
from hyperslab.layout.filters import Shuffle
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, ScaleOffset

__all__ = ["Hdf5Decoder", "filter_names", "hdf5_decoder"]

# Names of filters that people know, by their registered numbers.
_NAMES = {
    1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 307: "bzip2", 32000: "lzf",
    32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32017: "sz", 32018: "fcidecomp",
    32023: "bitgroom", 32024: "sz3", 32026: "blosc2", 32028: "sperr",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hdf5Decoder:
    """Undoes the filters of a dataset's chunks, all of them or those that a chunk did not skip.

    `encoded` bounds the size of a stored chunk, whichever filters it went through.
    """

    codecs: tuple[Codec, ...]
    chunks: tuple[int, ...]
    stored: np.dtype[np.generic]
    encoded: Size
    _whole: ChunkDecoder = field(repr=False, compare=False)

    def decode(self, data: memoryview, key: str) -> npt.NDArray[np.generic]:
        """Return the cells of a chunk that went through all filters, shaped like the chunk."""
        return self._whole.decode(data, key)

    @property
    def names(self) -> tuple[str, ...]:
        """The filters, in the order in which they were applied."""
        return self._whole.names

    def for_mask(self, mask: int) -> "Hdf5Decoder | ChunkDecoder":
        """Return the decoder of chunks that skipped the filters whose bits are set: bit i for the i-th filter."""
        mask &= (1 << len(self.codecs)) - 1
        return _skipping(self.codecs, self.chunks, self.stored, mask) if mask else self

    def codecs_of(self, mask: int = 0) -> tuple[Codec, ...]:
        """Return the filters that changed a chunk with that mask, in the order in which they were applied."""
        used = [codec for bit, codec in enumerate(self.codecs) if not mask >> bit & 1]
        return tuple([codec for codec in used if not isinstance(codec, _Nothing)])


@lru_cache(maxsize=128)
def _skipping(
    codecs: tuple[Codec, ...], chunks: tuple[int, ...], stored: np.dtype[np.generic], mask: int
) -> ChunkDecoder:
    used = [codec for bit, codec in enumerate(codecs) if not mask >> bit & 1]
    return chunk_decoder(used, chunks=chunks, stored=stored, order=tuple(range(len(chunks))))


def hdf5_decoder(
    filters: tuple[FilterMessage, ...], chunks: tuple[int, ...], stored: np.dtype[np.generic]
) -> Hdf5Decoder:
    """Return the decoder of chunks of this shape and cell type that went through `filters`, in that order.

    >>> deflate = FilterMessage(1, "deflate", False, (4,))
    >>> decoder = hdf5_decoder((deflate,), (4,), np.dtype("<i2"))
    >>> decoder.for_mask(1).decode(memoryview(bytes([1, 0, 2, 0, 3, 0, 4, 0])), "c").tolist()
    [1, 2, 3, 4]
    """
    codecs = tuple([_codec(each, prod(chunks) * stored.itemsize, stored.itemsize) for each in filters])
    whole = chunk_decoder(codecs, chunks=chunks, stored=stored, order=tuple(range(len(chunks))))
    return Hdf5Decoder(codecs, chunks, stored, Size(whole.encoded.nbytes, exact=False), whole)


def filter_names(filters: tuple[FilterMessage, ...]) -> tuple[str, ...]:
    """Return the filters' names.

    >>> filter_names((FilterMessage(1, "", False, ()), FilterMessage(9999, "mine", False, ())))
    ('deflate', 'mine')
    """
    return tuple([_NAMES.get(each.id) or each.name or f"filter {each.id}" for each in filters])


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A filter that was set not to change anything."""

    name: str

    def encoded(self, size: Size) -> Size:
        return size

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        size.check(data.nbytes, key)
        return data


def _codec(message: FilterMessage, chunk_nbytes: int, cell_nbytes: int) -> Codec:
    (name,) = filter_names((message,))
    if (simple := _SIMPLE.get(message.id)) is not None:
        return simple()
    match message.id:
        case 2:
            width = message.values[0] if message.values else cell_nbytes
            if width < 1:
                raise MetadataError(f"filter shuffle has cells of {width} bytes; the file is damaged")
            return Shuffle(width)
        case 6:
            return _scale_offset(message.values, chunk_nbytes)
        case 32008:
            return _bit_shuffle(message.values)
    return PluginFilter(message.id, name, message.values)


_SIMPLE: dict[int, Callable[[], Codec]] = {
    1: Deflate,
    3: Fletcher32,
    307: Bz2,
    32001: Blosc,
    32004: BlockLz4,
    32015: Zstd,
}


def _scale_offset(values: tuple[int, ...], chunk_nbytes: int) -> Codec:
    """Return the codec of the values (scale type, factor, cells, class, bytes, sign, order, has fill, fill …)."""
    if len(values) < 8:
        raise MetadataError(f"filter scaleoffset has {len(values)} values, expected 8 at least")
    scale, factor, count, kind, nbytes, _, order, filled = values[:8]
    widths: tuple[Any, ...] = ((1, 2, 4, 8), (4, 8))
    if kind > 1 or nbytes not in widths[kind] or count * nbytes != chunk_nbytes or order > 1:
        raise MetadataError(f"filter scaleoffset of {count} cells of {nbytes} bytes, kind {kind}; the file is damaged")
    fill = b"".join([value.to_bytes(4, "little") for value in values[8:]])[:nbytes] if filled else None
    if fill is not None and len(fill) != nbytes:
        raise MetadataError("filter scaleoffset has a fill value that is cut off; the file is damaged")
    dtype = np.dtype(f"{'<>'[order]}{'uf'[kind]}{nbytes}")
    if kind == 0:
        return _Nothing("scaleoffset") if factor == 8 * nbytes else ScaleOffset(dtype, None, fill)
    if scale != 0:
        raise UnsupportedError("filter scaleoffset with an exponent as its scale; expected a number of digits")
    digits = factor - (1 << 32) if factor >> 31 else factor
    if abs(digits) > 400:
        raise MetadataError(f"filter scaleoffset keeps {digits} digits; the file is damaged")
    return ScaleOffset(dtype, digits, fill)


def _bit_shuffle(values: tuple[int, ...]) -> Codec:
    """Return the codec of the values (version, version, bytes of a cell, cells of a block, compressor, level)."""
    cell_nbytes, block_cells, compressor = (*values, 0, 0, 0, 0, 0)[2:5] if len(values) > 2 else (0, 0, 0)
    if cell_nbytes < 1:
        raise MetadataError(f"filter bitshuffle has cells of {cell_nbytes} bytes; the file is damaged")
    match compressor:
        case 0:
            return BitShuffle(cell_nbytes, block_cells, "none")
        case 2:
            return BitShuffle(cell_nbytes, block_cells, "lz4")
        case 3:
            return BitShuffle(cell_nbytes, block_cells, "zstd")
    raise UnsupportedError(f"filter bitshuffle with compressor {compressor}; known are 0 (none), 2 (lz4) and 3 (zstd)")
