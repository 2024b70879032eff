"""Tables in order: small files put together, files that no version needs deleted."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.tensors.commits import Change, Committer, latest_version
from hyperslab.tensors.delta import ask_delta, open_delta
from hyperslab.tensors.extents import Opened, open_files, read_whole
from hyperslab.tensors.log import DataFile, Version
from hyperslab.tensors.parquet import FileWriter, Form, Stored, write_heads
from hyperslab.tensors.place import Place
from hyperslab.tensors.removing import copy_tensor
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.storing import FILE_BYTES, MOST_TENSORS, SMALL_BYTES, Uploads

__all__ = ["optimize", "vacuum"]

# Rows of descriptions in one file: all of them are read to list tensors.
_HEAD_ROWS = 1 << 17

Tell = Callable[[int, int], None]


def optimize(
    place: Place, committer: Committer, known: Version | None, tell: Tell | None = None
) -> tuple[Version | None, int]:  # fmt: skip
    """Put small files together by one commit; return the version that has it, and how many files went into others."""
    work = _Optimizing(place, tell)
    return committer.commit(work.decide, known), work.count


class _Optimizing:
    """Files to be put together, and those that they were put into; as long as all of them are there, for every try."""

    def __init__(self, place: Place, tell: Tell | None) -> None:
        self._place, self._tell = place, tell
        self._change: Change | None = None
        self._done, self._total = 0, 0

    @property
    def count(self) -> int:
        return 0 if self._change is None else len(self._change.removes)

    def decide(self, version: Version | None) -> Change | None:
        if version is None:
            return None
        if self._change is None or any(file.path not in version.files for file in self._change.removes):
            self._change = self._work(Snapshot(version))
        return self._change

    def _work(self, snapshot: Snapshot) -> Change | None:
        heads = [each.file for each in snapshot.heads]
        small = [each.file for each in snapshot.files if not each.has_heads and each.file.nbytes < SMALL_BYTES]
        packs = _packs(open_files(self._place, small))
        self._done, self._total = 0, sum(opened.file.nbytes for pack in packs for opened in pack)
        removes = [opened.file for pack in packs for opened in pack]
        with Uploads(self._place) as uploads:
            for pack in packs:
                self._merge(pack, uploads)
            if len(heads) > 1:
                removes += self._merge_heads(heads, uploads)
            adds: list[Stored] = uploads.finish()
        return Change("optimize", adds, removes, moved_only=True) if removes else None

    def _merge(self, pack: list[Opened], uploads: Uploads) -> None:
        writer = FileWriter(pack[0].zones.form, pack[0].zones.part)
        for opened in pack:
            for id_ in opened.zones.order:
                copy_tensor(self._place, opened, id_, writer)
            self._done += opened.file.nbytes
            if self._tell is not None:
                self._tell(self._done, self._total)
        uploads.put(writer.close())

    def _merge_heads(self, files: list[DataFile], uploads: Uploads) -> list[DataFile]:
        tables = [read_whole(self._place, file) for file in files]
        merged = pa.concat_tables(tables, promote_options="permissive").sort_by("id")
        if -(-merged.num_rows // _HEAD_ROWS) >= len(files):
            return []
        for low in range(0, merged.num_rows, _HEAD_ROWS):
            uploads.put(write_heads(merged.slice(low, _HEAD_ROWS)))
        return files


def _packs(files: list[Opened]) -> list[list[Opened]]:
    """Return which files are put together: of one form, not too large, in the order of their tensors' ids.

    A file that goes on with a tensor that began in another can only be the first: only a first tensor has a part.
    """
    by_form: dict[Form, list[Opened]] = {}
    for opened in sorted(files, key=lambda each: (each.zones.order[0], each.zones.part)):
        by_form.setdefault(opened.zones.form, []).append(opened)
    packs: list[list[Opened]] = []
    for group in by_form.values():
        nbytes = tensors = 0
        for opened in group:
            nbytes += opened.file.nbytes
            tensors += len(opened.zones.order)
            if (
                not nbytes - opened.file.nbytes
                or opened.zones.part
                or nbytes > FILE_BYTES // 2
                or tensors > MOST_TENSORS
            ):
                packs.append([])
                nbytes, tensors = opened.file.nbytes, len(opened.zones.order)
            packs[-1].append(opened)
    return [pack for pack in packs if len(pack) > 1]


def vacuum(place: Place, retention_hours: Any, *, dry_run: bool) -> list[str]:
    """Delete files that no version of the last hours needs, also those that no version ever had; return their names."""
    if isinstance(retention_hours, bool) or not isinstance(retention_hours, int | float) or retention_hours < 0:
        raise InvalidInputError(f"retention_hours is a number of hours, 0 or more, not {retention_hours!r:.40}")
    if latest_version(place) is None:
        raise NotFoundError(f"there is no tensor table at {place.url!r} yet")
    table = open_delta(place)
    whole = int(-(-retention_hours // 1))
    deleted: list[Any] = ask_delta(
        place,
        "vacuuming the table",
        lambda: table.vacuum(retention_hours=whole, dry_run=dry_run, enforce_retention_duration=False, full=True),
    )
    return sorted(map(str, deleted))
