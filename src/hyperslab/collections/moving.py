"""Applying a plan: arrays are written into new packs, then one manifest makes all of them count.

A pack's name is a hash of what it holds. So packs that an interrupted change has written are found again, and a change
that was made before is nothing to do. Each array is held to its checksum on the way. Until the manifest is replaced,
readers see the old packs; what was put or deleted meanwhile is in newer segments, which stay on top. Where segments
were merged meanwhile, the index is made once more, and no pack. Old packs are left to `sweep`.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hyperslab.collections.blocks import DELETED, KEYED, PACK_NAME_BYTES, Block, Row
from hyperslab.collections.catalog import Catalog, Ints, read_catalog
from hyperslab.collections.compaction import MAX_ROWS, replace_segments
from hyperslab.collections.gathering import gather
from hyperslab.collections.index import Index
from hyperslab.collections.manifest import Manifest, fetch_manifest, join
from hyperslab.collections.packs import Pack, pack_key
from hyperslab.collections.plans import Plan
from hyperslab.collections.reading import PackReader
from hyperslab.collections.segment import pack_segments
from hyperslab.collections.sweeping import MARKS
from hyperslab.collections.writing import store_segment
from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.layout.checksums import crc32c
from hyperslab.store import Store

__all__ = ["Progress", "apply_plan", "batches"]

T = TypeVar("T")
Progress = Callable[[int, int], None]

_INDEX_BYTES = 16 << 20
# A pack of several arrays is held in memory while it is written.
_MOST_PACK_BYTES = 1 << 30
_TRIES = 20
_MEMBER = struct.Struct("<qqI")


@dataclass(frozen=True, slots=True, eq=False)
class _NewPack:
    """A pack that is to be there: its name, and the places of its arrays in the catalog, in order."""

    name: str
    members: Ints
    nbytes: int


def apply_plan(
    session: Session, store: Store, path: str, uuid: str, plan: Plan, tell: Progress | None = None
) -> Manifest:
    """Make packs as planned, and have the collection refer to them; return its new manifest."""
    if plan.uuid != uuid:
        raise InvalidInputError("the plan is of another collection, whose arrays are not here; make one of this")
    with session.apart(index_bytes=_INDEX_BYTES) as apart:
        return _Moving(apart, store, path, uuid, plan).run(tell)


class _Moving:
    def __init__(self, session: Session, store: Store, path: str, uuid: str, plan: Plan) -> None:
        self.session, self.store, self.path, self.uuid, self.plan = session, store, path, uuid, plan
        self.writer = StoreWriter(session, store)
        self._begun: Manifest | None = None
        self.reader = PackReader(session, store, path, path, lambda: self._latest() != self._begun)

    def run(self, tell: Progress | None) -> Manifest:
        found = self._begun = self._latest()
        catalog = read_catalog(self._index(found))
        packs = list(self._packs(catalog))
        self._write([pack for pack in packs if not _is_there(catalog, pack)], catalog, tell)
        spots = _Spots(self.plan, catalog, packs)
        for _ in range(_TRIES):
            if spots.count_changes(catalog) == 0 or not found.segments:
                return found
            rows = spots.rows(self._index(found))
            new = [store_segment(self.writer, self.path, segment) for segment in pack_segments(rows, MAX_ROWS)]
            changed = replace_segments(self.writer, self.path, self.uuid, found.segments, new)
            if changed is not None:
                return changed
            found = self._latest()
            catalog = read_catalog(self._index(found))
        raise ConflictError(f"the index was merged by others {_TRIES} times meanwhile; apply the plan again")

    def _latest(self) -> Manifest:
        found = fetch_manifest(self.writer, self.path)
        if found is None:
            raise NotFoundError("the collection is gone; was it deleted?")
        if found[0].uuid != self.uuid:
            raise ConflictError("there is another collection now; open it again")
        return found[0]

    def _index(self, manifest: Manifest) -> Index:
        return Index(self.session, self.store, self.path, manifest)

    def _packs(self, catalog: Catalog) -> Iterator[_NewPack]:
        """Yield the packs of the plan, with those of their arrays that there still are."""
        # Marks first: a pack whose mark is gone by now was deleted before the packs are looked at.
        marks = {each.key.rpartition("/")[2] for each in self.writer.listing(join(self.path, MARKS))}
        places = catalog.find(self.plan.ids)
        bounds = np.searchsorted(self.plan.packs, np.arange(self.plan.packs[-1] + 2) if len(self.plan) else [0])
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            members = places[low:high]
            members = members[members >= 0]
            members = members[catalog.nbytes[members] > 0]
            if len(members):
                nbytes = int(catalog.nbytes[members].sum())
                if len(members) > 1 and nbytes > _MOST_PACK_BYTES:
                    raise InvalidInputError(
                        f"the plan has a pack of {nbytes:,} bytes, and packs of {_MOST_PACK_BYTES:,} at most are "
                        "written; ask for advice with fewer pack_bytes"
                    )
                yield _NewPack(self._name(catalog, members, marks), members, nbytes)

    def _name(self, catalog: Catalog, members: Ints, marks: set[str]) -> str:
        """Return a pack's name by what it holds; one that a sweep may be about to delete is not used again."""
        each = zip(catalog.id[members], catalog.nbytes[members], catalog.crc32c[members], strict=True)
        content = b"".join([_MEMBER.pack(*member) for member in each])
        held = catalog.packs[catalog.pack[members[0]]][0]
        hashes = (hashlib.sha256(b"%s %d " % (self.uuid.encode(), salt) + content).hexdigest() for salt in count())
        names = (each[: 2 * PACK_NAME_BYTES] for each in hashes)
        return next(name for name in names if name == held or f"packs-{name}.pack" not in marks)

    def _write(self, packs: list[_NewPack], catalog: Catalog, tell: Progress | None) -> None:
        """Store packs, as many at a time as memory holds, but those that an earlier try has stored."""
        stored = dict(self.writer.keys(join(self.path, "packs"))) if packs else {}
        there = [pack for pack in packs if stored.get(pack_key(self.path, pack.name)) == pack.nbytes]
        whole = self._whole(there, catalog)
        missing = [pack for pack in packs if pack.name not in whole]
        total = sum(pack.nbytes for pack in packs)
        done = total - sum(pack.nbytes for pack in missing)
        if tell is not None:
            tell(done, total)
        # New packs whose arrays lie near one another now are made together: what is fetched for them lies together.
        missing.sort(key=lambda pack: float(np.median(catalog.pack[pack.members])))
        for batch in batches(missing, [pack.nbytes for pack in missing], self.session.memory_bytes // 2):
            self._write_batch(batch, catalog)
            done += sum(pack.nbytes for pack in batch)
            if tell is not None:
                tell(done, total)

    def _whole(self, packs: list[_NewPack], catalog: Catalog) -> set[str]:
        """Return the names of those packs that hold what they should."""
        found = set[str]()

        def look(pack: _NewPack) -> None:
            if self._is_whole(pack, catalog):
                found.add(pack.name)

        if packs:
            self.writer.each(packs, look, held_bytes=max(pack.nbytes for pack in packs))
        return found

    def _is_whole(self, pack: _NewPack, catalog: Catalog) -> bool:
        reply = self.writer.get(pack_key(self.path, pack.name), limit_bytes=pack.nbytes)
        if reply is None or len(reply.data) != pack.nbytes:
            return False
        cells, at = np.frombuffer(reply.data, np.uint8), 0
        for nbytes, stored in zip(catalog.nbytes[pack.members], catalog.crc32c[pack.members], strict=True):
            if crc32c(cells[at : at + nbytes]) != stored:
                return False
            at += nbytes
        return True

    def _write_batch(self, batch: list[_NewPack], catalog: Catalog) -> None:
        members = np.concatenate([pack.members for pack in batch])
        arrays = gather(self.reader, [catalog.entry(at) for at in members.tolist()])

        def put(pack: _NewPack) -> None:
            filling = Pack(bytes.fromhex(pack.name))
            for number in catalog.id[pack.members].tolist():
                filling.add(arrays[number].data)
            self.writer.put(pack_key(self.path, pack.name), filling.data)

        self.writer.each(batch, put, held_bytes=max(pack.nbytes for pack in batch))


def batches(items: Iterable[T], sizes: Iterable[int], most_bytes: int) -> Iterator[list[T]]:
    """Yield items one after another in groups of so many bytes at most; a larger one is alone.

    >>> list(batches("abcd", [3, 2, 9, 1], 5))
    [['a', 'b'], ['c'], ['d']]
    """
    group, nbytes = list[T](), 0
    for item, size in zip(items, sizes, strict=True):
        if group and nbytes + size > most_bytes:
            yield group
            group, nbytes = [], 0
        group.append(item)
        nbytes += size
    if group:
        yield group


def _is_there(catalog: Catalog, pack: _NewPack) -> bool:
    """Whether all arrays of a pack lie in it as planned."""
    places = catalog.pack[pack.members]
    starts = np.cumsum(catalog.nbytes[pack.members]) - catalog.nbytes[pack.members]
    held = catalog.packs[places[0]]
    same = held == (pack.name, pack.nbytes) and bool((places == places[0]).all())
    return same and np.array_equal(catalog.start[pack.members], starts)


class _Spots:
    """Where arrays lie by the plan, by their ids."""

    def __init__(self, plan: Plan, catalog: Catalog, packs: list[_NewPack]) -> None:
        none = np.zeros(0, np.int64)
        members = np.concatenate([none, *[pack.members for pack in packs]])
        numbers = np.repeat(np.arange(len(packs)), [len(pack.members) for pack in packs])
        starts = [np.cumsum(catalog.nbytes[pack.members]) - catalog.nbytes[pack.members] for pack in packs]
        order = np.argsort(catalog.id[members], kind="stable")
        self.packs = [(bytes.fromhex(pack.name), pack.nbytes) for pack in packs]
        self.ids = catalog.id[members][order]
        self.pack, self.start = numbers[order], np.concatenate([none, *starts])[order]
        by_id = np.argsort(plan.ids, kind="stable")
        self.keyed = plan.keyed[by_id][np.searchsorted(plan.ids, self.ids, sorter=by_id)]

    def find(self, ids: Ints) -> npt.NDArray[np.int64]:
        """Return the place of each id here, -1 where it is not of the plan."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, -1)

    def count_changes(self, catalog: Catalog) -> int:
        """Return how many arrays do not lie as planned."""
        at = self.find(catalog.id)
        planned = np.flatnonzero(at >= 0)
        at = at[planned]
        wanted = {(name.hex(), nbytes): number for number, (name, nbytes) in enumerate(self.packs)}
        numbers = np.array([wanted.get(pack, -1) for pack in catalog.packs], np.int64)
        same = (numbers[catalog.pack[planned]] == self.pack[at]) & (catalog.start[planned] == self.start[at])
        return int((~same | (catalog.keyed[planned] != self.keyed[at])).sum())

    def rows(self, index: Index) -> Iterator[Row]:
        """Yield all rows of an index, with the new places of those arrays that have one."""
        for _, _, row in index.merged(b"", b"", self._moved):
            if not row.flags & DELETED:
                yield row

    def _moved(self, block: Block) -> list[Row]:
        rows = list(block.iter_rows())
        at = self.find(np.array([row.id for row in rows], np.int64)).tolist()
        return [row if place < 0 or row.flags & DELETED else self._row(row, place)
                for row, place in zip(rows, at, strict=True)]  # fmt: skip

    def _row(self, row: Row, place: int) -> Row:
        pack, pack_nbytes = self.packs[self.pack[place]]
        flags = row.flags | KEYED if self.keyed[place] else row.flags & ~KEYED
        return row._replace(pack=pack, pack_nbytes=pack_nbytes, start=int(self.start[place]), flags=flags)
