"""Tensors go out of a table: files that have nothing else are left out of the next version, others written anew."""

from collections.abc import Collection as Names
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hyperslab.errors import InvalidInputError
from hyperslab.tensors.extents import Opened, open_files, read_rows, read_whole
from hyperslab.tensors.log import DataFile
from hyperslab.tensors.parquet import FileWriter, Stored, write_heads
from hyperslab.tensors.place import Place
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.storing import Uploads

__all__ = ["checked_ids", "copy_tensor", "find_ids", "without"]


def checked_ids(ids: Any) -> set[str]:
    """Return the ids of tensors that are to be removed.

    >>> sorted(checked_ids(["b", "a"])), checked_ids("one")
    (['a', 'b'], {'one'})
    """
    names = {ids} if isinstance(ids, str) else set(ids) if isinstance(ids, Iterable) else {ids}
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"tensors are named by their ids, texts, not by {ids!r:.80}")
    return names


def find_ids(place: Place, snapshot: Snapshot, ids: Names[str]) -> set[str]:
    """Return those of the ids that the table has."""
    found: set[str] = set()
    for spanned in snapshot.heads:
        wanted = [id_ for id_ in ids if spanned.may_have(id_)]
        if wanted:
            found |= set(wanted) & set(read_whole(place, spanned.file).column("id").to_pylist())
    return found


def without(place: Place, snapshot: Snapshot, ids: Names[str]) -> tuple[list[DataFile], list[Stored]]:
    """Return the files to remove, and those to add for what else was in them, so that tensors are gone."""
    removed: list[DataFile] = []
    with Uploads(place) as uploads:
        for spanned in snapshot.heads:
            if any(map(spanned.may_have, ids)):
                _rewrite_heads(place, spanned.file, ids, removed, uploads)
        data = [each.file for each in snapshot.files if not each.has_heads and any(map(each.may_have, ids))]
        for opened in open_files(place, data):
            _rewrite_data(place, opened, ids, removed, uploads)
        return removed, uploads.finish()


def _rewrite_heads(
    place: Place, file: DataFile, ids: Names[str], removed: list[DataFile], uploads: Uploads
) -> None:  # fmt: skip
    table = read_whole(place, file)
    kept = table.filter(pc.invert(pc.is_in(table.column("id"), value_set=pa.array(list(ids), pa.string()))))
    if kept.num_rows < table.num_rows:
        removed.append(file)
        if kept.num_rows:
            uploads.put(write_heads(kept))


def _rewrite_data(place: Place, opened: Opened, ids: Names[str], removed: list[DataFile], uploads: Uploads) -> None:
    order = opened.zones.order
    kept = [id_ for id_ in order if id_ not in ids]
    if len(kept) == len(order):
        return
    removed.append(opened.file)
    if kept:
        writer = FileWriter(opened.zones.form, opened.zones.part_of(kept[0]))
        for id_ in kept:
            copy_tensor(place, opened, id_, writer)
        uploads.put(writer.close())


def copy_tensor(place: Place, opened: Opened, id_: str, writer: FileWriter) -> None:
    """Write the rows that a file has of a tensor to another, in the same row groups."""
    zones = opened.zones
    groups = zones.of(id_, None)
    rows = read_rows(place, [(opened, groups)], zones.form.columns)
    writer.begin(zones.headers[id_])
    writer.add(rows, _group_rows(zones.groups[groups, 1]))


def _group_rows(counts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]] | Sequence[int]") -> int:
    return int(max(counts))
