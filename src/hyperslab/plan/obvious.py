"""Plans of small reads that leave nothing to choose: encoded chunks that lie side by side, each object's one request.

Most reads of small boxes and of a few rows are so. What decides on gaps between arrays of ranges would find the same,
but takes several times as long, with each array's first use after a pause: such a read waits for that.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, ge

import numpy as np

from hyperslab.layout import ChunkTable, Layout
from hyperslab.plan.cost import CostModel, Estimate
from hyperslab.plan.optimise import leaves_no_choice
from hyperslab.plan.pieces import Pieces, inners_of, objects_of, which_object
from hyperslab.plan.ranges import Needs, Ranges, Units

__all__ = ["Obvious", "obvious"]

# Above this many chunks arrays are quicker than a loop.
_MOST_CHUNKS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Obvious:
    """The parts of such a plan, as `Plan` has them; every object is asked for once, for the bytes that are needed."""

    keys: list[str]
    needs: Needs
    requests: Ranges
    # The rows of `needs` that each request holds.
    spans: list[tuple[int, int]]
    estimate: Estimate


def obvious(
    reads: Sequence[Pieces],
    model: CostModel,
    tables: Mapping[str, ChunkTable],
    told: Collection[str],
    is_cached: Callable[[Layout, str, int], bool] | None,
) -> Obvious | None:
    """Plan reads of encoded chunks whose places are known; None if there is anything to decide, or to find out."""
    if sum([len(read) for read in reads]) > _MOST_CHUNKS:
        return None
    found, owner = _Found(), 0
    for read in reads:
        if not _is_placed(read.layout):
            return None
        for coords, pieces, inners in _by_object(read):
            key = read.layout.keys.key(coords)
            table = tables.get(key) if read.layout.table is None else read.layout.table
            if table is None or key in told or key in found.keys:
                return None
            if is_cached is not None and any([is_cached(read.layout, key, inner) for inner in inners]):
                return None
            if not found.take(key, *_places(table, inners), [owner + piece for piece in pieces]):
                return None
        owner += len(read)
    return found.planned(model, sum([read.cells * read.layout.stored.itemsize for read in reads]))


@dataclass(slots=True, eq=False)
class _Found:
    """What was found so far: in lists, as to add to arrays takes longer.

    `asked` is where each object's request begins and ends, `rows` of each chunk its object, where it begins and ends
    there, and its owner.
    """

    keys: list[str] = field(default_factory=list)
    asked: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    rows: tuple[list[int], ...] = field(default_factory=lambda: ([], [], [], []))
    spans: list[tuple[int, int]] = field(default_factory=list)

    def take(self, key: str, lows: list[int], highs: list[int], owners: list[int]) -> bool:
        """Take in the chunks of an object, by where they begin and end; False if they do not lie side by side."""
        if lows[1:] != highs[:-1]:
            lows, highs, owners = map(list, zip(*sorted(zip(lows, highs, owners, strict=True)), strict=True))
        if lows[0] < 0 or lows[1:] != highs[:-1] or any(map(ge, lows, highs)):
            return False
        objects, starts, stops, owned = self.rows
        first, count = len(starts), len(lows)
        objects += [len(self.keys)] * count
        starts += lows
        stops += highs
        owned += owners
        self.keys.append(key)
        self.asked[0].append(lows[0])
        self.asked[1].append(highs[-1])
        self.spans.append((first, first + count))
        return True

    def planned(self, model: CostModel, needed: int) -> Obvious | None:
        """Return the plan, if there is something to fetch, and hardly a better one."""
        sizes = [high - low for low, high in zip(*self.asked, strict=True)]
        if not sizes or not (len(self.rows[0]) == 1 or leaves_no_choice(model, len(sizes), sum(sizes), max(sizes))):
            return None
        lows, highs = np.array(self.asked, np.int64)
        objects, starts, stops, owners = np.array(self.rows, np.int64)
        needs = Needs(Units(objects, starts, stops), np.arange(len(starts)), owners, starts, stops, 0)
        estimate = model.estimate(requests=len(sizes), needed=needed, fetched=sum(sizes), largest=max(sizes))
        return Obvious(self.keys, needs, Ranges(np.arange(len(sizes)), lows, highs), self.spans, estimate)


def _is_placed(layout: Layout) -> bool:
    """Whether chunks are encoded, and a table says where they lie in objects."""
    tabled = layout.index is not None or layout.table is not None
    return layout.decoder is not None and tabled and layout.references is None


def _by_object(read: Pieces) -> Iterator[tuple[tuple[int, ...], Sequence[int], list[int]]]:
    """Give each object's place in the grid of objects, its pieces, and which of its chunks these are."""
    objects, inners = objects_of(read), inners_of(read)
    if len(objects) == 1:
        yield objects[0], range(len(inners)), inners
        return
    found: list[list[int]] = [[] for _ in objects]
    for piece, which in enumerate(which_object(read)):
        found[which].append(piece)
    for coords, pieces in zip(objects, found, strict=True):
        yield coords, pieces, [inners[piece] for piece in pieces]


def _places(table: ChunkTable, inners: list[int]) -> tuple[list[int], list[int]]:
    """Return where chunks begin and end."""
    first, count = inners[0], len(inners)
    if inners == [*range(first, first + count)]:  # neighbours, as those of rows of the array are
        lows, lengths = table.offsets[first : first + count].tolist(), table.lengths[first : first + count].tolist()
    else:
        lows, lengths = [[column.item(inner) for inner in inners] for column in (table.offsets, table.lengths)]
    return lows, list(map(add, lows, lengths))
