"""Arrays in TileDB: merged into large ones, as in the paper (section 6.2), or each as an array of its own.

Merged, small arrays of one dtype and shape follow one another along their first axis, and a tile holds several of them.
Which name is where is kept in a file beside the arrays, and in memory.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.kinds import Kind, checked_array, kind_of, kind_text
from hyperslab.collections.names import encoded, shown
from hyperslab.collections.writing import Items, items_of
from hyperslab.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError

__all__ = ["EachBackend", "MergedBackend"]

_MISSING = "TileDB arrays need tiledb; install it with: pip install 'hyperslab[collections]'"
_NAMES = "names.json"
_PACK_ARRAYS = 100
# So many small arrays are written at once.
_BATCH = 4096
_MOST_CELLS = 1 << 40


class _Names:
    """Where the array of each name is: the number of its kind, and its row among those of that kind."""

    def __init__(self, path: str, mode: str) -> None:
        self.path, self.kinds, self.rows = path, list[Kind](), list[int]()
        self.places: dict[str, tuple[int, int]] = {}
        self._numbers: dict[bytes, int] = {}
        if os.path.exists(os.path.join(path, _NAMES)):
            self._load()
        elif mode == "r":
            raise NotFoundError(f"there are no arrays in TileDB at {path!r}")
        else:
            os.makedirs(path, exist_ok=True)

    def add(self, name: str, array: npt.NDArray[Any]) -> tuple[int, int]:
        """Return the place of a new array."""
        encoded(name)
        text = kind_text(array.dtype, array.shape)
        kind = self._numbers.setdefault(text, len(self.kinds))
        if kind == len(self.kinds):
            if array.dtype.kind not in "biufcM" or not array.dtype.isnative:
                raise UnsupportedError(f"{shown(name)} has cells of {array.dtype}, which are not stored in TileDB")
            self.kinds.append(kind_of(text))
            self.rows.append(0)
        self.rows[kind] += 1
        self.places[name] = kind, self.rows[kind] - 1
        return self.places[name]

    def place(self, name: str) -> tuple[int, int]:
        if name not in self.places:
            raise NotFoundError(f"there is no array {shown(name)} in {self.path!r}")
        return self.places[name]

    def sorted(self, prefix: str) -> Iterator[str]:
        return (name for name in sorted(self.places) if name.startswith(prefix))

    def save(self) -> None:
        known = {"kinds": [text.decode() for text in self._numbers], "rows": self.rows, "places": self.places}
        new = os.path.join(self.path, _NAMES + ".new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(new, os.path.join(self.path, _NAMES))

    def _load(self) -> None:
        try:
            with open(os.path.join(self.path, _NAMES), encoding="utf-8") as file:
                known = json.load(file)
            self._numbers = {text.encode(): n for n, text in enumerate(known["kinds"])}
            self.kinds = [kind_of(text) for text in self._numbers]
            self.rows = [int(count) for count in known["rows"]]
            self.places = {str(name): (int(kind), int(row)) for name, (kind, row) in known["places"].items()}
            good = len(self.rows) == len(self.kinds)
            good &= all(0 <= kind < len(self.kinds) for kind, _ in self.places.values())
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise FormatError(f"{_NAMES!r} in {self.path!r} is not what was written there: {error}") from None
        if not good:
            raise FormatError(f"{_NAMES!r} in {self.path!r} contradicts itself")


class MergedBackend:
    """All small arrays of one kind in one TileDB array, whose tiles hold `pack_arrays` of them each."""

    def __init__(self, path: str, mode: str, *, pack_arrays: int = _PACK_ARRAYS) -> None:
        if type(pack_arrays) is not int or pack_arrays < 1:
            raise InvalidInputError(f"pack_arrays is how many arrays a tile holds, not {pack_arrays!r:.80}")
        self._tiledb, self._names, self._pack_arrays = _library(), _Names(path, mode), pack_arrays
        self._opened: dict[int, Any] = {}

    def put_many(self, items: Items) -> None:
        self.close()
        waiting = ((name, checked_array(name, value)) for name, value, _ in items_of(items, None))
        while batch := list(islice(waiting, _BATCH)):
            by_kind: dict[int, list[tuple[int, npt.NDArray[Any]]]] = defaultdict(list)
            for name, array in batch:
                kind, row = self._names.add(name, array)
                by_kind[kind].append((row, array))
            for kind, rows in by_kind.items():
                self._write(kind, rows[0][0], [array for _, array in rows])
        self._names.save()

    def read_many(self, names: Iterable[str]) -> list[npt.NDArray[Any]]:
        places = [self._names.place(name) for name in names]
        wanted: dict[int, set[int]] = defaultdict(set)
        for kind, row in places:
            wanted[kind].add(row)
        found = {kind: self._read(kind, sorted(rows)) for kind, rows in wanted.items()}
        return [found[kind][row].copy() for kind, row in places]

    def names(self, prefix: str = "") -> Iterator[str]:
        return self._names.sorted(prefix)

    def close(self) -> None:
        """Close the TileDB arrays."""
        while self._opened:
            self._opened.popitem()[1].close()

    def _write(self, kind: int, first: int, arrays: list[npt.NDArray[Any]]) -> None:
        shape = _stored_shape(self._names.kinds[kind])
        if 0 in shape:
            return
        if not first:
            self._create(kind, shape)
        with self._tiledb.open(self._uri(kind), "w") as merged:
            cells = np.stack([array.reshape(shape) for array in arrays])
            merged[first * shape[0] : (first + len(arrays)) * shape[0]] = cells.reshape(-1, *shape[1:])

    def _read(self, kind: int, rows: list[int]) -> dict[int, npt.NDArray[Any]]:
        """Return the small arrays of some rows by one query."""
        known, shape = self._names.kinds[kind], _stored_shape(self._names.kinds[kind])
        if 0 in shape:
            return dict.fromkeys(rows, np.empty(known.shape, known.dtype))
        if kind not in self._opened:
            self._opened[kind] = self._tiledb.open(self._uri(kind))
        length = shape[0]
        cells = self._opened[kind].multi_index[[slice(row * length, (row + 1) * length - 1) for row in rows]][""]
        return dict(zip(rows, cells.reshape(-1, *known.shape), strict=True))

    def _create(self, kind: int, shape: tuple[int, ...]) -> None:
        tiledb, most = self._tiledb, _MOST_CELLS // shape[0] * shape[0]
        tile = min(self._pack_arrays * shape[0], most)
        axes = [tiledb.Dim("d0", domain=(0, most - 1), tile=tile, dtype=np.int64)]
        for n, length in enumerate(shape[1:], 1):
            axes.append(tiledb.Dim(f"d{n}", domain=(0, length - 1), tile=length, dtype=np.int64))
        cells = tiledb.Attr("", dtype=self._names.kinds[kind].dtype)
        tiledb.Array.create(self._uri(kind), tiledb.ArraySchema(domain=tiledb.Domain(*axes), attrs=[cells]))

    def _uri(self, kind: int) -> str:
        return os.path.join(self._names.path, f"kind-{kind}")


class EachBackend:
    """One TileDB array for each small array, opened for each read: what a person begins with."""

    def __init__(self, path: str, mode: str) -> None:
        self._tiledb, self._names = _library(), _Names(path, mode)

    def put_many(self, items: Items) -> None:
        for name, value, _ in items_of(items, None):
            array = checked_array(name, value)
            kind, row = self._names.add(name, array)
            if array.size:
                self._tiledb.from_numpy(self._uri(kind, row), array.reshape(array.shape or (1,))).close()
        self._names.save()

    def read_many(self, names: Iterable[str]) -> list[npt.NDArray[Any]]:
        return [self._read(*self._names.place(name)) for name in names]

    def names(self, prefix: str = "") -> Iterator[str]:
        return self._names.sorted(prefix)

    def _read(self, kind: int, row: int) -> npt.NDArray[Any]:
        known = self._names.kinds[kind]
        if 0 in known.shape:
            return np.empty(known.shape, known.dtype)
        with self._tiledb.open(self._uri(kind, row)) as small:
            return np.asarray(small[:]).reshape(known.shape)

    def _uri(self, kind: int, row: int) -> str:
        return os.path.join(self._names.path, f"{kind}-{row}")


def _stored_shape(kind: Kind) -> tuple[int, ...]:
    """Return the shape of one array in TileDB, where there is always a first axis."""
    return kind.shape or (1,)


def _library() -> Any:
    try:
        import tiledb
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    return tiledb
