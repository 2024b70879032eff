"""Cells that are not what lies in their place: of variable length, or strings with padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError
from hyperslab.formats.hdf5.cursor import FileBytes
from hyperslab.formats.hdf5.datatype import Datatype
from hyperslab.formats.hdf5.heaps import Collections, Objects
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["heap_addresses", "read_vlen", "read_vlen_strings", "resolve", "text"]

Cells = npt.NDArray[Any]


def resolve(
    file: FileBytes, sb: Superblock, cells: Cells, datatype: Datatype, collections: Collections | None = None
) -> Cells:
    """Return cells as a user sees them, from cells as they lie in the file (of `datatype.dtype`).

    Variable-length cells become objects (strings `str`, sequences arrays), fixed strings lose their padding.
    """
    collections = Collections() if collections is None else collections
    match datatype.kind:
        case "vlen_string":
            return read_vlen_strings(file, sb, cells, datatype, collections)
        case "vlen":
            return read_vlen(file, sb, cells, datatype, collections)
        case "string":
            return cells if datatype.plain else _trim(cells, datatype)
        case "compound" if not datatype.plain:
            out = np.empty(cells.shape, datatype.result)
            for field in datatype.fields:
                out[field.name] = resolve(file, sb, cells[field.name], _inner(field.type), collections)
            return out
        case "array" if datatype.base is not None:
            return resolve(file, sb, cells, _inner(datatype), collections)
    return cells


def _inner(datatype: Datatype) -> Datatype:
    """Return the type of an array's cells: NumPy has already made its axes the array's own."""
    while datatype.kind == "array" and datatype.base is not None:
        datatype = datatype.base
    return datatype


def _trim(cells: Cells, datatype: Datatype) -> Cells:
    """Return fixed strings without their padding: what follows the first zero, or the blanks at the end."""
    if datatype.padding == "space-padded":
        return np.char.rstrip(cells, b" ").astype(cells.dtype)
    raw = np.ascontiguousarray(cells).reshape(-1).view(np.uint8).reshape(-1, datatype.nbytes)
    behind = np.logical_or.accumulate(raw == 0, axis=1)
    return np.where(behind, np.uint8(0), raw).view(cells.dtype).reshape(cells.shape)


def text(raw: bytes, datatype: Datatype) -> str:
    """Return a stored string without its padding; bytes that are no UTF-8 survive as surrogates.

    >>> text(b"ab  ", Datatype("string", np.dtype("S4"), np.dtype("S4"), padding="space-padded"))
    'ab'
    """
    if datatype.padding == "space-padded":
        raw = raw.rstrip(b" ")
    elif datatype.padding == "null-padded" and datatype.kind == "string":
        raw = raw.rstrip(b"\0")
    else:
        raw = raw.partition(b"\0")[0]
    return raw.decode("utf-8", "surrogateescape")


def read_vlen_strings(
    file: FileBytes, sb: Superblock, cells: Cells, datatype: Datatype, collections: Collections | None = None
) -> Cells:
    """Return strings of variable length as an array of `str`; cells that refer to nothing are ''."""
    return _read(file, sb, cells, collections, 1, lambda raw: text(bytes(raw), datatype), "")


def read_vlen(
    file: FileBytes, sb: Superblock, cells: Cells, datatype: Datatype, collections: Collections | None = None
) -> Cells:
    """Return sequences of variable length as an array of arrays."""
    base = datatype.base
    if base is None:
        raise MetadataError("a type of variable length does not say of what")
    kept = Collections() if collections is None else collections

    def sequence(raw: memoryview) -> Cells:
        found = np.frombuffer(raw, base.dtype).copy()
        return resolve(file, sb, found, base, kept)

    return _read(file, sb, cells, kept, base.nbytes, sequence, np.empty(0, base.result))


def references(sb: Superblock, cells: Cells) -> tuple[npt.NDArray[np.int64], ...]:
    """Return what variable-length cells consist of: how many items, in which collection, at which index.

    The collection is -1 where a cell refers to nothing.
    """
    nbytes = 8 + sb.offset_size
    raw = np.frombuffer(cells.tobytes(), np.uint8).reshape(-1, nbytes)
    wide = np.zeros((len(raw), 8), np.uint8)
    wide[:, : sb.offset_size] = raw[:, 4 : 4 + sb.offset_size]
    starts = wide.view("<u8").ravel()
    counts = np.ascontiguousarray(raw[:, :4]).view("<u4").ravel()
    indexes = np.ascontiguousarray(raw[:, 4 + sb.offset_size :]).view("<u4").ravel()
    empty = (counts == 0) | (starts == 0)
    if (~empty & (starts >= np.uint64(max(0, sb.size - sb.base)))).any():
        raise MetadataError(f"a cell refers to a heap outside of the file's {sb.size} bytes; the file is damaged")
    places = np.where(empty, np.int64(-1), starts.astype(np.int64) + sb.base)
    return counts.astype(np.int64), places, indexes.astype(np.int64)


def heap_addresses(sb: Superblock, cells: Cells, datatype: Datatype) -> set[int]:
    """Return the collections that cells refer to, so that they can be fetched together with others."""
    match datatype.kind:
        case "vlen" | "vlen_string":
            return set(references(sb, cells)[1].tolist()) - {-1}
        case "compound" if datatype.has_vlen:
            return set().union(*(heap_addresses(sb, cells[f.name], _inner(f.type)) for f in datatype.fields))
        case "array":
            return heap_addresses(sb, cells, _inner(datatype))
    return set()


def _read(
    file: FileBytes, sb: Superblock, cells: Cells, collections: Collections | None, item_nbytes: int,
    make: Callable[[memoryview], Any], nothing: Any,
) -> Cells:  # fmt: skip
    """Return an array of objects, each made of the bytes that a cell refers to."""
    kept = Collections() if collections is None else collections
    counts, places, indexes = references(sb, cells)
    out = np.empty(len(counts), object)
    for at in np.flatnonzero(places < 0).tolist():
        out[at] = nothing
    order = np.argsort(places, kind="stable")
    order = order[places[order] >= 0]
    unique, starts = np.unique(places[order], return_index=True)
    cells_of = dict(zip(unique.tolist(), np.split(order, starts[1:]), strict=True)) if len(unique) else {}
    for found in kept.rounds(file, sb, unique.tolist()):
        for address, objects in found.items():
            chosen = cells_of[address]
            for at, each in zip(
                chosen.tolist(),
                _make(objects, indexes[chosen], counts[chosen], item_nbytes, make, address),
                strict=True,
            ):
                out[at] = each
    return out.reshape(cells.shape)


def _make(
    objects: Objects, indexes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], item_nbytes: int,
    make: Callable[[memoryview], Any], address: int,
) -> list[Any]:  # fmt: skip
    """Return what one collection holds for some cells. Cells that share an object share what is made of it."""
    made: dict[tuple[int, int], Any] = {}
    result = []
    for key in zip(indexes.tolist(), counts.tolist(), strict=True):
        if key not in made:
            index, count = key
            raw = objects.get(index)
            if raw is None or count * item_nbytes > len(raw):
                raise MetadataError(
                    f"a cell needs {count * item_nbytes} bytes of object {index} in the global heap at byte {address}, "
                    f"which has {'no such object' if raw is None else f'{len(raw)} there'}; the file is damaged"
                )
            made[key] = make(raw[: count * item_nbytes])
        result.append(made[key])
    return result
