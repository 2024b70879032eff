"""Which chunks of a request are read together: those that lie near each other in one object, by one GET. Pure."""

from dataclasses import dataclass

from hyperslab.functions.core import Work
from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.store.call import CallChunk, CallLimits, CallRequest

__all__ = ["Read", "reads_of"]


@dataclass(frozen=True, slots=True)
class Read:
    """One GET, and the chunks that it brings: their numbers in the request, by where they begin in the object.

    `span` are the bytes asked for, None: the whole object, of `read_bytes` at most. `memory_bytes` is held at most
    until the cells of all its chunks are there.
    """

    numbers: tuple[int, ...]
    span: tuple[int, int] | None
    read_bytes: int
    memory_bytes: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The first byte, and the one behind the last; of a whole object the latter is a bound."""
        return self.span or (0, self.read_bytes)

    def part(self, data: memoryview, chunk: CallChunk, work: Work) -> memoryview:
        """Return what was read for one of the chunks, out of all that was read; not copied."""
        if len(self.numbers) == 1:
            return data
        start = (chunk.start or 0) + work.low - self.bounds[0]
        return data[start : start + work.read_bytes]


def reads_of(request: CallRequest, works: list[Work], limits: CallLimits, work_bytes: int) -> list[Read]:
    """Return what is read for the chunks of a request, in its order; of chunks read together the first counts.

    Chunks of one version of an object are read together if at most `request.gap_bytes` lie between them, and all from
    the first to the last is at most 16 MiB, and a quarter of the memory for work, `work_bytes`. They are not if that
    memory, or what a request may read in all, would not do.

    >>> import numpy as np
    >>> from hyperslab.store.call import CallLayout
    >>> layout = CallLayout((4,), np.dtype("u1"), (0,))
    >>> chunks = [CallChunk("a", 0, ((0, 4, 1),), start, start + 4) for start in (20, 0, 6)]
    >>> request = CallRequest("s3://b", (layout,), tuple(chunks), gap_bytes=2)
    >>> [(read.numbers, read.span) for read in reads_of(request, [Work(0, 4, 12, 4)] * 3, CallLimits(), 1 << 20)]
    [((0,), (20, 24)), ((1, 2), (0, 10))]
    """
    found, near = list[Read](), dict[tuple[str, str | None], list[Read]]()
    for number, (chunk, work) in enumerate(zip(request.chunks, works, strict=True)):
        read = _single(request, number, work)
        if read.span is None and request.layouts[chunk.layout].codecs:
            # How long it is, is not known before it is read.
            found.append(read)
        else:
            near.setdefault((chunk.key, chunk.etag), []).append(read)
    longest = min(JOINED_BYTES, work_bytes // 4)
    # What all gaps may take together.
    spare = limits.read_bytes - sum([work.read_bytes for work in works])
    for reads in near.values():
        reads.sort(key=lambda read: read.bounds[0])
        last = reads[0]
        for read in reads[1:]:
            both, gap = _joined(last, read), max(0, read.bounds[0] - last.bounds[1])
            fits = both.read_bytes <= longest and both.memory_bytes <= work_bytes
            if fits and gap <= min(request.gap_bytes, spare):
                last, spare = both, spare - gap
            else:
                found.append(last)
                last = read
        found.append(last)
    return sorted(found, key=lambda read: min(read.numbers))


def _single(request: CallRequest, number: int, work: Work) -> Read:
    """Return what is read for one chunk by itself."""
    chunk = request.chunks[number]
    layout, base = request.layouts[chunk.layout], chunk.start or 0
    span: tuple[int, int] | None = (base + work.low, base + work.high)
    if chunk.start is None and (layout.codecs or work.read_bytes == layout.nbytes):
        span = None
    return Read((number,), span, work.read_bytes, work.memory_bytes)


def _joined(first: Read, second: Read) -> Read:
    """Return the GET that brings what both bring. Chunks are decoded one after the other, beside all that was read."""
    start, stop = min(first.bounds[0], second.bounds[0]), max(first.bounds[1], second.bounds[1])
    beside = max(first.memory_bytes - first.read_bytes, second.memory_bytes - second.read_bytes)
    return Read(first.numbers + second.numbers, (start, stop), stop - start, stop - start + beside)
