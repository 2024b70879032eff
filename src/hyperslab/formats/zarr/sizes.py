"""How large chunks and shards are, where the user does not say.

A chunk is what is fetched and decoded for a single cell, so it should be small; and where much is read, neighbours in a
shard come by one request. But each takes its time to decode, an index has to name it, and compressors want something to
work on: 32 KiB of cells lie between. A shard is what is written at once, and an object that is listed and billed:
16 MiB, of 512 chunks, whose index of 8 KiB comes with one small range. Plain chunks can be read in part, so they are
objects of 16 MiB themselves; compressed ones that cannot be put into shards are 2 MiB, neither too much to read nor too
many to list. Nobody knows which way an array will be cut, so chunks reach about equally far along all axes, as far as
those go; in a shard less far along the last, as chunks that follow each other along it lie side by side and come by one
request, however many they are. But a long array of short rows is a table (of embeddings, features, tokens): its rows
are read whole, so its chunks are of whole rows. And what is small enough is one chunk, which needs no index.
"""

from collections.abc import Sequence
from math import prod

from hyperslab.errors import InvalidInputError

__all__ = ["CHUNK_BYTES", "LONE_CHUNK_BYTES", "OBJECT_BYTES", "SMALL_BYTES", "choose_chunks", "choose_sizes"]

CHUNK_BYTES = 32 << 10
SMALL_BYTES = 64 << 10
LONE_CHUNK_BYTES = 2 << 20
OBJECT_BYTES = 16 << 20
# An index of more chunks would be longer than the chunks that it leads to.
_MOST_CHUNKS = 1024
# An array of more shards is not a picture that is read by boxes.
_FEW_SHARDS = 8
# A table has rows of at most this many bytes, and at least this many times as many rows as columns.
_ROW_BYTES = 8 << 10
_TABLE_RATIO = 8

Shape = tuple[int, ...]


def choose_sizes(
    shape: Shape, itemsize: int, *, chunks: object = None, shards: object = None, lone_bytes: int | None = None
) -> tuple[Shape, Shape | None]:
    """Return the shape of chunks and of shards, None where each chunk is an object of its own.

    What is given is taken; what is not is chosen to go with it. With `shards` False there are none; with `lone_bytes`
    neither, and chunks are of about that size.

    >>> choose_sizes((8192, 8192), 4)
    ((128, 64), (2048, 2048))
    >>> choose_sizes((100,), 8)
    ((100,), None)
    """
    ndim = len(shape)
    if shards is False:
        shards, lone_bytes = None, lone_bytes or LONE_CHUNK_BYTES
    inner = None if chunks is None else _lengths("chunks", chunks, ndim)
    outer = None if shards is None else _lengths("shards", shards, ndim)
    if outer is not None and lone_bytes is not None:
        raise InvalidInputError("an array without axes, of structures or with layout='plain' has no shards")
    if inner is None:
        if outer is not None:
            return _divide(outer, itemsize, table=_is_table(shape, itemsize)), outer
        inner = _inner(shape, itemsize) if lone_bytes is None else choose_chunks(shape, itemsize, lone_bytes)
    if outer is None and lone_bytes is None:
        outer = _gather(shape, inner, itemsize)
    if outer is not None and any(whole % part for whole, part in zip(outer, inner, strict=True)):
        raise InvalidInputError(f"shards {outer} are not made of whole chunks {inner}; choose multiples of them")
    return inner, outer


def _inner(shape: Shape, itemsize: int) -> Shape:
    """Return the shape of chunks that lie in shards; that of the array, if it is small."""
    if 0 < prod(shape) * itemsize <= SMALL_BYTES:
        return shape
    return _cut(shape, itemsize, CHUNK_BYTES, table=_is_table(shape, itemsize), in_shards=True)


def choose_chunks(shape: Shape, itemsize: int, most_bytes: int) -> Shape:
    """Return the shape of chunks of at most so many bytes: whole rows of a table, else of equal reach along all axes.

    An axis of length 0 is one that will grow. Of equal axes the last gets more, as its cells lie side by side.

    >>> choose_chunks((3, 1000, 1000), 4, 1 << 18)
    (3, 125, 125)
    >>> choose_chunks((1000000, 512), 4, 1 << 16)
    (32, 512)
    """
    return _cut(shape, itemsize, most_bytes, table=_is_table(shape, itemsize))


def _is_table(shape: Shape, itemsize: int) -> bool:
    """Whether an array is long and has short rows, which are read whole."""
    if len(shape) != 2 or not shape[1]:
        return False
    rows, columns = shape
    return columns * itemsize <= _ROW_BYTES and (not rows or rows >= _TABLE_RATIO * columns)


def _cut(shape: Shape, itemsize: int, most_bytes: int, *, table: bool, in_shards: bool = False) -> Shape:
    """Return the shape of chunks; of whole rows, if they are of a table and fit. In shards, first axes get more."""
    ends = [length or 1 << 62 for length in shape]
    sizes = [1] * len(shape)
    if table and ends[1] * itemsize <= most_bytes:
        sizes = [min(most_bytes // (ends[1] * itemsize), ends[0]), ends[1]]
    while True:
        room = [axis for axis, end in enumerate(ends) if sizes[axis] < end]
        if not room:
            break
        axis = min(room, key=lambda axis: (sizes[axis], axis if in_shards else -axis))
        longer = min(2 * sizes[axis], ends[axis])
        if prod(sizes) // sizes[axis] * longer * itemsize > most_bytes:
            break
        sizes[axis] = longer
    return tuple([_even(length, size) for length, size in zip(shape, sizes, strict=True)])


def _even(length: int, size: int) -> int:
    """Return the size that cuts a length into as many parts, the last hardly shorter than the others."""
    count = -(-length // size)
    return -(-length // count) if count else size


def _gather(shape: Shape, chunks: Shape, itemsize: int) -> Shape | None:
    """Return the shape of shards that hold as many chunks as fit into an object; None if that is one.

    They reach about equally far along all axes; those of an array of a few, as a picture is, all along the last one, if
    they are fewer then: chunks along it come by one request only as far as their shard goes.

    >>> _gather((8192, 8192), (128, 64), 4), _gather((3, 2880, 3840), (3, 126, 64), 1)
    ((2048, 2048), (3, 1008, 3840))
    """
    grid = [-(-length // chunk) if length else 1 << 62 for length, chunk in zip(shape, chunks, strict=True)]
    most = min(_MOST_CHUNKS, OBJECT_BYTES // (prod(chunks) * itemsize))
    counts = _grown([1] * len(shape), grid, chunks, most)
    if len(grid) > 1 and grid[-1] <= most and _objects(grid, counts) <= _FEW_SHARDS:
        wide = _grown([1] * (len(shape) - 1) + grid[-1:], grid, chunks, most)
        counts = min(counts, wide, key=lambda counts: _objects(grid, counts))
    if prod(counts) == 1:
        return None
    return tuple([count * chunk for count, chunk in zip(counts, chunks, strict=True)])


def _grown(counts: list[int], grid: list[int], chunks: Shape, most: int) -> list[int]:
    """Return how many chunks a shard has along each axis: twice as many along the shortest, until there are `most`."""
    counts = list(counts)
    while room := [axis for axis, end in enumerate(grid) if counts[axis] < end]:
        axis = min(room, key=lambda axis: (counts[axis] * chunks[axis], -axis))
        more = min(2 * counts[axis], grid[axis])
        if prod(counts) // counts[axis] * more > most:
            break
        counts[axis] = more
    return counts


def _objects(grid: list[int], counts: list[int]) -> int:
    """Return how many shards there are, each of so many chunks along each axis."""
    return prod([-(-length // count) for length, count in zip(grid, counts, strict=True)])


def _divide(shards: Shape, itemsize: int, *, table: bool) -> Shape:
    """Return the shape of chunks that shards of a given shape are made of; the array they are of may be a table."""
    wanted = _cut(shards, itemsize, CHUNK_BYTES, table=table, in_shards=True)
    return tuple([_divisor(whole, part) for whole, part in zip(shards, wanted, strict=True)])


def _divisor(whole: int, most: int) -> int:
    """Return the largest divisor up to `most`, if it is not far from it; else the smallest above."""
    below = next(n for n in range(most, 0, -1) if whole % n == 0)
    if 2 * below > most:
        return below
    return next((n for n in range(most + 1, min(whole, 4 * most) + 1) if whole % n == 0), below)


def _lengths(name: str, value: object, ndim: int) -> Shape:
    items = [value] * ndim if isinstance(value, int) else value
    if not isinstance(items, Sequence) or len(items) != ndim:
        raise InvalidInputError(f"{name} must be one length for each of {ndim} axes, not {value!r}")
    if not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n < 1 << 62 for n in items):
        raise InvalidInputError(f"{name} must be whole numbers from 1 on, not {value!r}")
    return tuple(items)
