"""The index of a collection at one moment: names are looked up in its segments, the newest first.

Of a segment only its table of blocks is held; blocks are taken from mapped files, or fetched, all that a read needs at
once, and kept in the session's cache of indexes. So a collection of millions of names is opened by its manifest alone,
and a lookup takes one block of each segment.
"""

import heapq
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

from hyperslab.collections.blocks import Block, Entry
from hyperslab.collections.manifest import Manifest, SegmentRef
from hyperslab.collections.names import encoded
from hyperslab.collections.segment import MAX_TAIL_BYTES, Table, block_checksum, segment_key
from hyperslab.errors import ConflictError, FormatError, IntegrityError
from hyperslab.execute import Session
from hyperslab.execute.file import send_lookups
from hyperslab.execute.run import Job
from hyperslab.store import LocalStore, Mapped, Reply, Store

__all__ = ["Index", "Located", "Ways"]

# A block and a row in it.
Located = tuple[Block, int]
# A segment, as its place among them, and a block of it.
_Place = tuple[int, int]
# The first names of groups of segments; of each group, if it is one segment, its separators, the blocks held of it, and
# its place.
Ways = tuple[list[bytes], list[tuple[list[bytes], dict[int, Block], int] | None]]

# Segments of up to so many bytes are fetched whole.
_SMALL_BYTES = 1 << 18
# Between blocks that are fetched together, up to so many other bytes come along; and no request is longer than this.
_GAP_BYTES = 1 << 16
_REQUEST_BYTES = 4 << 20
# While names are gone through, so many blocks are held at a time.
_AHEAD = 32
# What an entry that is at hand takes in memory, about.
_ENTRY_BYTES = 512
_BLOCK_BYTES = 4096
# How long a file of the index is used before it is looked at again: that look would take as long as several lookups.
_TRUST_S = 0.01


class _Segment:
    """A segment and its table, once that was fetched."""

    __slots__ = ("blocks", "etag", "key", "ref", "seen_at", "table")

    def __init__(self, path: str, ref: SegmentRef) -> None:
        self.key, self.ref = segment_key(path, ref.name), ref
        self.table: Table | None = None
        # Of a mapped file: its version, when it was last looked at, and blocks that were found to be whole.
        self.etag, self.seen_at = "", float("-inf")
        self.blocks: dict[int, Block] = {}


class Index:
    """Finds entries by their names. `known` are some that were found before, by name."""

    def __init__(
        self, session: Session, store: Store, path: str, manifest: Manifest, old: "Index | None" = None
    ) -> None:
        self.session, self.store = session, store
        kept: dict[SegmentRef, _Segment] = {} if old is None else {segment.ref: segment for segment in old.segments}
        # The newest first.
        self.segments: list[_Segment] = [kept.get(ref) or _Segment(path, ref) for ref in reversed(manifest.segments)]
        self.known: dict[str, Entry] = {}
        self._most_known = max(64, session.index_bytes // _ENTRY_BYTES)
        self._grouped: tuple[list[bytes], list[list[int]]] | None = None
        self._ways: Ways | None = None
        # Of more names than can be kept at hand hardly one is asked for again: then blocks that are mapped do as well.
        rows = sum(segment.ref.rows for segment in self.segments)
        self.searched = isinstance(store, LocalStore) and rows > self._most_known

    def parts(self) -> "list[Index]":
        """Return the same in parts whose names lie apart from one another, in their order."""
        return [self.part(places) for places in self._groups()[1]]

    def part(self, places: Iterable[int]) -> "Index":
        """Return an index of some of the segments."""
        part = copy(self)
        part.segments, part.known, part._grouped = [self.segments[place] for place in places], {}, None
        part._ways = None
        return part

    def find(self, names: Collection[str]) -> dict[str, Entry]:
        """Return the entries of those names that there are arrays of."""
        found = self._find_held(names) if isinstance(self.store, LocalStore) else {}
        if len(found) < len(names):
            rest = self.locate([name for name in names if name not in found])
            found |= {name: block.entry(row, name) for name, (block, row) in rest.items()}
        if len(self.known) + len(found) > self._most_known:
            self.known.clear()
        if len(found) <= self._most_known:
            self.known.update(found)
        return found

    def _find_held(self, names: Iterable[str]) -> dict[str, Entry]:
        """Return entries that can be had at once: of names that only one segment can have, in a block that is held."""
        found: dict[str, Entry] = {}
        firsts, ways = self.ways()
        if not ways:
            return found
        for name in names:
            try:
                text = name.encode()
            except (AttributeError, UnicodeEncodeError):
                continue
            # A name before the first is in no block, of whichever group.
            way = ways[bisect_right(firsts, text) - 1]
            if way is not None:
                block = way[1].get(bisect_right(way[0], text) - 1)
                entry = None if block is None else block.take(text, name)
                if entry is not None:
                    found[name] = entry
        return found

    def held(self, names: Iterable[str]) -> list[Entry | None] | None:
        """Return the entries of names, in their order, if all can be had at once; nothing is kept of them."""
        firsts, ways = self.ways()
        found = []
        try:
            for name in names:
                text = name.encode()
                separators, blocks, _ = ways[bisect_right(firsts, text) - 1]  # type: ignore[misc]
                found.append(blocks[bisect_right(separators, text) - 1].take(text, name))
        except (AttributeError, IndexError, KeyError, TypeError, UnicodeEncodeError):
            # Several segments can have the name, its block is not held, or it is none.
            return None
        return found

    def ways(self) -> Ways:
        """Return how names lead to blocks, as of now: another one than before if a file was written to."""
        self._look_at_files(range(len(self.segments)))
        if self._ways is None:
            firsts, groups = self._groups()
            tables, segments = self.tables(), self.segments
            self._ways = (
                firsts,
                [
                    (tables[places[0]].separators, segments[places[0]].blocks, places[0]) if len(places) == 1 else None
                    for places in groups
                ],
            )
        return self._ways

    @property
    def most_blocks(self) -> int:
        """How many blocks of a mapped segment are held: they are no memory of ours, but what leads there is."""
        return max(16, self.session.index_bytes // (_BLOCK_BYTES * max(1, len(self.segments))))

    def locate(self, names: Collection[str]) -> dict[str, Located]:
        """Return where the entries of those names are that there are arrays of."""
        self._look_at_files(range(len(self.segments)))
        tables, (firsts, groups) = self.tables(), self._groups()
        found: dict[str, Located] = {}
        held = [segment.blocks for segment in self.segments]
        fetched: dict[_Place, Block] = {}
        waiting = names
        while waiting:
            missing: set[_Place] = set()
            later: list[str] = []
            for name in waiting:
                text = encoded(name)
                group = bisect_right(firsts, text) - 1
                lacking = False
                for place in groups[group] if group >= 0 else ():
                    at = tables[place].block_of(text)
                    block = held[place].get(at) or fetched.get((place, at)) if at >= 0 else None
                    if block is None:
                        if at >= 0:
                            # Whatever older segments hold is asked for at the same time.
                            missing.add((place, at))
                            lacking = True
                    elif not lacking and (row := block.find(text)) >= 0:
                        if not block.is_deleted(row):
                            found[name] = block, row
                        break
                if lacking:
                    later.append(name)
            waiting = later
            if missing:
                fetched |= self.blocks(missing)
        return found

    def merged(
        self, low: bytes, prefix: bytes, each: Callable[[Block], Sequence[Any]]
    ) -> Iterator[tuple[bytes, int, Any]]:
        """Yield, by name, the newest row of each from `low` on that has the prefix: name, segment, what `each` gives.

        `each` gives something for all rows of a block.
        """
        for first, places in zip(*self._groups(), strict=True):
            if first > prefix and not first.startswith(prefix):
                return
            streams = [self._stream(place, low, prefix, each) for place in places]
            last: bytes | None = None
            for name, place, value in streams[0] if len(streams) == 1 else heapq.merge(*streams):
                if name != last:
                    yield name, place, value
                    last = name

    def _stream(
        self, place: int, low: bytes, prefix: bytes, each: Callable[[Block], Sequence[Any]]
    ) -> Iterator[tuple[bytes, int, Any]]:
        for block in self.through(place, low):
            names = block.names()
            if names[-1] < low:
                continue
            for name, value in zip(names, each(block), strict=True):
                if name.startswith(prefix):
                    if name >= low:
                        yield name, place, value
                elif name > prefix:
                    return

    def through(self, place: int, low: bytes = b"") -> Iterator[Block]:
        """Yield the blocks of a segment from the one on that `low` would be in."""
        table = self.tables()[place]
        at, ahead = max(0, table.block_of(low)) if low <= table.last else table.blocks, 1
        while at < table.blocks:
            numbers = range(at, min(at + ahead, table.blocks))
            blocks = self.blocks([(place, number) for number in numbers], keep=False)
            for number in numbers:
                yield blocks[place, number]
            at, ahead = at + ahead, min(2 * ahead, _AHEAD)

    # Tables and blocks

    def _groups(self) -> tuple[list[bytes], list[list[int]]]:
        """Return groups of segments whose names lie apart from those of other groups: their first names, their places.

        Names that were put in order make segments that need not be looked at for one another's names.
        """
        if self._grouped is None:
            tables = self.tables()
            firsts, groups, last = list[bytes](), list[list[int]](), b""
            for place in sorted(range(len(tables)), key=lambda place: tables[place].separators[0]):
                first = tables[place].separators[0]
                if groups and first <= last:
                    groups[-1].append(place)
                else:
                    firsts.append(first)
                    groups.append([place])
                last = max(last, tables[place].last)
            # In each group the newest first, as in all of them.
            self._grouped = firsts, [sorted(places) for places in groups]
        return self._grouped

    def tables(self) -> list[Table]:
        """Return the tables of all segments, the newest first."""
        missing = [place for place, segment in enumerate(self.segments) if segment.table is None]
        if missing and not isinstance(self.store, LocalStore):
            for place in missing:
                self.segments[place].table = self.session.indexes.get(self._name(place, "table"))
        if missing:
            self._load_tables([place for place in missing if self.segments[place].table is None])
        return [segment.table for segment in self.segments if segment.table is not None]

    def _load_tables(self, missing: list[int]) -> None:
        spans = {}
        for place in missing:
            ref = self.segments[place].ref
            if ref.nbytes - ref.tail > MAX_TAIL_BYTES:
                raise FormatError(f"{self.segments[place].key!r} has a table of {ref.nbytes - ref.tail:,} bytes")
            whole = ref.nbytes <= _SMALL_BYTES and not isinstance(self.store, LocalStore)
            spans[place] = (0 if whole else ref.tail, ref.nbytes)
        for (place, start), data in self._fetch([(place, *span) for place, span in spans.items()]).items():
            segment = self.segments[place]
            table = Table(data[segment.ref.tail - start :], segment.ref, repr(segment.key))
            segment.table = table
            if not isinstance(self.store, LocalStore):
                self.session.indexes.put(self._name(place, "table"), table, table.nbytes)
            if not start:
                for number in range(table.blocks):
                    low, high = table.span(number)
                    self._keep(place, number, self._block(place, number, data[low:high]))

    def blocks(self, wanted: Collection[_Place], *, keep: bool = True) -> dict[_Place, Block]:
        """Return some blocks, those that are not at hand fetched together; kept for others, if they are to be."""
        self._look_at_files({place for place, _ in wanted})
        found: dict[_Place, Block] = {}
        missing: list[_Place] = []
        for spot in wanted:
            block = self._kept(*spot)
            if block is None:
                missing.append(spot)
            else:
                found[spot] = block
        if missing:
            for spot, data in self._fetch_blocks(missing).items():
                found[spot] = self._block(*spot, data)
                if keep:
                    self._keep(*spot, found[spot])
        return found

    def _look_at_files(self, places: Iterable[int]) -> None:
        """Notice a file that was written to, which none of ours is: what was found in it before no longer counts."""
        if not isinstance(self.store, LocalStore):
            return
        now = time.monotonic()
        for place in places:
            segment = self.segments[place]
            if now - segment.seen_at > _TRUST_S:
                etag = self._mapped(self.store, place).etag
                if etag != segment.etag:
                    segment.blocks.clear()
                    segment.table = self._ways = None
                segment.etag, segment.seen_at = etag, now

    def _block(self, place: int, number: int, data: memoryview) -> Block:
        segment = self.segments[place]
        where, stored = f"block {number} of {segment.key!r}", self.tables()[place].checksums[number]
        if (found := block_checksum(data)) != stored:
            raise IntegrityError(f"{where} is damaged: its crc32c is {found:#010x}, stored was {stored:#010x}")
        return Block(data, where)

    def _kept(self, place: int, number: int) -> Block | None:
        if isinstance(self.store, LocalStore):
            return self.segments[place].blocks.get(number)
        block: Block | None = self.session.indexes.get(self._name(place, number))
        return block

    def _keep(self, place: int, number: int, block: Block) -> None:
        if not isinstance(self.store, LocalStore):
            self.session.indexes.put(self._name(place, number), block, _BLOCK_BYTES + block.nbytes)
            return
        blocks = self.segments[place].blocks
        if len(blocks) >= self.most_blocks:
            blocks.clear()
        blocks[number] = block

    def _name(self, place: int, what: int | str) -> tuple[str, str, int | str]:
        return self.store.address, self.segments[place].key, what

    def _fetch_blocks(self, wanted: list[_Place]) -> dict[_Place, memoryview]:
        """Return the bytes of blocks; near ones are asked for together."""
        tables = self.tables()
        groups: list[list[tuple[_Place, int, int]]] = []
        gap = 0 if isinstance(self.store, LocalStore) else min(self.session.model(self.store).gap_bytes(), _GAP_BYTES)
        for at in sorted(wanted):
            start, stop = tables[at[0]].span(at[1])
            last = groups[-1] if groups else None
            near = last is not None and last[-1][0][0] == at[0] and start - last[-1][2] <= gap
            if last is not None and near and stop - last[0][1] <= _REQUEST_BYTES:
                last.append((at, start, stop))
            else:
                groups.append([(at, start, stop)])
        ranges = [(group[0][0][0], group[0][1], group[-1][2]) for group in groups]
        fetched = self._fetch(ranges)
        return {
            at: fetched[place, low][start - low : stop - low]
            for (place, low, _), group in zip(ranges, groups, strict=True)
            for at, start, stop in group
        }

    def _fetch(self, ranges: list[tuple[int, int, int]]) -> dict[_Place, memoryview]:
        """Return the bytes of some ranges of segments, by the segment's place and the range's start."""
        if isinstance(self.store, LocalStore):
            mapped = {place: self._mapped(self.store, place).bytes.data for place, _, _ in ranges}
            return {(place, start): mapped[place][start:stop] for place, start, stop in ranges}
        found: dict[_Place, memoryview] = {}
        places = {self.segments[place].key: place for place, _, _ in ranges}

        def done(job: Job, reply: Reply) -> None:
            place = places[job.key]
            if reply.object_nbytes != self.segments[place].ref.nbytes:
                raise self._other_size(place, reply.object_nbytes)
            found[place, job.span[0]] = reply.data  # type: ignore[index]

        jobs = [
            Job(-1, self.segments[place].key, (start, stop), stop - start, lookup=True)
            for place, start, stop in ranges
        ]  # fmt: skip
        send_lookups(self.session, self.store, jobs, done, _missing)
        return found

    def _mapped(self, store: LocalStore, place: int) -> Mapped:
        segment = self.segments[place]
        try:
            mapped = store.map(segment.key)
        except KeyError:
            raise _gone(segment.key) from None
        if mapped.nbytes != segment.ref.nbytes:
            raise self._other_size(place, mapped.nbytes)
        return mapped

    def _other_size(self, place: int, nbytes: int) -> IntegrityError:
        segment = self.segments[place]
        return IntegrityError(f"{segment.key!r} has {nbytes} bytes, the manifest says {segment.ref.nbytes}")


def _missing(job: Job) -> None:
    raise _gone(job.key)


def _gone(key: str) -> ConflictError:
    return ConflictError(f"{key!r} is gone: the collection was changed and swept since it was opened; call refresh()")
