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

__all__ = ["Resolver", "heap_addresses", "resolve", "text"]

Cells = npt.NDArray[Any]


class Resolver:
    """Turns cells as they lie in the file into cells as a user sees them.

    What one makes out of heaps is at most as large as the file: no two cells of a good file share anything in a heap,
    and cells of a bad one could refer to the same object, or to one another, without end.
    """

    def __init__(self, file: FileBytes, sb: Superblock, collections: Collections | None = None) -> None:
        self._file = file
        self._sb = sb
        self._collections = Collections() if collections is None else collections
        self._left = sb.size

    def resolve(self, cells: Cells, datatype: Datatype) -> Cells:
        """Return cells (of `datatype.dtype`) with objects for what has variable length, and strings without padding."""
        match datatype.kind:
            case "vlen_string":
                return self._read(cells, 1, lambda raw: text(bytes(raw), datatype), "")
            case "vlen" if datatype.base is not None:
                return self._sequences(cells, datatype.base)
            case "string":
                return cells if datatype.plain else _trim(cells, datatype)
            case "compound" if not datatype.plain:
                out = np.empty(cells.shape, datatype.result)
                for field in datatype.fields:
                    out[field.name] = self.resolve(cells[field.name], _inner(field.type))
                return out
            case "array":
                return self.resolve(cells, _inner(datatype))
        return cells

    def _sequences(self, cells: Cells, base: Datatype) -> Cells:
        inner, axes = (base.dtype, ()) if base.dtype.subdtype is None else base.dtype.subdtype

        def sequence(raw: memoryview) -> Cells:
            found = np.frombuffer(raw, inner).reshape(-1, *axes).copy()
            return self.resolve(found, base)

        return self._read(cells, base.nbytes, sequence, np.empty(0, base.result))

    def _read(self, cells: Cells, item_nbytes: int, make: Callable[[memoryview], Any], nothing: Any) -> Cells:
        """Return an array of objects, each made of the bytes that a cell refers to."""
        counts, places, indexes = references(self._sb, cells)
        out = np.empty(len(counts), object)
        for at in np.flatnonzero(places < 0).tolist():
            out[at] = nothing
        order = np.argsort(places, kind="stable")
        order = order[places[order] >= 0]
        unique, starts = np.unique(places[order], return_index=True)
        cells_of = dict(zip(unique.tolist(), np.split(order, starts[1:]), strict=True)) if len(unique) else {}
        for found in self._collections.rounds(self._file, self._sb, unique.tolist()):
            for address, objects in found.items():
                chosen = cells_of[address]
                keys = zip(indexes[chosen].tolist(), counts[chosen].tolist(), strict=True)
                made: dict[tuple[int, int], Any] = {}
                for at, key in zip(chosen.tolist(), keys, strict=True):
                    # Cells that share an object share what is made of it.
                    if key not in made:
                        made[key] = make(self._stored(objects, key[0], key[1] * item_nbytes, address))
                    out[at] = made[key]
        return out.reshape(cells.shape)

    def _stored(self, objects: Objects, index: int, nbytes: int, address: int) -> memoryview:
        raw = objects.get(index)
        if raw is None or nbytes > len(raw):
            raise MetadataError(
                f"a cell needs {nbytes} bytes of object {index} in the global heap at byte {address}, "
                f"which has {'no such object' if raw is None else f'{len(raw)} there'}; the file is damaged"
            )
        self._left -= nbytes
        if self._left < 0:
            raise MetadataError(
                f"cells of variable length refer to more than the {self._sb.size} bytes of their file; it is damaged"
            )
        return raw[:nbytes]


def resolve(
    file: FileBytes, sb: Superblock, cells: Cells, datatype: Datatype, collections: Collections | None = None
) -> Cells:
    """Return cells as a user sees them, from cells as they lie in the file (of `datatype.dtype`).

    Variable-length cells become objects (strings `str`, sequences arrays), fixed strings lose their padding.
    """
    return Resolver(file, sb, collections).resolve(cells, datatype)


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
