"""Kinds of arrays: dtype and shape, as the index stores them. Many arrays of a collection are of one kind."""

import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.lib.format as numpy_format
import numpy.typing as npt

from hyperslab.collections.names import shown
from hyperslab.errors import FormatError, InvalidInputError, MetadataError, UnsupportedError

__all__ = ["Kind", "checked_array", "kind_of", "kind_text"]

_PLAIN = "biufcmMSU"
_MAX_TEXT = 1 << 16
_MAX_DEPTH = 16
_MAX_AXES = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A dtype and a shape, and the bytes that such an array has."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int


def checked_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return what is to be stored as an array whose cells lie one after the other."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidInputError(f"{shown(name)} is a masked array, and masks are not stored; fill it first")
    try:
        array = np.asarray(value, order="C")
    except ValueError as error:
        raise InvalidInputError(f"{shown(name)} is no array: {error}") from None
    return array


@lru_cache(maxsize=4096)
def kind_text(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return a kind as it is stored; refuse a dtype that would not come back the same.

    >>> kind_text(np.dtype("f4"), (42, 50))
    b'["<f4",[42,50]]'
    """
    if dtype.hasobject or not _is_stored(dtype):
        raise InvalidInputError(
            f"arrays of {dtype} are not stored; use numbers, times, texts of fixed length or fields"
        )
    try:
        text = json.dumps([numpy_format.dtype_to_descr(dtype), list(shape)], separators=(",", ":")).encode("ascii")
        same = len(text) <= _MAX_TEXT and kind_of(text).dtype == dtype
    except (FormatError, TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise InvalidInputError(f"arrays of {dtype} are not stored: its fields overlap, have titles or are too many")
    return text


def _is_stored(dtype: np.dtype[Any]) -> bool:
    if dtype.fields is not None:
        return dtype.itemsize > 0 and all(_is_stored(inner) for inner, *_ in dtype.fields.values())
    if dtype.subdtype is not None:
        return _is_stored(dtype.subdtype[0])
    return dtype.itemsize > 0 and (dtype.kind in _PLAIN or dtype.type is np.void)


@lru_cache(maxsize=4096)
def kind_of(text: bytes) -> Kind:
    """Return the kind that a text says.

    >>> kind_of(b'["<M8[s]",[2,3]]').nbytes
    48
    """
    if len(text) > _MAX_TEXT:
        raise MetadataError(f"the kind of an array takes {len(text)} bytes; at most {_MAX_TEXT} are read")
    try:
        descr, shape = json.loads(text)
        dtype = _dtype(descr)
        lengths = tuple([_length(each) for each in shape])
    except (ValueError, TypeError, RecursionError) as error:
        raise MetadataError(f"{text[:80]!r} is no kind of array: {error}") from None
    # NumPy counts the other axes also where one has no length.
    most = prod([length or 1 for length in lengths]) * max(1, dtype.itemsize)
    if len(lengths) > _MAX_AXES or most >= 2**63 or (nbytes := prod(lengths) * dtype.itemsize) >= 2**62:
        raise MetadataError(f"{text[:80]!r} is no kind of array: it is too large")
    return Kind(dtype, lengths, nbytes)


def _length(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is no length of an axis")
    return value


def _dtype(descr: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = numpy_format.descr_to_dtype(_descr(descr, 0))
    except Exception as error:  # NumPy raises what it happens to stumble on
        raise ValueError(f"its dtype is not known ({error})") from error
    if dtype.hasobject or dtype.itemsize > 2**31:
        raise UnsupportedError(f"an array of {dtype} cannot be read; nothing is ever unpickled")
    return dtype


def _descr(descr: Any, depth: int) -> Any:
    """Return a description with the tuples that JSON has no form for."""
    if isinstance(descr, str):
        return descr
    if not isinstance(descr, list) or depth > _MAX_DEPTH:
        raise ValueError("it is neither a name nor a list of fields")
    return [_field(field, depth) for field in descr]


def _field(field: Any, depth: int) -> tuple[Any, ...]:
    if not isinstance(field, list) or len(field) not in (2, 3) or not isinstance(field[0], str):
        raise ValueError("a field has a name, a dtype and perhaps a shape")
    shape = (tuple(field[2]),) if len(field) == 3 else ()
    return (field[0], _descr(field[1], depth + 1), *shape)
