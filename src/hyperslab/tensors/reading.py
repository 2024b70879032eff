"""Cells out of a table: which files, which row groups, then their rows, then the cells of a selection."""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import NotFoundError, SelectionError
from hyperslab.execute import Options
from hyperslab.selection import Points, Selection, parse
from hyperslab.tensors.extents import open_files, read_parts, read_rows, read_whole
from hyperslab.tensors.heads import header_of_row
from hyperslab.tensors.layouts import COLUMNS, Rows, decode, prune
from hyperslab.tensors.place import Place
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.values import Coo, Header, bounding_box

__all__ = ["find_header", "find_row", "read_cells", "select"]

Cells = npt.NDArray[Any] | Coo


def find_header(place: Place, snapshot: Snapshot, id_: str) -> Header:
    """Return a tensor's header: from the log, else a footer, else the row that describes the tensor."""
    header = snapshot.header_of(id_)
    if header is not None:
        return header
    for opened in open_files(place, snapshot.data_of(id_)):
        if id_ in opened.zones.headers:
            return opened.zones.headers[id_]
    return header_of_row(find_row(place, snapshot, id_))


def find_row(place: Place, snapshot: Snapshot, id_: str) -> dict[str, Any]:
    """Return the row that describes a tensor."""
    for file in snapshot.heads_of(id_):
        table = read_whole(place, file)
        at = table.column("id").index(pa.scalar(id_, pa.string())).as_py()
        if at >= 0:
            row: dict[str, Any] = table.slice(at, 1).to_pylist()[0]
            return row
    raise NotFoundError(f"there is no tensor {id_!r:.120} in version {snapshot.version.number} of {place.url!r}")


def select(key: Any, header: Header) -> Selection:
    """Return what a key of NumPy's selects; only numbers, slices, `...` and None are taken."""
    chosen = parse(key, header.shape)
    if isinstance(chosen, Points) or chosen.orders or chosen.fields is not None or not _is_basic(key):
        raise SelectionError(
            f"tensors are sliced by whole numbers, slices, `...` and None, not by {key!r:.80}; read a box and index it"
        )
    return chosen


def _is_basic(key: Any) -> bool:
    parts: Iterable[Any] = key if isinstance(key, tuple) else (key,)
    return not any(isinstance(part, list | np.ndarray | bool | np.bool_) for part in parts)


def read_cells(
    place: Place, snapshot: Snapshot, header: Header, chosen: Selection, options: Options | None = None
) -> Cells:  # fmt: skip
    """Return the cells of a selection, as an array or a sparse tensor as the layout has it."""
    box = bounding_box(chosen)
    bounds = prune(header, box)
    files = snapshot.data_of(header.id, bounds) if bounds else []
    share = box.size / max(1, prod(header.shape))
    known = open_files(place, files, share, snapshot.held)
    opened = [each for each in known if header.id in each.zones.headers]
    opened.sort(key=lambda each: each.zones.part_of(header.id))
    wanted = [(each, each.zones.of(header.id, bounds)) for each in opened]
    how = () if options is None else (options,)
    rows: pa.Table | list[Rows] | None = None
    if opened and "payload" in opened[0].zones.form.columns:
        rows = read_parts(place, wanted, snapshot.held, *how)
    elif opened:
        rows = read_rows(place, wanted, opened[0].zones.form.columns, *how)
    cells = decode(header, rows or COLUMNS.empty_table(), box)
    return cells.select(chosen) if isinstance(cells, Coo) else _dense(cells, chosen)


def _dense(cells: npt.NDArray[Any], chosen: Selection) -> Any:
    steps = tuple(slice(None, None, getattr(axis, "step", 1)) for axis in chosen.axes)
    kept = len(chosen.kept) == len(chosen.axes) and not chosen.flipped and not chosen.scalar
    if kept and all(each.step == 1 for each in steps) and chosen.result_shape == cells.shape:
        return cells
    return chosen.finish(cells[steps])
