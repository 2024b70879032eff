"""Zarr's codecs, from their JSON to what undoes them."""

import lzma
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.zarr.dtypes import DType, parse_dtype_v2
from hyperslab.formats.zarr.metadata import shown
from hyperslab.layout.checksums import Checksum, ChecksumName
from hyperslab.layout.codecs import ChunkDecoder, Codec, chunk_decoder
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose

__all__ = ["Config", "Encoding", "encoding_v2", "encoding_v3", "named_codec", "parse_order"]

Config = dict[str, Any]

_MAX_CODECS = 32
# Names of v3 that are numcodecs' too, and a name that drafts of v3 had for `bytes`.
_V3_BYTES_TO_BYTES = ("gzip", "zstd", "blosc", "crc32c")
_SERIALIZERS = ("bytes", "endian")
_ARRAY_FILTERS = ("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the cells of a chunk become bytes; without a decoder they lie there as they are."""

    stored: DType
    order: tuple[int, ...]
    decoder: ChunkDecoder | None


def encoding_v2(
    filters: Sequence[tuple[str, Config]], *, chunks: tuple[int, ...], dtype: DType, order: tuple[int, ...]
) -> Encoding:
    """Return the encoding of a v2 chunk; its compressor is the last of `filters`."""
    codecs: list[Codec] = []
    for name, config in _bounded(filters):
        if name != "bitround":  # only encoding rounds
            codecs.append(_retype(name, config) if name in _ARRAY_FILTERS else _codec(name, config, 4))
    decoder = chunk_decoder(codecs, chunks=chunks, stored=dtype, order=order) if codecs else None
    return Encoding(dtype, order, decoder)


def encoding_v3(codecs: Sequence[tuple[str, Config]], *, chunks: tuple[int, ...], dtype: DType) -> Encoding:
    """Return the encoding of a v3 chunk, by its chain of codecs."""
    before, serializer, after = _split(_bounded(codecs))
    order, filters, last = _array_stage(before, chunks, dtype)
    byte_order = _byte_order(serializer, last)
    chain = _with_byte_order(filters, byte_order)
    chain += [_codec(name.removeprefix("numcodecs."), config, last.itemsize) for name, config in after]
    # Filters give native cells; without them the cells are stored in the byte order of the bytes.
    stored = dtype if any(isinstance(each, Retype) for each in filters) else dtype.newbyteorder(byte_order)
    decoder = chunk_decoder(chain, chunks=chunks, stored=stored, order=order) if chain else None
    return Encoding(stored, order, decoder)


def named_codec(spec: Any, *, label: str = "name") -> tuple[str, Config]:
    """Return the name and the configuration of a codec: v3's form, or v2's with label 'id'."""
    if label == "id":
        if isinstance(spec, dict) and isinstance(spec.get("id"), str):
            return spec["id"], {name: value for name, value in spec.items() if name != "id"}
    elif isinstance(spec, str):
        return spec, {}
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        config = spec.get("configuration")
        if config is None or isinstance(config, dict):
            return spec["name"], config or {}
    raise MetadataError(f"codec {shown(spec)} is not an object with a {label!r}")


def parse_order(value: Any, ndim: int) -> tuple[int, ...]:
    """Return the order of axes that a transpose codec has."""
    if isinstance(value, list) and all(type(axis) is int for axis in value):
        if sorted(value) == list(range(ndim)):
            return tuple(value)
    elif value in ("C", "F"):  # drafts of v3 had these
        return tuple(range(ndim))[:: 1 if value == "C" else -1]
    raise MetadataError(f"transpose has the order {shown(value)}; expected each of {ndim} axes once")


def _bounded(codecs: Sequence[tuple[str, Config]]) -> Sequence[tuple[str, Config]]:
    if len(codecs) > _MAX_CODECS:
        raise MetadataError(f"the array has {len(codecs)} codecs; expected {_MAX_CODECS} at most")
    return codecs


def _split(
    codecs: Sequence[tuple[str, Config]],
) -> tuple[Sequence[tuple[str, Config]], Config, Sequence[tuple[str, Config]]]:
    """Cut a v3 chain at the codec that makes bytes of an array; refuse what is not known or out of place."""
    for name, _ in codecs:
        plain = name.removeprefix("numcodecs.")
        known = plain in (*_ARRAY_FILTERS, *_BYTE_CODECS) if name != plain else False
        if not (known or name in (*_V3_BYTES_TO_BYTES, *_SERIALIZERS, "transpose")):
            raise UnsupportedError(f"codec {shown(name)} is not supported")
    serializers = [at for at, (name, _) in enumerate(codecs) if name in _SERIALIZERS]
    if len(serializers) != 1:
        raise MetadataError(f"{len(serializers)} codecs turn cells into bytes; expected one, 'bytes'")
    at = serializers[0]
    for place, (name, _) in enumerate(codecs):
        of_array = name == "transpose" or name.removeprefix("numcodecs.") in _ARRAY_FILTERS
        if place != at and of_array != (place < at):
            raise MetadataError(f"codec {shown(name)} is on the wrong side of {codecs[at][0]!r}")
    return codecs[:at], codecs[at][1], codecs[at + 1 :]


def _array_stage(
    codecs: Sequence[tuple[str, Config]], chunks: tuple[int, ...], dtype: DType
) -> tuple[tuple[int, ...], list[Codec], DType]:
    """Return the order of axes, the filters after it, and the type that is turned into bytes."""
    order = tuple(range(len(chunks)))
    filters: list[Codec] = []
    shape, current = chunks, dtype
    for name, config in codecs:
        plain = name.removeprefix("numcodecs.")
        if plain == "transpose":
            axes = parse_order(config.get("order"), len(shape))
            if filters:
                filters.append(Transpose(shape, axes, current.itemsize))
            else:
                order = tuple(order[axis] for axis in axes)
            shape = tuple(shape[axis] for axis in axes)
        elif plain != "bitround":
            filters.append(step := _retype(plain, config, current))
            if isinstance(step, Retype):
                current = step.encoded_dtype
            else:
                shape, current = (1 + -(-prod(shape) // 8),), np.dtype("u1")
    return order, filters, current


def _with_byte_order(filters: Sequence[Codec], byte_order: Literal["<", ">"]) -> list[Codec]:
    """Give the last filter's output the byte order in which it is stored."""
    chain = list(filters)
    for at in range(len(chain) - 1, -1, -1):
        step = chain[at]
        if isinstance(step, Retype):
            stored = step.encoded_dtype.newbyteorder(byte_order)
            chain[at] = Retype(step.name, step.decoded_dtype, stored, step.options)
        if not isinstance(step, Transpose):
            break
    return chain


def _byte_order(config: Config, dtype: DType) -> Literal["<", ">"]:
    endian = config.get("endian")
    if endian in ("little", "big"):
        return "<" if endian == "little" else ">"
    if endian is None and (dtype.kind in "bSV" or dtype.itemsize == 1):
        return "<"  # structures without a byte order: zarr-python writes them little-endian
    raise MetadataError(f"codec 'bytes' has endian {shown(endian)} for {dtype}; expected 'little' or 'big'")


def _retype(name: str, config: Config, dtype: DType | None = None) -> Codec:
    """Return a filter of cells. With a `dtype`, that of the cells, it is one of v3: without byte orders."""
    if name == "packbits":
        if dtype is not None and dtype.kind != "b":
            raise MetadataError(f"filter 'packbits' of cells of type {dtype}; expected bool")
        return PackBits()
    decoded_name, encoded_name = ("decode_dtype", "encode_dtype") if name == "astype" else ("dtype", "astype")
    v3 = dtype is not None
    decoded = _cell_type(name, config.get(decoded_name), dtype, v3=v3)
    encoded = _cell_type(name, config.get(encoded_name), None if name == "astype" else decoded, v3=v3)
    if dtype is not None and decoded.itemsize != dtype.itemsize:
        raise MetadataError(f"filter {name!r} is for {decoded}, the cells are {dtype}")
    allowed = {"delta": "iufc", "fixedscaleoffset": "iuf", "quantize": "f", "astype": "biufcmM"}[name]
    if decoded.kind not in allowed or encoded.kind not in allowed:
        raise UnsupportedError(f"filter {name!r} from {decoded} to {encoded} is not supported")
    numbers = {"fixedscaleoffset": ("offset", "scale"), "quantize": ("digits",)}.get(name, ())
    options = tuple((number, _number(name, number, config.get(number))) for number in numbers)
    if ("scale", 0) in options:
        raise MetadataError("filter 'fixedscaleoffset' has a scale of 0")
    return Retype(name, decoded, encoded, options)  # type: ignore[arg-type]


def _cell_type(name: str, spec: Any, default: DType | None, *, v3: bool) -> DType:
    if spec is None and default is not None:
        return default
    if isinstance(spec, str) and spec in _TYPE_NAMES:
        return np.dtype(spec)
    if isinstance(spec, str) and spec[:1] in tuple("biufc"):
        spec = "<" + spec  # NumPy's short form
    dtype = parse_dtype_v2(spec)
    if v3 and dtype.byteorder == ">":
        raise UnsupportedError(f"filter {name!r} with the byte order of {shown(spec)} is not supported in v3")
    return dtype


_TYPE_NAMES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefdFD")


def _number(name: str, what: str, value: Any) -> int | float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e300:
        raise MetadataError(f"filter {name!r} has the {what} {shown(value)}; expected a number")
    return value  # type: ignore[no-any-return]


def _codec(name: str, config: Config, itemsize: int) -> Codec:
    """Return a codec of bytes by its numcodecs id; `itemsize` is what shuffle assumes by default."""
    if name not in _BYTE_CODECS:
        raise UnsupportedError(f"codec {shown(name)} is not supported")
    return _BYTE_CODECS[name](config, itemsize)


def _lzma(config: Config, _: int) -> Codec:
    kind = config.get("format", lzma.FORMAT_XZ)
    if type(kind) is not int or not lzma.FORMAT_AUTO <= kind <= lzma.FORMAT_RAW:
        raise UnsupportedError(f"codec 'lzma' with the format {shown(kind)} is not supported")
    filters = config.get("filters") if kind == lzma.FORMAT_RAW else []
    if not isinstance(filters, list) or len(filters) > 4 or (kind == lzma.FORMAT_RAW and not filters):
        raise MetadataError(f"codec 'lzma' has the filters {shown(filters)}; expected one to four")
    return Lzma(kind, tuple(_lzma_filter(each) for each in filters))


def _lzma_filter(spec: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(spec, dict) or not all(type(value) is int for value in spec.values()):
        raise MetadataError(f"codec 'lzma' has the filter {shown(spec)}; expected numbers under names")
    if not 0 <= spec.get("dict_size", 0) <= 512 << 20:
        raise UnsupportedError(f"codec 'lzma' with the filter {shown(spec)} is not supported")
    return tuple(spec.items())


def _shuffle(config: Config, itemsize: int) -> Codec:
    elementsize = config.get("elementsize")
    elementsize = itemsize if elementsize is None else elementsize
    if type(elementsize) is not int or not 0 <= elementsize < 2**31:
        raise MetadataError(f"codec 'shuffle' has the elementsize {shown(elementsize)}; expected 1 or more")
    return Shuffle(max(1, elementsize))


def _checksum(name: ChecksumName, default: str) -> Callable[[Config, int], Codec]:
    def build(config: Config, _: int) -> Codec:
        location, initial = config.get("location", default), config.get("initval", 0)
        if location not in ("start", "end") or type(initial) is not int or not 0 <= initial < 2**32:
            raise MetadataError(f"codec {name!r} has the configuration {shown(config)}")
        if config.get("prefix") is not None:
            raise UnsupportedError(f"codec {name!r} with a prefix is not supported")
        return Checksum(name, location, initial)

    return build


_BYTE_CODECS: dict[str, Callable[[Config, int], Codec]] = {
    "blosc": lambda config, _: Blosc(),
    "bz2": lambda config, _: Bz2(),
    "gzip": lambda config, _: Zlib("gzip"),
    "lz4": lambda config, _: Lz4(),
    "lzma": _lzma,
    "zlib": lambda config, _: Zlib("zlib"),
    "zstd": lambda config, _: Zstd(),
    "shuffle": _shuffle,
    "adler32": _checksum("adler32", "start"),
    "crc32": _checksum("crc32", "start"),
    "crc32c": _checksum("crc32c", "end"),
    "fletcher32": _checksum("fletcher32", "end"),
    "jenkins_lookup3": _checksum("jenkins_lookup3", "end"),
}
