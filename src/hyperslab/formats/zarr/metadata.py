"""What both versions of Zarr metadata share: fields read with their checks, and the limits on them."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hyperslab.errors import MetadataError

__all__ = [
    "MAX_CHUNK_BYTES",
    "MAX_LENGTH",
    "MAX_NDIM",
    "attributes",
    "check_chunks",
    "dimension_names",
    "lengths",
    "shown",
]

MAX_CHUNK_BYTES = 2**40
MAX_LENGTH = 2**63 - 1
MAX_NDIM = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32


def lengths(value: Any, what: str, *, least: int) -> tuple[int, ...]:
    """Return a shape: a list of integers, none below `least`.

    >>> lengths([4, 5], "shape", least=0)
    (4, 5)
    """
    if not isinstance(value, list) or len(value) > MAX_NDIM:
        raise MetadataError(f"{what} is {shown(value)}; expected a list of at most {MAX_NDIM} integers")
    if not all(type(length) is int and least <= length <= MAX_LENGTH for length in value):
        raise MetadataError(f"{what} is {shown(value)}; expected integers from {least} to {MAX_LENGTH}")
    return tuple(value)


def check_chunks(shape: tuple[int, ...], chunks: tuple[int, ...], itemsize: int) -> None:
    """Raise MetadataError if chunks do not fit the array, or no machine could hold one."""
    if len(shape) != len(chunks):
        raise MetadataError(f"the array has {len(shape)} axes and its chunks {len(chunks)}")
    if prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        raise MetadataError(
            f"one chunk would have {prod(chunks) * itemsize} bytes; at most {MAX_CHUNK_BYTES} can be read"
        )
    if prod(shape) > MAX_LENGTH:
        raise MetadataError(f"an array of shape {shape} has more cells than can be counted")


def attributes(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the user's attributes, a JSON object or nothing."""
    found = document.get("attributes")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise MetadataError(f"the attributes in {key!r} are {shown(found)}, expected an object")
    return found


def dimension_names(value: Any, ndim: int, key: str) -> tuple[str | None, ...] | None:
    """Return the names of the axes, None if there are none."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != ndim:
        raise MetadataError(f"dimension_names in {key!r} is {shown(value)}; expected {ndim} names")
    if not all(name is None or isinstance(name, str) for name in value):
        raise MetadataError(f"dimension_names in {key!r} is {shown(value)}; expected strings or null")
    return tuple(value)


def shown(value: Any) -> str:
    """Return `value` as an error shows it: short, however large it is."""
    text = repr(value[:200] if isinstance(value, str | list) else value)
    return text if len(text) <= 200 else text[:200] + "…"
