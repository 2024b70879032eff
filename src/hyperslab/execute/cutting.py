"""Chunks that a function cuts beside the data: what it is asked for, and where its answers go.

Nothing here waits: `remote` sends the calls and hands the answers back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hyperslab.errors import ChunkSizeError, InternalError
from hyperslab.execute.place import check_size, check_whole, place_cells
from hyperslab.execute.run import Run
from hyperslab.layout import Layout
from hyperslab.plan import BoxPieces, Call, Pieces, PointPieces
from hyperslab.store.call import AxisSelect, CallChunk, CallLayout, CallReply, CallRequest, Points, bucket_of

__all__ = ["CallJob", "Cutting"]


@dataclass(frozen=True, slots=True, eq=False)
class CallJob:
    """One call to send."""

    call: Call
    request: CallRequest

    @property
    def nbytes(self) -> int:
        return self.call.reply_bytes

    @property
    def held_bytes(self) -> int:
        """Memory that the answer takes until it is in place; compressed and shuffled, it is there three times."""
        return 3 * self.nbytes


class Cutting:
    """The calls of a plan that is being carried out; `failed` are those that gave nothing that can be used.

    A function that is not `trusted` may read another store: what it answered from is in `seen`, and is held against
    what the read has seen only by `agree`.
    """

    def __init__(self, run: Run, *, trusted: bool) -> None:
        self.run, self.trusted = run, trusted
        self.failed: list[Call] = []
        # Objects that were answered from, by key, version and size.
        self.seen: list[tuple[str, str | None, int]] = []

    def jobs(self) -> Iterator[CallJob]:
        """Calls to send."""
        plan = self.run.plan
        needs = plan.call_needs
        unit_of = dict(zip(needs.owners.tolist(), needs.units.tolist(), strict=True))
        for call in plan.calls:
            layouts: dict[tuple[Layout, int], int] = {}
            chunks = [self._chunk(owner, unit_of.get(owner), layouts) for owner in call.owners]
            described = tuple([_described(layout, mask) for layout, mask in layouts])
            gap_bytes = plan.model.inside_gap_bytes() if call.gets < len(chunks) else 0
            bucket = bucket_of(self.run.store.address)
            yield CallJob(call, CallRequest(bucket, described, tuple(chunks), gap_bytes=gap_bytes))

    def _chunk(self, owner: int, unit: int | None, layouts: dict[tuple[Layout, int], int]) -> CallChunk:
        """Describe what is wanted of a chunk; without a unit of the needs it is an object of its own."""
        run = self.run
        read, piece = run.plan.read_of(owner)
        pieces = run.plan.reads[read]
        layout = pieces.layout
        key, inner = run.where(owner)
        masks = layout.table.masks if layout.table is not None else None
        number = layouts.setdefault((layout, 0 if masks is None else int(masks[inner])), len(layouts))
        start = stop = None
        if unit is not None:
            units = run.plan.call_needs.chunks
            start, stop = int(units.starts[unit]), int(units.stops[unit])
        return CallChunk(key, number, _select(pieces, piece), start, stop, run.etags.get(key))

    def done(self, job: CallJob, reply: CallReply) -> None:
        """Put the cells that a call answered into the result.

        That something is not stored is not believed: a function that looks in the wrong place would turn cells into
        fill values. The store is asked itself.
        """
        run, unsure = self.run, []
        for owner, answer in zip(job.call.owners, reply.answers, strict=True):
            read, piece = run.plan.read_of(owner)
            pieces = run.plan.reads[read]
            key, inner = run.where(owner)
            if answer.data is None:
                unsure.append(owner)
                continue
            try:
                if pieces.layout.plain:
                    check_size(pieces.layout, answer.object_nbytes, key)
                    check_whole(pieces.layout, inner, answer.object_nbytes)
            except ChunkSizeError:
                unsure.append(owner)  # one of ours would have refused to cut it
                continue
            if self.trusted:
                run.check_version(key, answer.etag, answer.object_nbytes)
            else:
                self.seen.append((key, answer.etag, answer.object_nbytes))
            place_cells(pieces, piece, run.targets[read], np.frombuffer(answer.data, np.uint8))
        if unsure:
            self.failed.append(Call(tuple(unsure), 0, 0))

    def agree(self) -> None:
        """Refuse answers from other versions of objects than the read has seen."""
        for key, etag, nbytes in self.seen:
            self.run.check_version(key, etag, nbytes)

    def distrust(self) -> None:
        """Believe no answer."""
        self.seen.clear()
        self.failed[:] = self.run.plan.calls


def _described(layout: Layout, mask: int) -> CallLayout:
    codecs = () if layout.decoder is None else layout.decoder.codecs_of(mask)
    return CallLayout(layout.chunks, layout.stored, layout.order, codecs)


def _select(pieces: Pieces, piece: int) -> tuple[AxisSelect, ...] | Points:
    """Say which cells of its chunk a piece wants."""
    if isinstance(pieces, PointPieces):
        # Without axes there is one cell, and nothing to say about it.
        return Points(pieces.source(piece)) if pieces.local else ()
    if not isinstance(pieces, BoxPieces):
        raise InternalError(f"pieces of an unknown kind: {type(pieces).__name__}")
    select: list[AxisSelect] = []
    for part, place in zip(pieces.parts, pieces.split(piece), strict=True):
        indices = part.source(place)
        # Of one cell the next does not matter, and would lie outside of the chunk.
        even = (part.lows[place], part.counts[place], part.step if part.counts[place] > 1 else 1)
        select.append(even if isinstance(indices, slice) else indices)
    return tuple(select)
