"""The catalog: all arrays of a collection at one moment, a column for each thing that plans need to know of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.blocks import DELETED, KEYED, Block, Entry, Spot
from hyperslab.collections.index import Index
from hyperslab.collections.scanning import decoded

__all__ = ["Catalog", "read_catalog"]

Ints = npt.NDArray[np.int64]

_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """Arrays in the order of their names. `pack` is the place of an array's pack in `packs`: its name and size.

    `columns` are attributes that were asked for, None where an array has no value; times are
    nanoseconds.
    """

    names: list[bytes]
    id: Ints
    pack: Ints
    start: Ints
    nbytes: Ints
    crc32c: Ints
    keyed: npt.NDArray[np.bool_]
    packs: list[tuple[str, int]]
    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.names)

    def entry(self, at: int) -> Entry:
        """Return what is needed to read an array's bytes, as such."""
        pack, pack_nbytes = self.packs[self.pack[at]]
        start, nbytes = int(self.start[at]), int(self.nbytes[at])
        return Entry(
            pack, start, start + nbytes, _BYTE, (nbytes,), int(self.crc32c[at]), int(self.id[at]),
            decoded(self.names[at]), pack_nbytes, bool(self.keyed[at]),
        )  # fmt: skip

    def find(self, ids: Ints) -> Ints:
        """Return the places of the arrays that have these ids, -1 where there is none.

        >>> empty = np.zeros(0, np.int64)
        >>> found = Catalog([b"a", b"b"], np.array([9, 4]), *[empty] * 5, [], {}).find(np.array([4, 5, 9]))
        >>> found.tolist()
        [1, -1, 0]
        """
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        order = np.argsort(self.id, kind="stable")
        at = order[np.minimum(np.searchsorted(self.id, ids, sorter=order), len(self) - 1)]
        return np.where(self.id[at] == ids, at, -1)


def read_catalog(index: Index, columns: Sequence[str] = ()) -> Catalog:
    """Go through all of an index."""
    names, found = list[bytes](), list[Spot]()
    values: dict[str, list[Any]] = {column: [] for column in columns}
    for name, spot, attributes in _rows(index, columns):
        names.append(name)
        found.append(spot)
        for column, value in zip(columns, attributes, strict=True):
            values[column].append(value)
    packs = {pack: place for place, pack in enumerate(dict.fromkeys([(spot[1], spot[2]) for spot in found]))}
    numbers = np.array(
        [(spot[0], packs[spot[1], spot[2]], spot[3], spot[4], spot[5], spot[6]) for spot in found], np.int64
    ).reshape(len(found), 6)
    number, pack_at, start, nbytes, crc, flags = np.ascontiguousarray(numbers.T)
    return Catalog(names, number, pack_at, start, nbytes, crc, (flags & KEYED) != 0, list(packs), values)


def _rows(index: Index, columns: Sequence[str]) -> Iterator[tuple[bytes, Spot, tuple[Any, ...]]]:
    def each(block: Block) -> list[tuple[Spot, tuple[Any, ...]]]:
        spots = block.spots()
        if not columns:
            return [(spot, ()) for spot in spots]
        return list(zip(spots, zip(*[_values(block, column) for column in columns], strict=True), strict=True))

    for name, _, (spot, attributes) in index.merged(b"", b"", each):
        if not spot[6] & DELETED:
            yield name, spot, attributes


def _values(block: Block, column: str) -> list[Any]:
    found = block.columns().get(column)
    if found is None:
        return [None] * block.rows
    # Of times, this gives their nanoseconds.
    values = found.values if found.type == "str" else found.values.tolist()
    return [value if there else None for value, there in zip(values, found.present.tolist(), strict=True)]
