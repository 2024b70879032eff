"""Tensors become files: each is encoded in its layout, small ones share a file, large ones take several.

Files are stored as they fill up, and nobody sees them: a commit that names all of them comes last.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from hyperslab.execute.write import StoreWriter
from hyperslab.store import LocalStore
from hyperslab.tensors.layouts import Encoded
from hyperslab.tensors.parquet import FileWriter, Form, Made, Stored
from hyperslab.tensors.place import Place
from hyperslab.tensors.values import Header

__all__ = ["Storing", "Uploads"]

# A file ends when it is large; or has many row groups, whose footer is read for any of them, and is not small.
FILE_BYTES = 64 << 20
MANY_GROUPS = 32
SMALL_BYTES = 4 << 20
# Tensors in one file: their headers are all in its footer.
MOST_TENSORS = 256
# Files on their way to a remote store at a time.
_LANES = 4


class Storing:
    """Files of one commit."""

    def __init__(self, place: Place) -> None:
        self._uploads = Uploads(place)
        self._open: dict[Form, FileWriter] = {}

    def __enter__(self) -> "Storing":
        self._uploads.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._uploads.__exit__(*exc)

    def add(self, header: Header, encoded: Encoded, tell: Callable[[int], None] | None = None) -> int:
        """Take in a tensor; return how many bytes its rows take, about."""
        form, rows = Form.of(encoded), encoded.row_group_rows
        writer, part, written = None, 0, 0
        for table in encoded.tables:
            for low in range(0, table.num_rows, rows * MANY_GROUPS):
                some = table.slice(low, rows * MANY_GROUPS)
                if writer is None:
                    writer = self._writer(form, part, alone=part > 0 or some.nbytes > SMALL_BYTES)
                    writer.begin(header)
                before = writer.nbytes
                writer.add(some, rows)
                written += writer.nbytes - before
                if tell is not None:
                    tell(some.nbytes)
                if _is_full(writer):
                    self._end(form)
                    writer, part = None, part + 1
        return written

    def finish(self) -> list[Stored]:
        """End all files and return them, once they are stored."""
        for form in list(self._open):
            self._end(form)
        return self._uploads.finish()

    def _writer(self, form: Form, part: int, *, alone: bool) -> FileWriter:
        if alone and form in self._open:
            self._end(form)
        if form not in self._open:
            self._open[form] = FileWriter(form, part)
        return self._open[form]

    def _end(self, form: Form) -> None:
        self._uploads.put(self._open.pop(form).close())


def _is_full(writer: FileWriter) -> bool:
    many = writer.groups >= MANY_GROUPS and writer.nbytes >= SMALL_BYTES
    return many or writer.nbytes >= FILE_BYTES or len(writer.headers) >= MOST_TENSORS


class Uploads:
    """Files on their way into the store: one by one into a local one, else several at a time."""

    def __init__(self, place: Place) -> None:
        self._place, self._writer = place, StoreWriter(place.session, place.store)
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[Future[Any]] = set()
        self._stored: list[Stored] = []

    def __enter__(self) -> "Uploads":
        if not isinstance(self._place.store, LocalStore):
            self._pool = ThreadPoolExecutor(_LANES, thread_name_prefix="hyperslab-tensors")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def put(self, made: Made) -> None:
        key = self._place.key(made.name)
        if self._pool is None:
            self._writer.put(key, made.data)
        else:
            self._wait_for(_LANES - 1)
            self._running.add(self._pool.submit(self._writer.put, key, made.data))
        self._stored.append(made.stored)

    def finish(self) -> list[Stored]:
        """Return the files, once all are stored."""
        self._wait_for(0)
        return self._stored

    def _wait_for(self, most: int) -> None:
        """Wait until no more than so many are under way; raise what one of them has raised."""
        while len(self._running) > most:
            ended, self._running = wait(self._running, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()
