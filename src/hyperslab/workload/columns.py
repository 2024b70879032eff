"""The payload of a frame: a head of JSON with the arrays and the types of columns, then the columns' bytes.

Made for every 1,024 reads in the thread that reads: what is done for each of them is left to NumPy.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import FormatError
from hyperslab.execute.light import Listed
from hyperslab.execute.recording import More, Row
from hyperslab.selection import Points
from hyperslab.workload.packing import FLOATS, WHOLE, packed, unpacked
from hyperslab.workload.place import clean_url
from hyperslab.workload.records import FIXED, MOST_AXES, KnownArray, Process, Records

__all__ = ["decode", "encode"]

_VERSION = 1
_HEAD = struct.Struct("<I")
# Whole numbers take the smallest of these that holds all of a column.
_WIDTHS = (("<i1", 1 << 7), ("<i2", 1 << 15), ("<i4", 1 << 31))
_TYPES = ("<i1", "<i2", "<i4", "<i8")
_CODES = ("array", "method", "points", "error", "read", "part")
_AXES = ("start", "count", "step")
_LONGEST_TEXT = 65_536
_MOST_HEAD_BYTES = 4 << 20

Ints = npt.NDArray[np.int64]


def encode(rows: Sequence[Row], process: Process, first: int) -> bytes:
    """Return the payload for some reads; plans that have no number yet get those from `first` on."""
    urls, layouts, selections, _, _, methods, more = zip(*rows, strict=True)
    arrays, array = _coded_arrays(urls, layouts)
    method_names, method = _coded(methods)
    figures, lists = packed(rows)
    floats, whole, axes = unpacked(figures)
    cells = _place_lists(axes, lists)
    names, numbered = _numbered(more, first)
    points = (
        [isinstance(each, Points) or (isinstance(each, Listed) and each.points) for each in selections] if lists else []
    )
    head: dict[str, Any] = {
        "version": _VERSION, "host": process.host, "pid": process.pid, "run": process.run, "reads": len(rows),
        "axes": axes.shape[1], "cells": len(cells), "methods": method_names, "errors": names, "arrays": arrays,
    }  # fmt: skip
    types: list[Any] = []
    data: list[bytes] = [floats.astype("<f8", copy=False).tobytes()]
    for column in (array, method, np.array(points, np.int64) if any(points) else None, *numbered):
        if column is None:
            types.append(0)
        else:
            _add_columns(column[None], types, data, constants=True)
    _add_columns(whole, types, data, constants=True)
    _add_columns(axes, types, data)
    _add_columns(cells[None], types, data)
    head["types"] = types
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_HEAD.pack(len(text)), text, *data])


def _numbered(more: tuple[More | None, ...], first: int) -> tuple[list[str | None], list[Ints | None]]:
    """Return the names of errors; and of each row the error, the number of its plan, and which part it is."""
    numbers = np.arange(first, first + len(more))
    if more.count(None) == len(more):
        return [None], [None, numbers, None]
    names, error = _coded(tuple([None if each is None else each[3] for each in more]))
    reads = [number if each is None else each[0] for each, number in zip(more, numbers.tolist(), strict=True)]
    parts = [0 if each is None else each[1] for each in more]
    return names, [error, np.array(reads, np.int64), np.array(parts, np.int64)]


def _coded(values: tuple[Any, ...]) -> tuple[list[Any], Ints | None]:
    """Return the different values, and which of them each is; None if all are the first."""
    if values.count(values[0]) == len(values):
        return [values[0]], None
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return list(places), np.array([places[value] for value in values], np.int64)


def _coded_arrays(urls: tuple[str, ...], layouts: tuple[Any, ...]) -> tuple[list[Any], Ints | None]:
    if layouts.count(layouts[0]) == len(layouts) and urls.count(urls[0]) == len(urls):
        return [_described(urls[0], layouts[0])], None
    # Layouts are compared by what is said of them: a file's are made anew for each read.
    seen: dict[tuple[str, int], str] = {}
    for url, layout in zip(urls, layouts, strict=True):
        if (url, id(layout)) not in seen:
            seen[url, id(layout)] = json.dumps(_described(url, layout))
    texts, places = _coded(tuple([seen[url, id(layout)] for url, layout in zip(urls, layouts, strict=True)]))
    return [json.loads(text) for text in texts], places


def _place_lists(axes: Ints, lists: list[Ints]) -> Ints:
    """Write where each list begins as the start of its axis; return the cells of all of them."""
    if not lists:
        return np.empty(0, np.int64)
    axes[0, axes[2] < 0] = np.cumsum([0, *map(len, lists)])[:-1]
    return np.concatenate(lists)


def _add_columns(table: Ints, types: list[Any], data: list[bytes], *, constants: bool = False) -> None:
    """Add each row of the table with the smallest type that holds it; with `constants` one number may stand for all."""
    if not table.shape[1]:
        types += ["<i1"] * len(table)
        return
    lows, highs = table.min(axis=1).tolist(), table.max(axis=1).tolist()
    for column, low, high in zip(table, lows, highs, strict=True):
        if constants and low == high:
            types.append(low)
            continue
        kind = next((kind for kind, limit in _WIDTHS if -limit <= low and high < limit), "<i8")
        types.append(kind)
        data.append(column.astype(kind).tobytes())


def _described(url: str, layout: Any) -> list[Any]:
    shards = list(layout.object_shape) if layout.index else None
    dtype = layout.dtype.str if layout.dtype.names is None else str(layout.dtype)
    return [clean_url(url), list(layout.shape), dtype, layout.stored.itemsize, list(layout.chunks), shards]


def decode(payload: bytes) -> Records:
    """Return the reads in a payload; raises FormatError for what no `encode` has made."""
    try:
        return _decode(payload).checked()
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError, struct.error) as error:
        raise FormatError(f"a frame of the log cannot be understood: {error}") from None


def _decode(payload: bytes) -> Records:
    (length,) = _HEAD.unpack_from(payload)
    if length > min(_MOST_HEAD_BYTES, len(payload) - _HEAD.size):
        raise ValueError("its head is longer than it")
    head = json.loads(payload[_HEAD.size : _HEAD.size + length])
    if head["version"] != _VERSION:
        raise ValueError(f"version {head['version']!r} is not known")
    reads, axes, cells = (_size(head[name]) for name in ("reads", "axes", "cells"))
    data = _Columns(payload, _HEAD.size + length)
    # Three times a read are always stored in full: what a short frame can claim is bounded by that.
    fixed: dict[str, npt.NDArray[Any]] = {name: data.floats(reads) for name in FLOATS}
    if len(head["types"]) != len(_CODES) + len(WHOLE) + len(_AXES) + 1:
        raise ValueError("it has other columns than are known")
    types = iter(head["types"])
    for name in (*_CODES, *WHOLE):
        fixed[name] = data.ints(next(types), reads, constants=True)
    fixed["process"] = np.zeros(reads, np.int64)
    start, count, step = (data.ints(next(types), axes) for _ in _AXES)
    listed = data.ints(next(types), cells)
    data.end()
    arrays = tuple(_array(entry) for entry in head["arrays"])
    who = Process(_text(head["host"]), _size(head["pid"]), _text(head["run"]))
    dims = np.array([len(array.shape) for array in arrays], np.int64)
    if reads and not 0 <= fixed["array"].min() <= fixed["array"].max() < len(arrays):
        raise ValueError("a read is of no array")
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(dims[fixed["array"]], dtype=np.int64)])
    if bounds[-1] != axes:
        raise ValueError("reads have other axes than their arrays")
    return Records(
        arrays, (who,), tuple(map(_name, head["methods"])), tuple(map(_name, head["errors"])),
        {name: fixed[name] for name in FIXED}, bounds, start, count, step, listed,
    )  # fmt: skip


class _Columns:
    """Takes columns off the end of a payload, one after another; none is longer than what is there."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload, self._at = payload, at

    def floats(self, count: int) -> npt.NDArray[np.float64]:
        return self._take("<f8", count).astype(np.float64)

    def ints(self, kind: Any, count: int, *, constants: bool = False) -> npt.NDArray[np.int64]:
        if constants and type(kind) is int:
            return np.full(count, kind, np.int64)
        if kind not in _TYPES:
            raise ValueError(f"{kind!r} is no type of a column")
        return self._take(kind, count).astype(np.int64)

    def _take(self, kind: str, count: int) -> npt.NDArray[Any]:
        nbytes = count * np.dtype(kind).itemsize
        if nbytes > len(self._payload) - self._at:
            raise ValueError("its columns are cut off")
        column = np.frombuffer(self._payload, kind, count, self._at)
        self._at += nbytes
        return column

    def end(self) -> None:
        if self._at != len(self._payload):
            raise ValueError("there is more in it than its columns")


def _array(entry: Any) -> KnownArray:
    url, shape, dtype, itemsize, chunks, shards = entry
    known = KnownArray(
        _text(url), _sizes(shape), _text(dtype), _size(itemsize), _sizes(chunks),
        None if shards is None else _sizes(shards),
    )  # fmt: skip
    axes = len(known.shape)
    if axes > MOST_AXES or len(known.chunks) != axes or len(known.shards or known.chunks) != axes:
        raise ValueError("an array's shape and chunks do not fit together")
    return known


def _sizes(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError("sizes are listed")
    return tuple(map(_size, values))


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no size")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError("a name is a text, not too long")
    return value


def _name(value: Any) -> str | None:
    return None if value is None else _text(value)
