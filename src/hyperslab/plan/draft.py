"""What reads need, gathered read by read: ranges of objects, whole objects, indexes to look up first."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from hyperslab.errors import ChunkSizeError, IntegrityError
from hyperslab.layout import WHOLE, ChunkTable, Layout, References, numbers_of
from hyperslab.layout.wire import travels
from hyperslab.plan.cost import CostModel, Estimate
from hyperslab.plan.grouping import CALL_HEAD_BYTES, CHUNK_HEAD_BYTES, MOST_LISTED, Call, Offers, figures_of
from hyperslab.plan.pieces import BoxPieces, Pieces, cells_of, inners_of, listed_of, objects_of, which_object
from hyperslab.plan.ranges import Ints, Needs, Ranges, Units
from hyperslab.plan.shards import choose_wholes

__all__ = ["Draft", "IsCached"]

# Says of (layout, object key, chunk within the object) whether the decoded chunk is at hand.
IsCached = Callable[[Layout, str, int], bool]
# Owners, the numbers of the objects that they lie in, where their chunks begin and end there, by object and place; and
# whether some share bytes.
_Extents = tuple[Ints, Ints, Ints, Ints, bool]
# Of one object: its number, owners, and where their chunks begin (below 0: not stored) and end.
_Places = tuple[int, Sequence[int], Ints, Ints]


@dataclass(slots=True)
class Draft:
    """A plan in the making: see `Plan` for what its parts become.

    `choose` says whether a shard may be fetched whole instead of looking its index up, `settled` that it must be.
    `shrinks` are, read by read, what share of their bytes cells are expected to have in a function's answer. `told` are
    the keys of `tables` that are not certain.
    """

    model: CostModel
    tables: Mapping[str, ChunkTable]
    is_cached: IsCached | None
    choose: bool
    settled: bool
    shrinks: Sequence[float] = ()
    told: Collection[str] = ()
    count: int = 0
    bases: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    needs: list[Needs] = field(default_factory=list)
    # Where encoded chunks of all reads lie, which become needs at once: every step over arrays costs more than a chunk.
    encoded: list[_Places] = field(default_factory=list)
    wholes: dict[int, list[int]] = field(default_factory=dict)
    whole_bytes: dict[int, int] = field(default_factory=dict)
    lookups: dict[int, Pieces] = field(default_factory=dict)
    confirmed: dict[int, Pieces] = field(default_factory=dict)
    absent: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    inline: list[int] = field(default_factory=list)
    # How many chunks are wanted of each shard whose index is not known.
    unknown: dict[int, int] = field(default_factory=dict)
    needed_bytes: int = 0
    exact: bool = True
    reads: list[Pieces] = field(default_factory=list)

    def add(self, read: Pieces) -> None:
        """Take in what a read needs; its pieces get the next owners' numbers."""
        self.bases.append(self.count)
        self.reads.append(read)
        if read.layout.references is not None:
            self._add_referenced(read, read.layout.references)
        elif read.layout.packed:
            self._add_packed(read)
        elif read.layout.plain:
            self._add_plain(read)
        else:
            self._add_encoded(read)
        self.count += len(read)
        self.needed_bytes += read.cells * read.layout.stored.itemsize

    def all_needs(self) -> Needs:
        """Return the ranges needed by all reads; takes note of the chunks that are not stored."""
        if self.encoded:
            self.needs.append(_needs_of_encoded(self._extents(self.encoded)))
            self.encoded = []
        return Needs.joined(self.needs) if self.needs else Needs.nothing()

    def offers(self, needs: Needs) -> Offers:
        """Return the chunks that a function could cut: of those that are decided on, the ones that fit in a call."""
        replies = [self._replies(read) for read in self.reads]
        reply_of = np.concatenate(replies) if replies else np.zeros(0, np.int64)
        listed = [np.broadcast_to(listed_of(read), len(read)) for read in self.reads]
        listed_by = np.concatenate(listed) if listed else reply_of
        owner_of = np.full(len(needs.chunks.objects), -1, np.int64)
        owner_of[needs.units] = needs.owners
        firsts, lasts, _ = needs.reaches()
        units = np.flatnonzero((owner_of >= 0) & ~np.isin(needs.chunks.objects, list(self.lookups)))
        # Two reads of one object, and a shard fetched for its index, are not called for.
        alone = [
            n for n, owners in self.wholes.items() if len(owners) == 1 and self._layout_of(owners[0]).index is None
        ]
        objects = np.array(alone, np.int64)
        owners = np.concatenate([owner_of[units], np.array([self.wholes[n][0] for n in alone], np.int64)])
        stops = np.concatenate([lasts[units], np.array([self.whole_bytes[n] for n in alone], np.int64)])
        starts = np.concatenate([firsts[units], np.zeros(len(alone), np.int64)])
        columns = (
            owners,
            np.concatenate([units, np.full(len(alone), -1, np.int64)]),
            np.concatenate([needs.chunks.objects[units], objects]),
            reply_of[owners],
            starts,
            stops,
            listed_by[owners],
            self._expected(reply_of)[owners],
            self._decoded()[owners],
        )
        read = stops - starts
        function = self.model.function
        fits = (columns[3] >= 0) & (columns[6] <= MOST_LISTED)
        if function is not None:
            fits &= (columns[3] + CALL_HEAD_BYTES <= function.reply_bytes) & (read <= function.read_bytes)
            # Of a plain chunk, what is read counts; of the others, what they are when they are decoded.
            fits &= (columns[1] < 0) | (read <= function.chunk_bytes)
        return Offers(*[column[fits] for column in columns])

    def _replies(self, read: Pieces) -> Ints:
        """Return the bytes that the answer for each piece has, -1 where no function can cut it."""
        layout, function = read.layout, self.model.function
        too_large = function is not None and not layout.plain and layout.chunk_nbytes > function.chunk_bytes
        if too_large or travels(layout) is not None:
            return np.full(len(read), -1, np.int64)
        return cells_of(read) * layout.stored.itemsize + CHUNK_HEAD_BYTES

    def _expected(self, reply_of: Ints) -> Ints:
        """Return the bytes that the part of an answer for each piece is expected to have, given those of its cells."""
        if not self.shrinks:
            return reply_of
        shares = np.repeat(self.shrinks, [len(read) for read in self.reads])
        cells: Ints = np.ceil((reply_of - CHUNK_HEAD_BYTES) * shares).astype(np.int64)
        return cells + CHUNK_HEAD_BYTES

    def _decoded(self) -> Ints:
        """Return the bytes that each piece's chunk has when it is decoded, 0 for plain ones."""
        sizes = [0 if read.layout.plain else read.layout.chunk_nbytes for read in self.reads]
        return np.repeat(np.array(sizes, np.int64), [len(read) for read in self.reads])

    def _layout_of(self, owner: int) -> Layout:
        return self.reads[bisect_right(self.bases, owner) - 1].layout

    @property
    def others(self) -> list[int]:
        """The bytes of what is fetched along with ranges: whole objects, and indexes that are to be confirmed."""
        return list(self.whole_bytes.values()) + _index_bytes(self.confirmed)

    def estimate(self, requests: Ranges, calls: tuple[Call, ...] = ()) -> Estimate:
        """Price the plan with these requests for its ranges, and these calls."""
        whole_bytes = list(self.whole_bytes.values())
        count, fetched = len(requests), requests.nbytes
        largest = max([requests.largest, *whole_bytes])
        if self.lookups:
            fetched, largest = self._bound(requests)
        return self.model.estimate(
            requests=count + len(whole_bytes),
            needed=self.needed_bytes,
            fetched=fetched + sum(whole_bytes),
            largest=max([largest, *whole_bytes]),
            lookups=sum([self._lookup_requests(read.layout) for read in (self.lookups | self.confirmed).values()]),
            lookup_bytes=sum(_index_bytes(self.lookups | self.confirmed)),
            first=bool(self.lookups),
            # How long the header of a call's answer is, depends on what the store names versions by.
            exact=self.exact and not self.lookups and not calls,
            calls=figures_of(calls),
        )

    def _lookup_requests(self, layout: Layout) -> int:
        return self.model.end_requests if layout.index is not None and layout.index.location == "end" else 1

    def _gap_bytes(self) -> int:
        """The widest gap between two chunks of a shard that may get closed."""
        return int(min(self.model.widest_gap_bytes(), 1 << 32)) if self.choose else 0

    def _bound(self, requests: Ranges) -> tuple[int, int]:
        """Return the most bytes that it can take, and the largest request, whatever indexes not known yet will say.

        Chunks of a shard may lie in any order and apart. They were planned too far apart to share a request, which
        is the most requests there can be; at worst the gaps between them are fetched as well, as far as that pays.
        """
        sizes = requests.stops - requests.starts
        known = ~np.isin(requests.objects, list(self.lookups))
        fetched, largest = int(sizes[known].sum()), int(sizes[known].max(initial=0))
        for number, wanted in self.unknown.items():
            layout = self.lookups[number].layout
            chunk = layout.stored_size.nbytes
            most = min(prod(layout.chunks_per_object) * chunk, wanted * chunk + (wanted - 1) * self._gap_bytes())
            fetched, largest = fetched + most, max(largest, most)
        return fetched, largest

    def _number(self, key: str) -> int:
        number = self.numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number

    def _add_plain(self, read: Pieces) -> None:
        """Chunks that are objects (or parts of one) whose cells lie at known places."""
        layout = read.layout
        objects = np.array([self._number(layout.keys.key(coords)) for coords in read.chunks()], np.int64)
        if len(objects):
            lows = np.full(len(objects), layout.base, np.int64)
            chunks = Units(objects, lows, lows + layout.chunk_nbytes)
            self.needs.append(self._rows(read, chunks, *read.runs()))

    def _add_encoded(self, read: Pieces) -> None:
        """Chunks that are whole objects of a size that is not known beforehand."""
        layout = read.layout
        for owner, coords in enumerate(read.chunks(), self.count):
            key = layout.keys.key(coords)
            if self.is_cached is not None and self.is_cached(layout, key, 0):
                self.cached.append(owner)
            else:
                self._add_whole(layout, key, owner)

    def _add_packed(self, read: Pieces) -> None:
        """Chunks inside objects: ranges where the object's table is known, else its lookup, or the object whole."""
        layout, inners = read.layout, inners_of(read)
        wanted = self._wanted(read, inners)
        wholes = self._wholes_of(read, {n: len(pieces) for n, pieces in wanted.items()})
        places: list[_Places] = []
        for number, pieces in wanted.items():
            owners = [self.count + piece for piece in pieces]
            if number in wholes:
                index_nbytes = layout.index.nbytes if layout.index is not None else 0
                self.wholes.setdefault(number, []).extend(owners)
                self.whole_bytes[number] = prod(layout.chunks_per_object) * layout.stored_size.nbytes + index_nbytes
                self.exact = False
                continue
            chunks = np.array(inners if len(pieces) == len(inners) else [inners[piece] for piece in pieces], np.int64)
            if (table := self._table(layout, number)) is not None:
                if self.keys[number] in self.told:
                    self.confirmed[number] = read
                lows = table.offsets[chunks]
                places.append((number, owners, lows, lows + table.lengths[chunks]))
            else:
                self.lookups[number] = read
                self.unknown[number] = self.unknown.get(number, 0) + len(pieces)
                size = layout.stored_size.nbytes
                # No farther than offsets can count, whatever the metadata claims.
                apart = min(size + self._gap_bytes() + 1, (1 << 62) // prod(layout.chunks_per_object))
                places.append((number, owners, chunks * apart, chunks * apart + min(size, apart)))
        if not layout.plain:
            self.encoded += places
        elif places:
            self.needs.append(self._needs_of_plain(read, self._extents(places)))

    def _wanted(self, read: Pieces, inners: list[int]) -> dict[int, Sequence[int]]:
        """Return the pieces whose chunks are not at hand, by the number of the object that they lie in."""
        layout = read.layout
        keys = [layout.keys.key(coords) for coords in objects_of(read)]
        if self.is_cached is None and len(keys) == 1:
            return {self._number(keys[0]): range(len(read))}
        found: dict[int, list[int]] = {}
        for piece, (which, inner) in enumerate(zip(which_object(read), inners, strict=True)):
            if self.is_cached is not None and self.is_cached(layout, keys[which], inner):
                self.cached.append(self.count + piece)
            else:
                found.setdefault(which, []).append(piece)
        return {self._number(keys[which]): pieces for which, pieces in found.items()}

    def _add_referenced(self, read: Pieces, references: References) -> None:
        """Chunks that lie anywhere in any objects, are whole ones, or need no request."""
        layout = read.layout
        numbers = numbers_of(layout.grid, read.chunks())
        extents: list[tuple[int, int, int, int]] = []
        for piece, (number, row) in enumerate(zip(numbers.tolist(), references.rows(numbers).tolist(), strict=True)):
            owner = self.count + piece
            if row < 0:
                self.absent.append(owner)
            elif references.objects[row] < 0:
                self.inline.append(owner)
            else:
                key = references.keys[references.objects[row]]
                low, nbytes = int(references.offsets[row]), int(references.lengths[row])
                if self.is_cached is not None and self.is_cached(layout, key, number):
                    self.cached.append(owner)
                elif nbytes == WHOLE and not layout.plain:
                    self._add_whole(layout, key, owner)
                else:
                    stop = low + _referenced_bytes(layout, key, nbytes)
                    extents.append((owner, self._number(key), low, stop))
        if extents:
            found = _in_order(*np.array(extents, np.int64).T)
            self.needs.append(self._needs_of_plain(read, found) if layout.plain else _needs_of_encoded(found))

    def _add_whole(self, layout: Layout, key: str, owner: int) -> None:
        """Take in a chunk that is an object of a size that is not known beforehand."""
        number = self._number(key)
        self.wholes.setdefault(number, []).append(owner)
        self.whole_bytes[number] = max(self.whole_bytes.get(number, 0), layout.stored_size.nbytes)
        self.exact = self.exact and layout.stored_size.exact

    def _wholes_of(self, read: Pieces, wanted: dict[int, int]) -> set[int]:
        """Say which shards to fetch whole, given how many chunks are wanted of each."""
        layout = read.layout
        unknown = {number: count for number, count in wanted.items() if self._table(layout, number) is None}
        if self.settled:
            return set(unknown)
        told = {number for number in wanted if self.keys[number] in self.told}
        # Two reads of one shard must agree.
        wholes = self.wholes.keys() & (unknown.keys() | told)
        if self.choose:
            wholes |= {n for n in told - self.confirmed.keys() if self._is_cheaper_whole(layout, n, wanted[n])}
            open_choice = {n: unknown[n] for n in unknown if n not in wholes and n not in self.lookups}
            if open_choice:
                can_call = self.model.function is None or travels(layout) is None
                model = self.model if can_call else replace(self.model, function=None)
                wholes |= choose_wholes(layout, open_choice, model, read.cells * layout.stored.itemsize)
        return wholes

    def _is_cheaper_whole(self, layout: Layout, number: int, wanted: int) -> bool:
        """Whether one request for all of a shard costs no more than some of its chunks, with the index beside them."""
        table = self._table(layout, number)
        if table is None or layout.index is None or self.model.function is not None:
            return False
        lengths = table.lengths[table.offsets >= 0]
        whole, part = int(lengths.sum()), wanted * float(lengths.mean() if len(lengths) else 0.0)
        both = self.model.cost(2, part + layout.index.nbytes, part)
        return float(self.model.cost(1, whole + layout.index.nbytes, whole + layout.index.nbytes)) <= float(both)

    def _table(self, layout: Layout, number: int) -> ChunkTable | None:
        return self.tables.get(self.keys[number]) if layout.table is None else layout.table

    def _extents(self, places: list[_Places]) -> _Extents:
        """Return where chunks lie; those that no table lists are absent."""
        counts = [len(owners) for _, owners, _, _ in places]
        objects = np.repeat(np.array([number for number, _, _, _ in places], np.int64), counts)
        owners = np.array([owner for _, mine, _, _ in places for owner in mine], np.int64)
        lows = np.concatenate([lows for _, _, lows, _ in places])
        highs = np.concatenate([highs for _, _, _, highs in places])
        if (lows < 0).any():
            stored = lows >= 0
            self.absent += owners[~stored].tolist()
            owners, objects, lows, highs = owners[stored], objects[stored], lows[stored], highs[stored]
        if (highs <= lows).any():
            number = objects[highs <= lows].item(0)
            raise IntegrityError(f"the index of shard {self.keys[number]!r} has a chunk of 0 bytes")
        return _in_order(owners, objects, lows, highs)

    def _needs_of_plain(self, read: Pieces, extents: _Extents) -> Needs:
        """Needs of the runs of plain chunks that lie anywhere in their objects."""
        mine, objects, lows, highs, overlapping = extents
        pieces = mine - self.count
        unit_of = np.full(len(read), -1, np.int64)
        unit_of[pieces] = np.arange(len(pieces))
        owners, starts, stops = read.runs()
        stored = unit_of[owners] >= 0
        chunks = Units(objects, lows, highs)
        return self._rows(read, chunks, owners[stored], starts[stored], stops[stored], unit_of, overlapping)

    def _rows(
        self,
        read: Pieces,
        chunks: Units,
        pieces: Ints,
        starts: Ints,
        stops: Ints,
        unit_of: Ints | None = None,
        overlapping: bool = False,
    ) -> Needs:
        """Needs of the runs of plain chunks; `unit_of` leads from pieces to chunks where those are numbered apart."""
        units = pieces if unit_of is None else unit_of[pieces]
        if chunks.starts.any():
            lows = chunks.starts[units]
            starts, stops = starts + lows, stops + lows
        owners = pieces + self.count if self.count else pieces
        # Points may name a cell twice.
        overlapping = overlapping or not isinstance(read, BoxPieces)
        itemsize = read.layout.stored.itemsize
        return Needs.sorted(chunks, units, owners, starts, stops, itemsize, overlapping=overlapping)


def _in_order(owners: Ints, objects: Ints, lows: Ints, highs: Ints) -> _Extents:
    """Sort chunks by object and place, unless they are; an index may lead to one place from two of them."""
    if _are_apart(objects, lows, highs):
        return owners, objects, lows, highs, False
    order = np.lexsort((lows, objects))
    objects, lows, highs = objects[order], lows[order], highs[order]
    return owners[order], objects, lows, highs, not _are_apart(objects, lows, highs)


def _are_apart(objects: Ints, lows: Ints, highs: Ints) -> bool:
    """Whether each chunk begins where the one before has ended, or in a later object."""
    before, after = objects[:-1], objects[1:]
    return bool(((after > before) | ((after == before) & (lows[1:] >= highs[:-1]))).all())


def _needs_of_encoded(extents: _Extents) -> Needs:
    """Needs of encoded chunks, which are taken whole."""
    owners, objects, lows, highs, overlapping = extents
    return Needs(Units(objects, lows, highs), np.arange(len(owners)), owners, lows, highs, 0, overlapping)


def _referenced_bytes(layout: Layout, key: str, nbytes: int) -> int:
    """Return the bytes of a chunk that is referred to, if it can have so many."""
    size = layout.stored_size
    if layout.plain:
        if nbytes not in (WHOLE, size.nbytes):
            raise ChunkSizeError(key, nbytes, size.nbytes)
        return size.nbytes
    # As for whole objects: no codec makes chunks much larger.
    if nbytes > 2 * size.nbytes + (1 << 20):
        raise ChunkSizeError(key, nbytes, size.nbytes)
    return nbytes


def _index_bytes(shards: Mapping[int, Pieces]) -> list[int]:
    return [read.layout.index.nbytes for read in shards.values() if read.layout.index is not None]
