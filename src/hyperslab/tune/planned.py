"""What the planner itself says of a form: each read planned as if the array were stored so."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from hyperslab.layout import ChunkTable, Layout
from hyperslab.plan import CostModel, Estimate, make_plan, pieces_of
from hyperslab.plan.pieces import Pieces
from hyperslab.selection import Points, Selection
from hyperslab.tune.forms import Form, Shape, Shrink, layout_of

__all__ = ["planned"]


def planned(
    form: Form,
    shape: Shape,
    itemsize: int,
    selections: Sequence[Selection | Points],
    model: CostModel,
    shrink: Shrink,
) -> list[Estimate]:
    """Return the planner's estimate for each read, with the indexes of shards at hand."""
    layout = layout_of(form, shape, itemsize)
    table = None if form.shards is None else _table(form, layout, itemsize, shrink)
    return [_estimate(pieces_of(layout, selection), model, table) for selection in selections]


def _estimate(pieces: Pieces, model: CostModel, table: ChunkTable | None) -> Estimate:
    tables = {} if table is None else dict.fromkeys(_keys(pieces), table)
    return make_plan([pieces], model, tables=tables).estimate


def _keys(pieces: Pieces) -> Iterator[str]:
    layout = pieces.layout
    return (layout.keys.key(layout.object_of(chunk)) for chunk in pieces.chunks())


def _table(form: Form, layout: Layout, itemsize: int, shrink: Shrink) -> ChunkTable:
    """Return the index of a shard whose chunks are all as well compressed as those of the sample."""
    nbytes = prod(form.chunks) * itemsize
    stored = nbytes if form.plain else max(1, round(nbytes * shrink.of(nbytes)))
    head = layout.index.nbytes if layout.index is not None else 0
    offsets = head + stored * np.arange(form.chunks_per_object, dtype=np.int64)
    return ChunkTable(offsets, np.full(form.chunks_per_object, stored, np.int64))
