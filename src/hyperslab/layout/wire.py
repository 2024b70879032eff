"""Codecs and cell types as JSON: how chunks are described to a function that decodes them elsewhere.

Both ways are strict. Only what is listed here travels, and every figure that comes back is checked, as it
may come from anybody.
"""

import math
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.codecs import Codec
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, ScaleOffset
from hyperslab.layout.layout import Layout

__all__ = [
    "JOINED_BYTES",
    "MOST_AXES",
    "codecs_from_json",
    "codecs_to_json",
    "dtype_from_json",
    "dtype_to_json",
    "travels",
]

# The longest range that chunks of one object are read together by, beside the data.
JOINED_BYTES = 16 << 20

DType = np.dtype[np.generic]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 100

# What NumPy allows at most.
MOST_AXES = 64
_MOST_CODECS = 64
_MOST_ITEM_BYTES = 2**31 - 1
_MOST_FIELDS = 4096
_MOST_DEPTH = 16
_MOST_NAME = 1024

_UNITS = "Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as|generic"
_CELL = re.compile(
    r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|S(?P<bytes>[0-9]{1,10})|V(?P<raw>[0-9]{1,10})|U(?P<text>[0-9]{1,10})"
    rf"|[mM]8(?:\[(?P<step>[0-9]{{1,10}})?(?:{_UNITS})\])?)"
)


def dtype_to_json(dtype: DType) -> Any:
    """Return a cell's type: a text such as '<i4', a mapping for one with fields or of several cells.

    >>> dtype_to_json(np.dtype([("a", "<i2"), ("b", "S3", (2,))]))
    {'fields': [['a', '<i2', 0], ['b', {'base': '|S3', 'shape': [2]}, 2]], 'nbytes': 8}
    """
    if dtype.hasobject:
        raise UnsupportedError(f"cells of type {dtype} are objects, which do not travel")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": dtype_to_json(base), "shape": list(shape)}
    if dtype.fields is not None and dtype.names is not None:
        fields = [[name, dtype_to_json(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "nbytes": dtype.itemsize}
    if _CELL.fullmatch(dtype.str) is None:
        raise UnsupportedError(f"cells of type {dtype} do not travel")
    return dtype.str


def dtype_from_json(spec: Any) -> DType:
    """Return the type that `dtype_to_json` described.

    >>> dtype_from_json({"base": ">f8", "shape": [2]})
    dtype(('>f8', (2,)))
    """
    return _dtype(spec, 0, [_MOST_FIELDS])


def travels(layout: Layout) -> str | None:
    """Say why chunks of a layout cannot be called for; None if they can."""
    try:
        dtype_to_json(layout.stored)
        if layout.decoder is not None:
            codecs_to_json(layout.decoder.codecs_of())
    except UnsupportedError as error:
        return str(error)
    if not layout.chunk_nbytes:
        return "its chunks hold no bytes"
    if layout.stored.itemsize > _MOST_ITEM_BYTES or len(layout.chunks) > MOST_AXES:
        return "its cells are too large or have too many axes"
    return None


def codecs_to_json(codecs: Iterable[Codec]) -> list[dict[str, Any]]:
    """Return a description of codecs, in the order of encoding.

    >>> codecs_to_json([Shuffle(4), Zstd()])
    [{'codec': 'shuffle', 'cell_nbytes': 4}, {'codec': 'zstd'}]
    """
    return [_codec_to_json(codec) for codec in codecs]


def codecs_from_json(specs: Any) -> tuple[Codec, ...]:
    """Return the codecs that `codecs_to_json` described.

    >>> codecs_from_json([{"codec": "pickle"}])
    Traceback (most recent call last):
    ...
    hyperslab.errors.UnsupportedError: codec 'pickle' does not travel; known are adler32, astype, bitshuffle, ...
    """
    if not isinstance(specs, list) or len(specs) > _MOST_CODECS:
        _bad("codecs", specs, f"a list of {_MOST_CODECS} at most")
    return tuple([_codec_from_json(spec) for spec in specs])


@dataclass(frozen=True, slots=True)
class _Form:
    """How one codec is written: its fields, by their names in JSON, each with who writes and who reads it."""

    kind: type
    fields: tuple[tuple[str, str, Callable[[Any], Any], Callable[[str, Any], Any]], ...] = ()
    # What the name in JSON stands for, where one class is several codecs.
    given: tuple[tuple[str, Any], ...] = ()


def _codec_to_json(codec: Codec) -> dict[str, Any]:
    for name, form in _FORMS.items():
        if type(codec) is form.kind and all([getattr(codec, field) == value for field, value in form.given]):
            return {"codec": name} | {key: write(getattr(codec, field)) for key, field, write, _ in form.fields}
    raise UnsupportedError(f"codec {codec.name!r} is not one that travels")


def _codec_from_json(spec: Any) -> Codec:
    if not isinstance(spec, dict):
        _bad("a codec", spec, "a mapping")
    name = spec.get("codec")
    form = _FORMS.get(name) if isinstance(name, str) else None
    if form is None:
        raise UnsupportedError(f"codec {_shown(name)} does not travel; known are {', '.join(sorted(_FORMS))}")
    if spec.keys() != {"codec", *[key for key, *_ in form.fields]}:
        _bad(f"codec {name!r}", sorted(map(str, spec)), f"the fields {[key for key, *_ in form.fields]}")
    given = dict(form.given) | {field: read(f"{name}.{key}", spec[key]) for key, field, _, read in form.fields}
    codec: Codec = form.kind(**given)
    if isinstance(codec, Retype):
        _check_retype(codec)
    if isinstance(codec, ScaleOffset):
        _check_scale_offset(codec)
    return codec


def _check_retype(codec: Retype) -> None:
    allowed = {"delta": "iufc", "fixedscaleoffset": "iuf", "quantize": "f", "astype": "biufcmM"}[codec.name]
    if codec.decoded_dtype.kind not in allowed or codec.encoded_dtype.kind not in allowed:
        raise UnsupportedError(
            f"codec {codec.name!r} from {codec.decoded_dtype} to {codec.encoded_dtype} is not supported"
        )
    numbers = {"fixedscaleoffset": ("offset", "scale"), "quantize": ("digits",)}.get(codec.name, ())
    if tuple([name for name, _ in codec.options]) != numbers or ("scale", 0) in codec.options:
        _bad(f"{codec.name}.options", dict(codec.options), f"{list(numbers)}, a scale other than 0")


def _check_scale_offset(codec: ScaleOffset) -> None:
    kind, nbytes = codec.dtype.kind, codec.dtype.itemsize
    if kind not in "uf" or (kind == "f" and nbytes < 4) or (codec.digits is None) != (kind == "u"):
        _bad("hdf5-scaleoffset", str(codec.dtype), "unsigned integers, or floats with digits")
    if codec.fill is not None and len(codec.fill) != nbytes:
        _bad("hdf5-scaleoffset.fill", codec.fill.hex(), f"{nbytes} bytes")


def _dtype(spec: Any, depth: int, left: list[int]) -> DType:
    """Return a type; `left` is how many fields there may still be in all of it."""
    if depth > _MOST_DEPTH:
        _bad("a type", "more", f"{_MOST_DEPTH} types within one another at most")
    if isinstance(spec, str):
        dtype = _cell_type(spec)
    elif isinstance(spec, dict) and spec.keys() == {"base", "shape"}:
        dtype = _several(spec, depth, left)
    elif isinstance(spec, dict) and spec.keys() == {"fields", "nbytes"}:
        dtype = _structure(spec, depth, left)
    else:
        _bad("a type", spec, "a text such as '<i4', or fields")
    if not 1 <= dtype.itemsize <= _MOST_ITEM_BYTES:
        _bad("a type", spec, "cells of 1 byte to 2 GiB")
    return dtype


def _cell_type(spec: str) -> DType:
    found = _CELL.fullmatch(spec[:64])
    if found is None or len(spec) > 64:
        raise UnsupportedError(f"cells of type {_shown(spec)} do not travel")
    length = int(found["bytes"] or found["raw"] or 0) + 4 * int(found["text"] or 0)
    if length > _MOST_ITEM_BYTES or (found["step"] and not 0 < int(found["step"]) < 2**31):
        _bad("a type", spec, "cells of at most 2 GiB, times of a step below 2^31")
    try:
        return np.dtype(spec)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedError(f"cells of type {spec!r} do not travel: {error}") from error


def _several(spec: dict[str, Any], depth: int, left: list[int]) -> DType:
    base, shape = _dtype(spec["base"], depth + 1, left), _shape("shape", spec["shape"])
    if not shape or base.itemsize * math.prod(shape) > _MOST_ITEM_BYTES:
        _bad("a type's shape", spec["shape"], "some axes, cells of at most 2 GiB")
    return np.dtype((base, shape))


def _structure(spec: dict[str, Any], depth: int, left: list[int]) -> DType:
    fields, nbytes = spec["fields"], _whole("nbytes", spec["nbytes"], 1, _MOST_ITEM_BYTES)
    if not isinstance(fields, list) or not 1 <= len(fields) <= left[0]:
        _bad("a type's fields", fields, f"1 to {_MOST_FIELDS} in all")
    left[0] -= len(fields)
    names, formats, offsets = [], [], []
    for field in fields:
        if not isinstance(field, list) or len(field) != 3 or not isinstance(field[0], str):
            _bad("a field", field, "[name, type, offset]")
        if not field[0] or len(field[0]) > _MOST_NAME:
            _bad("a field's name", field[0], f"1 to {_MOST_NAME} characters")
        inner = _dtype(field[1], depth + 1, left)
        names.append(field[0])
        formats.append(inner)
        offsets.append(_whole("offset", field[2], 0, nbytes - inner.itemsize))
    try:
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})
    except (TypeError, ValueError) as error:
        raise MetadataError(f"fields {_shown(names)} make no type: {error}") from error


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        _bad(name, value, f"a whole number from {low} to {high}")
    return value


def _reads(low: int, high: int) -> Callable[[str, Any], int]:
    return partial(_whole, low=low, high=high)


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            _bad(name, value, " or ".join(map(repr, known)))
        return value

    return read


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_AXES:
        _bad(name, value, f"a list of {MOST_AXES} numbers at most")
    return tuple([_whole(name, n, 1, 2**62) for n in value])


def _order(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_AXES or any([type(n) is not int for n in value]):
        _bad(name, value, "a list of axes")
    if sorted(value) != list(range(len(value))):
        _bad(name, value, "every axis once")
    return tuple(value)


def _options(name: str, value: Any) -> tuple[tuple[str, int | float], ...]:
    good = isinstance(value, dict) and len(value) <= 2
    good = good and all([type(n) in (int, float) and abs(n) <= 1e300 for n in value.values()])
    if not good:
        _bad(name, value, "two numbers at most")
    return tuple(sorted(value.items()))


_LZMA_NAMES = frozenset(
    ["id", "preset", "dict_size", "lc", "lp", "pb", "mode", "nice_len", "mf", "depth", "dist", "start_offset"]
)


def _lzma_filters(name: str, value: Any) -> tuple[tuple[tuple[str, int], ...], ...]:
    if not isinstance(value, list) or len(value) > 4:
        _bad(name, value, "four filters at most")
    for each in value:
        good = isinstance(each, dict) and each.keys() <= _LZMA_NAMES
        good = good and all([type(n) is int and 0 <= n < 2**63 for n in each.values()])
        if not good or each.get("dict_size", 0) > 512 << 20:
            _bad(name, each, "numbers under lzma's names, a dictionary of 512 MiB at most")
    return tuple([tuple(each.items()) for each in value])


def _optional(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else read(name, value)


def _bytes(name: str, value: Any) -> bytes:
    if not isinstance(value, str) or not re.fullmatch(r"(?:[0-9a-f]{2}){1,16}", value):
        _bad(name, value, "up to 16 bytes as hexadecimal digits")
    return bytes.fromhex(value)


def _same(value: Any) -> Any:
    return value


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


_TYPE = (dtype_to_json, lambda _, spec: dtype_from_json(spec))
_WIDTH = (_same, _reads(1, 2**31 - 1))
_RETYPE = (
    ("decoded", "decoded_dtype", *_TYPE),
    ("encoded", "encoded_dtype", *_TYPE),
    ("options", "options", dict, _options),
)
_CHECKSUM = (
    ("location", "location", _same, _one_of("start", "end")),
    ("initial", "initial", _same, _reads(0, 2**32 - 1)),
)
_LZMA = (
    ("format", "format", _same, _reads(0, 3)),
    ("filters", "filters", lambda filters: [dict(each) for each in filters], _lzma_filters),
)
_TRANSPOSE = (
    ("shape", "shape", list, _shape),
    ("order", "order", list, _order),
    ("cell_nbytes", "itemsize", *_WIDTH),
)
_SCALE_OFFSET = (
    ("type", "dtype", *_TYPE),
    ("digits", "digits", _same, _optional(_reads(-400, 400))),
    ("fill", "fill", _hex, _optional(_bytes)),
)
_BIT_SHUFFLE = (
    ("cell_nbytes", "cell_nbytes", *_WIDTH),
    ("block_cells", "block_cells", _same, _reads(0, 2**32 - 1)),
    ("compressor", "compressor", _same, _one_of("none", "lz4", "zstd")),
)
_FORMS: dict[str, _Form] = {
    "zlib": _Form(Zlib, given=(("name", "zlib"),)),
    "gzip": _Form(Zlib, given=(("name", "gzip"),)),
    "bz2": _Form(Bz2),
    "lzma": _Form(Lzma, _LZMA),
    "lz4": _Form(Lz4),
    "zstd": _Form(Zstd),
    "blosc": _Form(Blosc),
    "shuffle": _Form(Shuffle, (("cell_nbytes", "elementsize", *_WIDTH),)),
    "packbits": _Form(PackBits),
    "transpose": _Form(Transpose, _TRANSPOSE),
    **{name: _Form(Retype, _RETYPE, (("name", name),)) for name in ("astype", "delta", "fixedscaleoffset", "quantize")},
    **{
        name: _Form(Checksum, _CHECKSUM, (("name", name),))
        for name in ("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3")
    },
    "hdf5-deflate": _Form(Deflate),
    "hdf5-fletcher32": _Form(Fletcher32),
    "hdf5-scaleoffset": _Form(ScaleOffset, _SCALE_OFFSET),
    "hdf5-lz4": _Form(BlockLz4),
    "bitshuffle": _Form(BitShuffle, _BIT_SHUFFLE),
}


def _bad(name: str, found: Any, expected: str) -> NoReturn:
    raise MetadataError(f"{name} is {_shown(found)}; expected {expected}")


def _shown(value: Any) -> str:
    # Bounded in length and depth, whatever was sent.
    return _REPR.repr(value)
