"""Zarr's data types and fill values, as NumPy's."""

import re
import struct
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.zarr.metadata import shown

__all__ = ["parse_dtype_v2", "parse_dtype_v3", "parse_fill"]

DType = np.dtype[np.generic]

_NUMBERS = frozenset(
    ["bool", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
# Names of fixed-length types, those of older releases of zarr-python included.
_FIXED_LENGTH = {
    "fixed_length_ascii": "S",
    "fixed_length_ucs4": "U",
    "fixed_length_utf32": "U",
    "null_terminated_bytes": "S",
    "raw_bytes": "V",
}
_TIMES = {"numpy.datetime64": "M8", "numpy.timedelta64": "m8"}
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic")
_TYPE_STRING = re.compile(
    r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[SUV](?P<length>[0-9]{1,10})"
    rf"|[mM]8(?:\[(?P<step>[0-9]{{0,10}})(?:{'|'.join(_UNITS)})\])?)"
)
_MAX_ITEM_BYTES = 2**31 - 1
_MAX_FIELDS_DEPTH = 16


def parse_dtype_v3(spec: Any, *, depth: int = 0) -> DType:
    """Return the type of a v3 `data_type`, in native byte order.

    >>> parse_dtype_v3({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 10}})
    dtype('<M8[10s]')
    """
    name, config = _named(spec)
    if name in _NUMBERS and not config:
        return np.dtype(name)
    if raw := re.fullmatch(r"r([0-9]{1,12})", name):
        if int(raw[1]) % 8:
            raise UnsupportedError(f"data type {name!r}: only whole bytes are supported")
        return _sized("V", int(raw[1]) // 8)
    if name in _FIXED_LENGTH:
        return _sized(_FIXED_LENGTH[name], _length_bytes(name, config))
    if name in _TIMES:
        return _time(name, config)
    if name in ("struct", "structured"):
        pairs = [_v3_field(field) for field in _list(config.get("fields"), "the fields of a structure")]
        return _structure([(field, inner, None) for field, inner in pairs], parse_dtype_v3, depth)
    raise UnsupportedError(f"data type {shown(spec)} is not supported")


def parse_dtype_v2(spec: Any, *, depth: int = 0) -> DType:
    """Return the type of a v2 `dtype`: a string such as '<i4', or a list of fields.

    >>> parse_dtype_v2([["a", ">i2"], ["b", "|S3"]])
    dtype([('a', '>i2'), ('b', 'S3')])
    """
    if isinstance(spec, list):
        return _structure([_v2_field(field) for field in spec], parse_dtype_v2, depth)
    found = _TYPE_STRING.fullmatch(spec) if isinstance(spec, str) else None
    if found is None:
        raise UnsupportedError(f"dtype {shown(spec)} is not supported")
    if found["length"]:
        letter, length = spec[1], int(found["length"])
        return _sized(letter, length * (4 if letter == "U" else 1)).newbyteorder(spec[0])
    if found["step"] and not 0 < int(found["step"]) < 2**31:
        raise MetadataError(f"dtype {spec!r} has a step that is not between 1 and 2147483647")
    dtype: DType = np.dtype(spec)
    return dtype


def parse_fill(value: Any, dtype: DType) -> npt.NDArray[np.generic]:
    """Return a fill value as an array without axes, from any of the forms that JSON has for it.

    >>> parse_fill("-Infinity", np.dtype("float32")).item()
    -inf
    """
    try:
        with np.errstate(all="ignore"):
            fill = _fill(value, dtype)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise MetadataError(f"fill value {shown(value)} is not one of type {dtype}: {error}") from error
    fill.flags.writeable = False
    return fill


def _fill(value: Any, dtype: DType) -> npt.NDArray[np.generic]:
    if value is None:
        return _default(dtype)
    if dtype.kind in "SUV" and type(value) is int and value == 0:
        return np.zeros((), dtype)
    if dtype.kind == "V" and not isinstance(value, dict):
        return _fill_bytes(value, dtype)
    if dtype.fields is not None:
        return _fill_fields(value, dtype)
    if dtype.kind in "mM":
        return np.array(_integer_or_nat(value), "i8").view(dtype.newbyteorder("=")).astype(dtype)
    filled = _FILL_OF_KIND[dtype.kind](value)
    if dtype.kind in "iu" and not np.iinfo(dtype.name).min <= filled <= np.iinfo(dtype.name).max:
        raise OverflowError("it is out of range")
    return np.array(filled, dtype)


def _default(dtype: DType) -> npt.NDArray[np.generic]:
    return np.array("NaT", dtype) if dtype.kind in "mM" else np.zeros((), dtype)


def _fill_bytes(value: Any, dtype: DType) -> npt.NDArray[np.generic]:
    raw = bytes(value) if isinstance(value, list) else _base64(value)
    if len(raw) != dtype.itemsize:
        raise ValueError(f"it has {len(raw)} bytes, expected {dtype.itemsize}")
    return np.frombuffer(raw, dtype)[0:1].reshape(()).copy()


def _fill_fields(value: Any, dtype: DType) -> npt.NDArray[np.generic]:
    assert dtype.fields is not None
    fill = np.zeros((), dtype)
    if set(value) - set(dtype.fields):
        raise ValueError("it names fields that the type does not have")
    for name, part in value.items():
        fill[name] = _fill(part, dtype.fields[name][0])
    return fill


def _boolean(value: Any) -> bool:
    if isinstance(value, bool | int) and value in (0, 1):
        return bool(value)
    raise TypeError("expected true or false")


def _integer(value: Any) -> int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise TypeError("expected an integer")


def _integer_or_nat(value: Any) -> int:
    return -(2**63) if value == "NaT" else _integer(value)


def _real(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("0x"):
        digits = value[2:]
        code = {4: ">f2", 8: ">f4", 16: ">f8"}.get(len(digits))
        if code is None:
            raise ValueError("expected 4, 8 or 16 hexadecimal digits")
        return np.frombuffer(bytes.fromhex(digits), code)[0]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return float(value)
    raise TypeError("expected a number")


def _complex(value: Any) -> complex:
    if isinstance(value, list):
        if len(value) != 2:
            raise ValueError("expected a pair")
        return complex(_real(value[0]), _real(value[1]))
    return complex(_real(value))


def _base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("expected base64")
    return b64decode(value, validate=True)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


_FILL_OF_KIND: dict[str, Callable[[Any], Any]] = {
    "b": _boolean,
    "i": _integer,
    "u": _integer,
    "f": _real,
    "c": _complex,
    "S": _base64,
    "U": _text,
}


def _named(spec: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, dict) and isinstance(spec.get("name"), str):
        config = spec.get("configuration", {})
        if isinstance(config, dict):
            return spec["name"], config
    raise MetadataError(f"data type {shown(spec)} is neither a name nor a name with a configuration")


def _length_bytes(name: str, config: dict[str, Any]) -> int:
    length = config.get("length_bytes")
    if length is None and type(config.get("length_bits")) is int and config["length_bits"] % 8 == 0:
        length = config["length_bits"] // 8
    if type(length) is not int:
        raise MetadataError(f"data type {name!r} needs a length in bytes, found {shown(config)}")
    return length


def _sized(letter: str, nbytes: int) -> DType:
    if not 0 < nbytes <= _MAX_ITEM_BYTES:
        raise UnsupportedError(f"cells of {nbytes} bytes are not supported (1 to {_MAX_ITEM_BYTES} are)")
    if letter == "U" and nbytes % 4:
        raise MetadataError(f"UTF-32 strings of {nbytes} bytes; expected a multiple of 4")
    return np.dtype(f"{letter}{nbytes // 4 if letter == 'U' else nbytes}")


def _time(name: str, config: dict[str, Any]) -> DType:
    unit, step = config.get("unit"), config.get("scale_factor", 1)
    if unit not in _UNITS or type(step) is not int or not 0 < step < 2**31:
        raise MetadataError(f"data type {name!r} needs a unit and a scale factor, found {shown(config)}")
    return np.dtype(_TIMES[name] if unit == "generic" else f"{_TIMES[name]}[{step}{unit}]")


def _v3_field(field: Any) -> tuple[Any, Any]:
    if isinstance(field, dict):
        return field.get("name"), field.get("data_type")
    return tuple(field) if isinstance(field, list) and len(field) == 2 else (None, None)


def _v2_field(field: Any) -> tuple[Any, Any, Any]:
    if isinstance(field, list) and len(field) in (2, 3):
        return field[0], field[1], field[2] if len(field) == 3 else None
    raise MetadataError(f"field {shown(field)} of a structured dtype is not a name and a dtype")


def _structure(fields: Sequence[tuple[Any, Any, Any]], parse: Callable[..., DType], depth: int) -> DType:
    """Return a structured type of (name, type, shape or None), packed as Zarr stores it."""
    if not fields or depth >= _MAX_FIELDS_DEPTH:
        raise MetadataError("a structured dtype needs at least one field, and is nested 16 deep at most")
    parts: list[tuple[Any, ...]] = []
    for name, spec, shape in fields:
        if not isinstance(name, str) or not name:
            raise MetadataError(f"a field of a structured dtype has the name {shown(name)}")
        inner = parse(spec, depth=depth + 1)
        parts.append((name, inner) if shape is None else (name, inner, _subshape(shape, inner.itemsize)))
    try:
        dtype = np.dtype(parts)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise MetadataError(f"the fields of a structured dtype contradict each other: {error}") from error
    if dtype.itemsize > _MAX_ITEM_BYTES:
        raise UnsupportedError(f"cells of {dtype.itemsize} bytes are not supported")
    return dtype


def _subshape(shape: Any, itemsize: int) -> tuple[int, ...]:
    lengths = _list(shape if isinstance(shape, list) else [shape], "the shape of a field")
    nbytes = itemsize
    for length in lengths:
        if type(length) is not int or length < 1 or (nbytes := nbytes * length) > _MAX_ITEM_BYTES:
            raise MetadataError(f"the shape {shown(shape)} of a field is not supported")
    if len(lengths) > 32:
        raise MetadataError(f"a field has {len(lengths)} axes; expected 32 at most")
    return tuple(lengths)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise MetadataError(f"{what}: expected a list, found {shown(value)}")
    return value
