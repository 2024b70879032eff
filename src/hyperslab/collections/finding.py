"""Reading many small arrays of mapped files in two calls of compiled loops: one finds them, one copies and checks.

What the loops need to know is kept as tables of numbers: blocks of the index that were found to be whole, packs that
are mapped, kinds of arrays. Where something is not as usual (a name that is not there, several segments that could have
it, damage), nothing is decided here: None is returned, and the way through Python says what is wrong.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hyperslab.collections.blocks import Block
from hyperslab.collections.index import Index, Ways
from hyperslab.collections.kernels import ABSENT, BLOCK, FOUND, NOT_HELD, copy_arrays, find_arrays
from hyperslab.collections.kinds import Kind
from hyperslab.layout.instructions import has_crc32c

__all__ = ["Finder", "Taken", "is_possible"]

Ints = npt.NDArray[np.int64]
# Gives the bytes of a pack, by its name and size.
Mapping = Callable[[str, int], memoryview]

# Arrays share memory with others that are read with them, up to so many bytes, and begin at multiples of these.
_SHARED_BYTES = 1 << 20
_ALIGNED_BYTES = 64
# More packs are not held at a time: they would be mapped in vain.
_MOST_PACKS = 200
# NumPy knows arrays of at least so many axes.
_MOST_AXES = 32
_NEVER = float("-inf")


class Taken(NamedTuple):
    """Arrays that were read, in order; in how many packs they are, their bytes and ids."""

    arrays: list[npt.NDArray[Any]]
    packs: int
    nbytes: int
    ids: Ints


def is_possible() -> bool:
    """Say whether the loops run on this machine."""
    return has_crc32c() and np.little_endian and np.dtype(np.intp).itemsize == 8


class Finder:
    """Reads arrays of one index. `mapping` maps packs.

    It serves one thread at a time: what has an address must not be let go while another copies from there.
    """

    def __init__(self, index: Index, mapping: Mapping) -> None:
        self.index, self._mapping = index, mapping
        # Nobody waits for it: there is another way, and in a forked child its holder may not exist.
        self._lock = threading.RLock()
        self._ways: Ways | None = None
        self._kinds: list[Kind] = []
        self._kind_numbers: dict[Kind, int] = {}
        self._packs: list[tuple[str, int]] = []
        self._pack_numbers: dict[tuple[str, int], int] = {}
        self._seen, self._addresses, self._marks = np.full(16, _NEVER), np.zeros(16, np.int64), np.zeros(16, np.int64)
        self._mark = 0
        # What has an address is not let go.
        self._views: dict[int, memoryview] = {}
        self._blocks: dict[int, tuple[Block, memoryview, Ints, Ints]] = {}

    def read(self, names: Sequence[str], now: float, since: float) -> Taken | None:
        """Return the arrays of these names; packs that were not looked at since then are looked at."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._read(names, now, since)
        finally:
            self._lock.release()

    def _read(self, names: Sequence[str], now: float, since: float) -> Taken | None:
        try:
            joined = "\0".join(names).encode()
        except (TypeError, UnicodeEncodeError):
            return None
        ways = self.index.ways()
        if ways is not self._ways:
            self._begin(ways)
        found = np.empty((len(names), FOUND), np.int64)
        text = np.frombuffer(joined, np.uint8)
        # Blocks may be lacking, then packs.
        for _ in range(3):
            self._mark += 1
            lacking, packs = find_arrays(text, *self._tables, self._seen, since, self._marks, self._mark, found)
            if not lacking:
                return self._copied(found, packs)
            if lacking < 0 or not self._fetch(found, now, since):
                return None
        return None

    def forget(self) -> None:
        """Let go of all packs, unless another thread reads from them."""
        if self._lock.acquire(blocking=False):
            try:
                self._seen[:], self._addresses[:] = _NEVER, 0
                self._views.clear()
            finally:
                self._lock.release()

    def _begin(self, ways: Ways) -> None:
        """Make a table of all blocks, none of which is held yet, by the first names that they can have."""
        parts: list[bytes] = []
        self._places: list[tuple[int, int]] = []
        for first, way in zip(*ways, strict=True):
            parts += [first] if way is None else way[0]
            self._places += [(-1, 0)] if way is None else [(way[2], number) for number in range(len(way[0]))]
        edges = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        table = np.zeros((len(parts), BLOCK), np.int64)
        self._tables = np.frombuffer(b"".join(parts), np.uint8), edges, table
        self._ways, self._blocks = ways, {}

    def _fetch(self, found: Ints, now: float, since: float) -> bool:
        """Get blocks and packs that are lacking; say whether it is worth to look again."""
        wanted = np.unique(found[:, 0])
        if ABSENT in wanted:
            return False
        numbers = (NOT_HELD - wanted[wanted <= NOT_HELD]).tolist()
        if numbers:
            if any(self._places[number][0] < 0 for number in numbers):
                return False
            self._hold_blocks(numbers)
            # Where the file of a segment has changed, all begins anew.
            return self.index.ways() is self._ways
        if len(wanted) > _MOST_PACKS:
            return False
        for number in np.unique(found[found[:, 2] > 0, 0]).tolist():
            if self._seen[number] <= since:
                view = self._mapping(*self._packs[number])
                self._views[number], self._seen[number] = view, now
                self._addresses[number] = np.frombuffer(view, np.uint8).ctypes.data
        return True

    def _hold_blocks(self, numbers: list[int]) -> None:
        held = self.index.blocks([self._places[number] for number in numbers])
        table = self._tables[2]
        if len(self._blocks) + len(numbers) > self.index.most_blocks:
            table[:] = 0
            self._blocks.clear()
        for number in numbers:
            block = held[self._places[number]]
            packs = np.array([(self._pack(*pack), pack[1]) for pack in block.pack_list()], np.int64).reshape(-1, 2)
            kinds = np.array([self._kind(kind) for kind in block.kind_list()], np.int64).reshape(-1, 2)
            self._blocks[number] = block, block.data, packs, kinds
            table[number, 1:7] = block.parts()
            table[number, 7:] = packs.ctypes.data, len(packs), kinds.ctypes.data, len(kinds)
            table[number, 0] = np.frombuffer(block.data, np.uint8).ctypes.data

    def _pack(self, name: str, nbytes: int) -> int:
        number = self._pack_numbers.setdefault((name, nbytes), len(self._packs))
        if number == len(self._packs):
            self._packs.append((name, nbytes))
            if number == len(self._seen):
                self._marks = np.concatenate([self._marks, np.zeros(number, np.int64)])
                self._addresses = np.concatenate([self._addresses, np.zeros(number, np.int64)])
                # The last: by its length the loops tell which packs they know.
                self._seen = np.concatenate([self._seen, np.full(number, _NEVER)])
        return number

    def _kind(self, kind: Kind | None) -> tuple[int, int]:
        if kind is None:
            # No array has so many bytes.
            return 0, -1
        number = self._kind_numbers.setdefault(kind, len(self._kinds))
        if number == len(self._kinds):
            self._kinds.append(kind)
        return number, kind.nbytes

    def _copied(self, found: Ints, packs: int) -> Taken | None:
        """Copy what was found into new memory, which arrays share as long as they are small."""
        first = self._kinds[found[0, 3]]
        same = 0 < len(first.shape) < _MOST_AXES and first.nbytes and not first.dtype.subdtype
        same = same and (found[:, 3] == found[0, 3]).all()
        arrays: list[npt.NDArray[Any]] | None = self._copied_alike(found, first) if same else self._copied_each(found)
        if arrays is None:
            return None
        return Taken(arrays, packs, int(found[:, 2].sum()), found[:, 5])

    def _copied_alike(self, found: Ints, kind: Kind) -> list[npt.NDArray[Any]] | None:
        arrays: list[npt.NDArray[Any]] = []
        most = max(1, _SHARED_BYTES // kind.nbytes)
        for at in range(0, len(found), most):
            some = found[at : at + most]
            nbytes = kind.nbytes * len(some)
            target = np.empty(nbytes, np.uint8)
            if copy_arrays(some, self._addresses, np.arange(0, nbytes, kind.nbytes), target) >= 0:
                return None
            arrays.extend(np.ndarray((len(some), *kind.shape), kind.dtype, target))
        return arrays

    def _copied_each(self, found: Ints) -> list[npt.NDArray[Any]] | None:
        arrays: list[npt.NDArray[Any]] = []
        edges = np.cumsum([0, *(-(-found[:, 2] // _ALIGNED_BYTES) * _ALIGNED_BYTES)])
        at = 0
        while at < len(found):
            stop = max(at + 1, int(np.searchsorted(edges, edges[at] + _SHARED_BYTES, "right")) - 1)
            places, kinds = edges[at:stop] - edges[at], found[at:stop, 3].tolist()
            target = np.empty(int(edges[stop] - edges[at]), np.uint8)
            if copy_arrays(found[at:stop], self._addresses, places, target) >= 0:
                return None
            for kind, place in zip([self._kinds[kind] for kind in kinds], places.tolist(), strict=True):
                arrays.append(np.ndarray(kind.shape, kind.dtype, target, place))
            at = stop
        return arrays
