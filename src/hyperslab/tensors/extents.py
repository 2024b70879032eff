"""Rows out of data files by planned extents: the footers first, then the bytes of the row groups that are needed.

Row groups that follow one another are one extent, and the extents of all files of a read are one plan. What arrives is
put where it lies in its file, in memory of the file's size that is touched nowhere else: so pyarrow decodes it as if
the whole file were there. Local files are mapped, and nothing is copied before it is decoded; payloads that are plain
extents of a file are not decoded at all.
"""

import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from hyperslab.errors import ConflictError, IntegrityError, NotFoundError
from hyperslab.execute import Ledger, Options, ReadTask, Snapshot, read
from hyperslab.execute.cache import MemoryCache
from hyperslab.layout import Layout
from hyperslab.layout.layout import SingleKey
from hyperslab.selection import Selection, Span
from hyperslab.store import LocalStore
from hyperslab.tensors.layouts import Rows, rows_of
from hyperslab.tensors.log import DataFile, fetch_parts
from hyperslab.tensors.parquet import Zones, check_footer, footer_length, read_zones
from hyperslab.tensors.place import Place

__all__ = ["Opened", "open_files", "read_parts", "read_rows", "read_whole"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_PLAIN = Options(recorded=False)
# Below this, decoding in several threads takes longer than in one.
_THREADS_BYTES = 4 << 20
# A file is fetched whole where most of it is wanted, or where it is no larger than a footer may be.
_MOST, _FEW_BYTES = 0.9, 64 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A data file whose footer was read. Of a small remote file all of it came at once: `data`."""

    file: DataFile
    metadata: Any
    zones: Zones
    data: Bytes | None = None
    # Where row groups begin, as far as it was asked: the metadata is slow to tell.
    starts: dict[int, int] = field(default_factory=dict)

    def without_data(self) -> "Opened":
        """Return what is worth keeping."""
        return self if self.data is None else Opened(self.file, self.metadata, self.zones)

    def start(self, group: int) -> int:
        """Return where the bytes of a row group begin; of the one after the last, where they end."""
        found = self.starts.get(group)
        if found is None:
            found = self.starts[group] = self._start(group)
        return found

    def _start(self, group: int) -> int:
        if group == self.metadata.num_row_groups:
            return self.file.nbytes - footer_length(self.file.path, self.file.nbytes)
        first = self.metadata.row_group(group).column(0)
        return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


def open_files(
    place: Place, files: Sequence[DataFile], share: float = 0.0, held: MemoryCache | None = None
) -> list[Opened]:
    """Return files with what their footers say; those that nobody knows yet are fetched together.

    `share` is how much of their rows will be wanted next, about; `held` is what the handle keeps, beside the session.
    """
    found: dict[str, Opened] = {}
    for file in files:
        opened = None if held is None else held.get((file.path, "footer"))
        if opened is not None:
            found[file.path] = opened
    if len(found) < len(files):
        unknown = [file for file in files if file.path not in found]
        for file, opened in zip(unknown, _known_to_session(place, unknown, share), strict=True):
            found[file.path] = opened
            if held is not None:
                held.put((file.path, "footer"), opened.without_data(), 4 * footer_length(file.path, file.nbytes))
    return [found[file.path] for file in files]


def _known_to_session(place: Place, files: Sequence[DataFile], share: float) -> list[Opened]:
    kept, address = place.session.indexes, place.store.address
    keys = {file.path: place.key(file.path) for file in files}
    found: dict[str, Opened] = {}
    missing = []
    for file in files:
        opened = kept.get((address, keys[file.path], "footer"))
        if opened is not None:
            found[file.path] = opened
        else:
            missing.append(file)
    for file, data in zip(missing, _tails(place, missing, share), strict=True):
        opened = _opened(file, data)
        found[file.path] = opened
        nbytes = 4 * footer_length(file.path, file.nbytes)
        kept.put((address, keys[file.path], "footer"), opened.without_data(), nbytes)
    return [found[file.path] for file in files]


def _opened(file: DataFile, data: memoryview) -> Opened:
    footer = data[len(data) - footer_length(file.path, file.nbytes) :]
    check_footer(file.path, footer)
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (OSError, pa.ArrowException) as error:
        raise IntegrityError(f"the footer of {file.path!r} cannot be read: {error}") from None
    whole = np.frombuffer(data, np.uint8) if len(data) == file.nbytes else None
    return Opened(file, metadata, read_zones(metadata, file.path), whole)


def _tails(place: Place, files: Sequence[DataFile], share: float) -> list[memoryview]:
    """Fetch the footers of files; the whole of those that are as quickly read as asked for twice."""
    if not files:
        return []
    sizes = [file.nbytes if _is_small(place, file, share) else footer_length(file.path, file.nbytes) for file in files]
    wanted = [(place.key(file.path), (file.nbytes - n, file.nbytes)) for file, n in zip(files, sizes, strict=True)]
    found = fetch_parts(place, wanted, gone)
    for file, (key, _) in zip(files, wanted, strict=True):
        if found[key].object_nbytes != file.nbytes:
            raise IntegrityError(f"{file.path!r} has {found[key].object_nbytes} bytes, the log says {file.nbytes}")
    return [found[key].data for key, _ in wanted]


def _is_small(place: Place, file: DataFile, share: float) -> bool:
    """Whether a file is better read by one request for all of it than by one for its footer and one for rows."""
    if isinstance(place.store, LocalStore) or (share < _MOST and file.nbytes > _FEW_BYTES):
        return False
    model, footer = place.session.model(place.store), footer_length(file.path, file.nbytes)
    rows = int(share * file.nbytes)
    apart = float(model.cost(1, footer, footer)) + float(model.cost(1, rows, rows))
    return float(model.cost(1, file.nbytes, file.nbytes)) <= apart


def gone(key: str) -> ConflictError:
    """Return the error for a file that a version needs and that is not there."""
    return ConflictError(f"{key!r} is gone: it was vacuumed, as newer versions do not need it; call refresh()")


def read_rows(
    place: Place, wanted: Sequence[tuple[Opened, Ints]], columns: Sequence[str], options: Options = _PLAIN
) -> pa.Table:
    """Return the rows of some row groups of files, in this order, with these columns."""
    wanted = [(opened, groups) for opened, groups in wanted if len(groups)]
    files = _bytes_of(place, wanted, options)
    tables = [_decoded(opened, groups, data, columns) for (opened, groups), data in zip(wanted, files, strict=True)]
    return pa.concat_tables(tables) if len(tables) != 1 else tables[0]


def _bytes_of(place: Place, wanted: Sequence[tuple[Opened, Ints]], options: Options) -> list[Bytes]:
    files = _mapped(place, wanted) if options is _PLAIN else None
    return _fetched(place, wanted, options) if files is None else files


def read_parts(
    place: Place, wanted: Sequence[tuple[Opened, Ints]], held: MemoryCache, options: Options = _PLAIN
) -> list[Rows]:  # fmt: skip
    """Return the rows of some row groups of files, for each file apart, with their payloads where they lie.

    `held` keeps the columns of whole numbers, which a handle decodes once.
    """
    wanted = [(opened, groups) for opened, groups in wanted if len(groups)]
    files = _bytes_of(place, wanted, options)
    return [
        part
        for (opened, groups), data in zip(wanted, files, strict=True)
        for part in _part(opened, groups, data, held)
    ]  # fmt: skip


def _part(opened: Opened, groups: Ints, data: Bytes, held: MemoryCache) -> Sequence[Rows]:
    form = opened.zones.form
    if form.plain and (opened.zones.groups[groups, 1] == 1).all():
        numbers = {name: opened.zones.least(name, groups) for name in form.zoned}
        stops = np.array([opened.start(group + 1) for group in groups.tolist()], np.int64)
        return [_checked_extents(opened, groups, Rows(numbers, data, stops - numbers["nbytes"], stops))]
    if not form.lengths_first:
        return rows_of(_decoded(opened, groups, data, form.columns))
    columns = _numbers(opened, groups, data, held)
    names = form.columns[:-1]
    numbers = dict(zip(names, np.concatenate(columns, axis=1) if len(columns) > 1 else columns[0], strict=True))
    at = names.index("nbytes")
    ends: list[Ints] = []
    for group, each in zip(groups.tolist(), columns, strict=True):
        after = np.cumsum(each[at])
        ends.append(after + (opened.start(group + 1) - after[-1]))
    stops = np.concatenate(ends)
    return [_checked_extents(opened, groups, Rows(numbers, data, stops - numbers["nbytes"], stops))]


def _numbers(opened: Opened, groups: Ints, data: Bytes, held: MemoryCache) -> list[Ints]:
    """Return the columns of whole numbers of row groups: decoded, unless the handle has them."""
    path, names = opened.file.path, opened.zones.form.columns[:-1]
    found = {group: held.get((path, group)) for group in groups.tolist()}
    missing = np.array([group for group, known in found.items() if known is None], np.int64)
    if len(missing):
        table = _decoded(opened, missing, data, names)
        whole = np.array([np.asarray(table.column(name).to_numpy(), np.int64) for name in names])
        ends = np.cumsum(opened.zones.groups[missing, 1])
        for group, columns in zip(missing.tolist(), np.split(whole, ends[:-1], axis=1), strict=True):
            found[group] = kept = np.ascontiguousarray(columns)
            held.put((path, group), kept, kept.nbytes + 256)
    return [found[group] for group in groups.tolist()]


def _checked_extents(opened: Opened, groups: Ints, rows: Rows) -> Rows:
    """Return rows whose payloads all lie within the file, and are not longer than it is."""
    low, high = opened.start(int(groups[0])), opened.start(int(groups[-1]) + 1)
    if (
        not 0 <= low <= high <= len(rows.data)
        or (rows.starts > rows.stops).any()
        or (rows.starts < low).any()
        or (rows.stops > high).any()
    ):
        raise IntegrityError(f"the footer or rows of {opened.file.path!r} contradict the file: it is damaged")
    return rows


def _mapped(place: Place, wanted: Sequence[tuple[Opened, Ints]]) -> list[Bytes] | None:
    """Return the bytes of local files, not copied; None where the read has to be planned, as somebody wants to know."""
    store, session = place.store, place.session
    if not isinstance(store, LocalStore) or session.account is not None or session.sink is not None:
        return None
    session.check_open()
    began, nbytes, files = time.perf_counter(), 0, []
    for opened, groups in wanted:
        try:
            mapped = store.map(place.key(opened.file.path))
        except NotFoundError:
            raise gone(opened.file.path) from None
        if mapped.nbytes != opened.file.nbytes:
            raise IntegrityError(f"{opened.file.path!r} has {mapped.nbytes} bytes, the log says {opened.file.nbytes}")
        nbytes += sum(high - low for low, high in _extents(opened, groups))
        files.append(mapped.bytes)
    session.metrics.add(Ledger(1, len(files), 0, nbytes, nbytes, seconds=time.perf_counter() - began))
    return files


def _fetched(place: Place, wanted: Sequence[tuple[Opened, Ints]], options: Options) -> list[Bytes]:
    """Return files in memory, of which the bytes of the row groups are there, read by one plan."""
    files, tasks = [], []
    for opened, groups in wanted:
        data = opened.data
        if data is None:
            data = _memory(opened.file.nbytes)
            tasks += [_task(place, opened.file, low, high, data) for low, high in _extents(opened, groups)]
        files.append(data)
    if tasks:
        read(place.session, tasks, options)
    return files


def _memory(nbytes: int) -> Bytes:
    # Fresh from the system: what nobody writes to takes no memory.
    return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)


def _extents(opened: Opened, groups: Ints) -> list[tuple[int, int]]:
    """Return the runs of bytes that hold row groups."""
    breaks = np.flatnonzero(np.diff(groups) != 1) + 1
    return [(opened.start(int(run[0])), opened.start(int(run[-1]) + 1)) for run in np.split(groups, breaks)]


def _task(place: Place, file: DataFile, low: int, high: int, data: Bytes) -> ReadTask:
    if not 0 <= low < high <= file.nbytes:
        raise IntegrityError(f"the footer of {file.path!r} leads out of the file: it is damaged")
    selection = Selection((file.nbytes,), (Span(low, high - low),), (0,))
    layout = _file_layout(place.key(file.path), file.nbytes)
    return ReadTask(place.url, place.store, layout, Snapshot(), selection, data[low:high])


@lru_cache(maxsize=1024)
def _file_layout(key: str, nbytes: int) -> Layout:
    """Return a file as the planner sees it: bytes, in one plain chunk."""
    byte = np.dtype(np.uint8)
    return Layout(
        shape=(nbytes,), dtype=byte, chunks=(nbytes,), keys=SingleKey(key), fill=np.zeros((), byte), stored=byte,
        order=(0,), sparse=False,
    )  # fmt: skip


def _decoded(opened: Opened, groups: Ints, data: Bytes, columns: Sequence[str]) -> pa.Table:
    if opened.zones.form.plain and (opened.zones.groups[groups, 1] == 1).all():
        return _plain(opened, groups, data)
    path = opened.file.path
    try:
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data)), metadata=opened.metadata, page_checksum_verification=True
        )
        many = len(groups) > 1 and opened.start(int(groups[-1]) + 1) - opened.start(int(groups[0])) > _THREADS_BYTES
        table = file.read_row_groups(groups.tolist(), columns=list(columns), use_threads=many)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise IntegrityError(f"rows of {path!r} cannot be decoded, they are damaged: {error}") from None
    if table.num_rows != int(opened.zones.groups[groups, 1].sum()):
        raise IntegrityError(f"{path!r} has other rows than its footer says: it is damaged")
    return table


def _plain(opened: Opened, groups: Ints, data: Bytes) -> pa.Table:
    """Return rows whose payloads are the last bytes of their row groups; all else of them is in the footer."""
    zones = opened.zones
    numbers = {name: pa.array(zones.least(name, groups)) for name in zones.form.zoned}
    payloads, file = [], pa.py_buffer(data)
    for group, nbytes in zip(groups.tolist(), zones.least("nbytes", groups).tolist(), strict=True):
        end = opened.start(group + 1)
        if not 0 <= nbytes <= end - opened.start(group) or end > len(data):
            raise IntegrityError(f"the footer of {opened.file.path!r} contradicts itself: it is damaged")
        whole = file.slice(end - nbytes, nbytes)
        ends = pa.py_buffer(np.array([0, nbytes], np.int32))
        payloads.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, whole]))
    return pa.table({**numbers, "payload": pa.chunked_array(payloads, pa.binary())})


def read_whole(place: Place, file: DataFile) -> pa.Table:
    """Return all rows of a file that describes tensors; they are kept by the session, as such files never change."""
    kept, name = place.session.indexes, (place.store.address, place.key(file.path), "rows")
    table = kept.get(name)
    if table is None:
        table = _heads(file, _whole(place, file))
        kept.put(name, table, table.nbytes + 512)
    return table


def _whole(place: Place, file: DataFile) -> memoryview:
    key = place.key(file.path)
    found = fetch_parts(place, [(key, (0, file.nbytes))], gone)[key]
    if found.object_nbytes != file.nbytes:
        raise IntegrityError(f"{file.path!r} has {found.object_nbytes} bytes, the log says {file.nbytes}")
    return found.data


def _heads(file: DataFile, data: memoryview) -> pa.Table:
    check_footer(file.path, data[len(data) - footer_length(file.path, file.nbytes) :])
    try:
        return pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), page_checksum_verification=True).read()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise IntegrityError(f"rows of {file.path!r} cannot be decoded, they are damaged: {error}") from None
