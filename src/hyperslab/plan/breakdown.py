"""What a plan does with each chunk: by which kind of request it comes, how much of it is fetched."""

from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
import numpy.typing as npt

from hyperslab.layout import numbers_of
from hyperslab.plan.pieces import BoxPieces, Pieces, PointPieces, cells_of
from hyperslab.plan.plan import Plan
from hyperslab.plan.ranges import Ints

__all__ = ["Line", "Way", "breakdown", "count_objects", "shares_of", "ways_of"]


class Way(IntEnum):
    """How the bytes of a chunk come."""

    RANGE = 0
    LOOKUP = 1
    GET = 2
    MAP = 3
    CACHE = 4
    ABSENT = 5
    CALL = 6
    INLINE = 7


@dataclass(frozen=True, slots=True)
class Line:
    """All that comes one way: how many chunks, by how many requests, bytes needed and fetched.

    With `exact` false, fetched bytes are an upper bound.
    """

    way: Way
    chunks: int
    requests: int
    needed_bytes: int
    fetched_bytes: int
    exact: bool = True


def breakdown(plan: Plan) -> tuple[Line, ...]:
    """Split a plan by the ways its bytes come; ways that are not used are left out.

    Lookups have a line of their own for the indexes; the chunks that they lead to count as ranges.
    """
    estimate = plan.estimate
    if plan.direct:
        lines = [Line(Way.MAP, plan.chunk_count, plan.chunk_count, estimate.needed_bytes, estimate.fetched_bytes)]
        return tuple(lines) if plan.chunk_count else ()
    ways, needed, chunk_of = ways_of(plan), _needed_of(plan), _chunks_of(plan)
    ranged = (ways == Way.RANGE) | (ways == Way.LOOKUP)
    whole_bytes = estimate.fetched_bytes - estimate.reply_bytes - plan.requests.nbytes
    known = not plan.lookups
    lines = [
        Line(Way.LOOKUP, 0, len(plan.lookups) + len(plan.confirmed), 0, estimate.lookup_bytes),
        _line(Way.RANGE, ranged, needed, chunk_of, len(plan.requests), plan.requests.nbytes, exact=known),
        _line(Way.GET, ways == Way.GET, needed, chunk_of, len(plan.wholes), whole_bytes, exact=False),
        _line(Way.CALL, ways == Way.CALL, needed, chunk_of, len(plan.calls), estimate.reply_bytes),
        _line(Way.CACHE, ways == Way.CACHE, needed, chunk_of, 0, 0),
        _line(Way.INLINE, ways == Way.INLINE, needed, chunk_of, 0, 0),
        _line(Way.ABSENT, ways == Way.ABSENT, needed, chunk_of, 0, 0),
    ]
    return tuple(line for line in lines if line.chunks or line.requests)


def _line(
    way: Way,
    which: npt.NDArray[np.bool_],
    needed: Ints,
    chunk_of: Ints | None,
    requests: int,
    fetched: int,
    *,
    exact: bool = True,
) -> Line:
    chunks = np.count_nonzero(which) if chunk_of is None else len(np.unique(chunk_of[which]))
    return Line(way, int(chunks), requests, int(needed[which].sum()), fetched, exact)


def ways_of(plan: Plan) -> npt.NDArray[np.uint8]:
    """Return for each owner (see `Plan`) the way that its chunk comes; not for direct plans."""
    ways = np.full(plan.piece_count, Way.ABSENT, np.uint8)
    ways[plan.needs.owners] = Way.RANGE
    if plan.lookups:
        looked_up = np.zeros(len(plan.keys), np.bool_)
        looked_up[list(plan.lookups)] = True
        ways[plan.needs.owners[looked_up[plan.needs.objects]]] = Way.LOOKUP
    for owners in plan.wholes.values():
        ways[owners] = Way.GET
    for call in plan.calls:
        ways[list(call.owners)] = Way.CALL
    ways[plan.cached] = Way.CACHE
    ways[plan.inline] = Way.INLINE
    return ways


def shares_of(plan: Plan) -> npt.NDArray[np.float64]:
    """Return for each owner the share of its chunk's stored bytes that is fetched; not for direct plans."""
    shares = np.zeros(plan.piece_count)
    needs, requests = plan.needs, plan.requests
    if len(requests):
        # Where ranges lie in a line of all objects, one after another.
        reach = int(max(needs.chunks.stops.max(), requests.stops.max())) + 1
        if reach * (len(plan.keys) + 1) < 2**62:
            objects, places = requests.objects * reach, needs.chunks.objects * reach
            starts, stops = objects + requests.starts, objects + requests.stops
            inside = _covered(starts, stops, places + needs.chunks.stops)
            inside -= _covered(starts, stops, places + needs.chunks.starts)
            sizes = np.maximum(needs.chunks.stops - needs.chunks.starts, 1)
            shares[needs.owners] = (inside / sizes)[needs.units]
    for owners in plan.wholes.values():
        shares[owners] = 1.0
    if plan.calls:
        called = [owner for call in plan.calls for owner in call.owners]
        sizes = np.concatenate([np.full(len(read), read.layout.chunk_nbytes) for read in plan.reads])
        shares[called] = _needed_of(plan)[called] / np.maximum(sizes[called], 1)
    return shares


def _covered(starts: Ints, stops: Ints, places: Ints) -> Ints:
    """Return how many bytes of the ranges lie before each place."""
    sums = np.concatenate([[0], np.cumsum(stops - starts)])
    before = np.searchsorted(starts, places, side="left")
    beyond = np.where(before > 0, stops[np.maximum(before, 1) - 1] - places, 0)
    covered: Ints = sums[before] - np.maximum(beyond, 0)
    return covered


def _chunks_of(plan: Plan) -> Ints | None:
    """Return for each owner a number of its chunk; None if each owner has a chunk of its own."""
    if plan.piece_count == plan.chunk_count:
        return None
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    places = [(number, place) for number, read in enumerate(plan.reads) for place in read.chunks()]
    return np.array([numbers.setdefault(place, len(numbers)) for place in places], np.int64)


def _needed_of(plan: Plan) -> Ints:
    sizes = [cells_of(read) * read.layout.stored.itemsize for read in plan.reads]
    return np.concatenate(sizes) if sizes else np.zeros(0, np.int64)


def count_objects(pieces: Pieces) -> int:
    """Return how many objects the pieces lie in."""
    layout = pieces.layout
    if layout.references is not None:
        rows = layout.references.rows(numbers_of(layout.grid, pieces.chunks()))
        return len(set(layout.references.objects[rows[rows >= 0]].tolist()) - {-1})
    grid = [-(-n // o) for n, o in zip(layout.shape, layout.object_shape, strict=True)]
    if isinstance(pieces, BoxPieces):
        parts = zip(pieces.parts, layout.chunks_per_object, strict=True)
        return prod(len({chunk // per for chunk in part.chunks}) for part, per in parts)
    if not isinstance(pieces, PointPieces) or not len(pieces):
        return len(pieces)
    flat = np.zeros(len(pieces), np.int64)
    for coords, per, count in zip(pieces.grid_coords, layout.chunks_per_object, grid, strict=True):
        flat = flat * count + coords[pieces.bounds[:-1]] // per
    return len(np.unique(flat))
