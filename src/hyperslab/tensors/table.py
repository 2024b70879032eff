"""A tensor table: dense and sparse tensors as rows of a Delta table. What the user sees, over the parts below."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.formats.copying import showing
from hyperslab.tensors.commits import Change, Committer, latest_version
from hyperslab.tensors.extents import read_whole
from hyperslab.tensors.heads import SCHEMA
from hyperslab.tensors.listing import list_tensors, moment_ns
from hyperslab.tensors.log import Version, read_log, read_version
from hyperslab.tensors.maintenance import optimize, vacuum
from hyperslab.tensors.place import DeltaCalls, Place
from hyperslab.tensors.putting import Item, Putting, items_of
from hyperslab.tensors.reading import find_header
from hyperslab.tensors.removing import checked_ids, find_ids, without
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.tensor import Tensor

__all__ = ["Mode", "TensorTable", "open_table"]

Mode = Literal["r", "a"]
# In the class, `list` is a method.
_Names = list[str]
# Tensors that a handle remembers.
_MOST_TENSORS = 4096


def open_table(place: Place, mode: Mode, patience_s: float) -> "TensorTable":
    """Open the table at a place."""
    version = latest_version(place)
    if version is None and mode == "r":
        raise NotFoundError(f"there is no tensor table at {place.url!r}; mode 'a' makes one with the first put")
    return TensorTable(place, version, writable=mode == "a", patience_s=patience_s)


class TensorTable:
    """Tensors by their ids, in a Delta table.

    A handle is a snapshot: it sees the version that it was opened at, or that its own last change made; `refresh()`
    gives the latest. Every change is one commit, all or nothing. `t[id]` is a `Tensor`, of which slices are read; `del
    t[id]` takes one out; `id in t`, `len(t)` and iteration are of the ids, sorted.
    """

    def __init__(
        self, place: Place, version: Version | None, *, writable: bool = True, patience_s: float = 60.0
    ) -> None:
        self._place, self._writable, self._patience_s = place, writable, patience_s
        self._committer = Committer(place, SCHEMA, patience_s)
        self._tensors: dict[str, Tensor] = {}
        self._version, self._snapshot = version, None if version is None else Snapshot(version)

    def __repr__(self) -> str:
        return f"<hyperslab.TensorTable {self.url!r} version {self.version}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._place, self._version, self._writable, self._patience_s)

    @property
    def url(self) -> str:
        """Where the table is."""
        return self._place.url

    @property
    def version(self) -> int | None:
        """The version of the Delta table that this handle sees; None if there is no table yet."""
        return None if self._version is None else self._version.number

    @property
    def delta_calls(self) -> DeltaCalls:
        """What was asked of delta-rs, whose requests the session does not count."""
        return self._place.delta

    # Reading

    def __getitem__(self, id: str) -> Tensor:
        """Return a tensor to slice; nothing of it is read yet but its header."""
        known = self._tensors.get(id)
        return known if known is not None else self._found(id)

    def get(self, id: str, form: str | None = None) -> Any:
        """Return a whole tensor: as it was put, dense or sparse, or in the form that is asked for.

        form  "numpy", "coo", "scipy", "sparse" (of pydata), "torch", "torch_sparse"
        """
        return self[id].read(form)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, str) or self._snapshot is None:
            return False
        return id in self._tensors or bool(find_ids(self._place, self._snapshot, [id]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.list(columns=["id"]).column("id").to_pylist())

    def __len__(self) -> int:
        heads = () if self._snapshot is None else self._snapshot.heads
        return sum(read_whole(self._place, each.file).num_rows for each in heads)

    def __bool__(self) -> bool:
        return True

    def list(self, filter: Any = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a row for each tensor, sorted by id, as an Arrow table: what it is, and its metadata as columns.

        filter   an expression of `pyarrow.compute` on these columns, or a mapping of columns to what they are to be: a
                 value, a list of values, or a tuple as a range from the first on and below the second
        columns  which columns (default: all)
        """
        return list_tensors(self._place, self._snapshot, filter, columns)

    def at(self, version: int | None = None, timestamp: datetime | str | None = None) -> "TensorTable":
        """Return the table as it was: at a version, or at a time (ISO 8601, UTC unless it says otherwise)."""
        if (version is None) == (timestamp is None):
            raise InvalidInputError("give a version or a timestamp")
        log = read_log(self._place)
        number = log.at(moment_ns(timestamp)) if version is None else version
        if type(number) is not int or log.latest is None or not 0 <= number <= log.latest:
            raise NotFoundError(f"{self.url!r} has no version {number!r:.40}; its latest is {log.latest}")
        return TensorTable(self._place, read_version(self._place, log, number), writable=False)

    def refresh(self) -> "TensorTable":
        """Return the table as it is stored now."""
        version = latest_version(self._place, self._version)
        return TensorTable(self._place, version, writable=self._writable, patience_s=self._patience_s)

    # Changing

    def put(
        self,
        tensor: Any,
        *,
        id: str | None = None,
        layout: str = "auto",
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        workload: Any = None,
        progress: Any = None,
        **parameters: Any,
    ) -> str:
        """Store a tensor by one commit; return its id.

        tensor      an array of NumPy, `scipy.sparse`, `pydata/sparse`, torch (dense or sparse), or a `Coo`
        id          a name for it (default: a new one); one that the table has is an error, unless with `overwrite`
        layout      "ftsf" (dense), "coo", "csr", "csc", "csf", "bsgs" (sparse), or "auto"
        metadata    values by name, which become columns of the table
        workload    what will be read, for "auto" to choose by
        progress    True for a bar on the terminal, or a function of (done_bytes, total_bytes)
        parameters  of the layout
        """
        item: Item = (id, tensor, metadata)
        return self.put_many(
            [item], layout=layout, overwrite=overwrite, workload=workload, progress=progress, **parameters
        )[0]

    def put_many(
        self,
        items: Any,
        *,
        layout: str = "auto",
        overwrite: bool = False,
        workload: Any = None,
        progress: Any = None,
        **parameters: Any,
    ) -> _Names:
        """Store tensors by one commit, all or none; return their ids. Small ones share files.

        items  a mapping of ids to tensors, or tuples (id, tensor) or (id, tensor, metadata), None for a new id; an
               iterator is taken one by one, and may give more than memory holds
        """
        self._check_writable()
        putting = Putting(self._place, layout, workload, parameters, overwrite=overwrite)
        with showing(progress, f"putting into {self.url}") as tell:
            putting.run(items_of(items), tell)
        if putting.ids:
            self._commit(putting.decide)
        return putting.ids

    def delete(self, ids: str | Iterable[str]) -> None:
        """Take tensors out by one commit, all or none. Their bytes stay for older versions, until `vacuum`."""
        self._check_writable()
        names = checked_ids(ids)

        def decide(version: Version | None) -> Change | None:
            snapshot = None if version is None else Snapshot(version)
            missing = names if snapshot is None else names - find_ids(self._place, snapshot, names)
            if missing or snapshot is None:
                raise NotFoundError(f"there is no tensor {min(missing, default='')!r:.120} in {self.url!r}")
            removes, adds = without(self._place, snapshot, names)
            return Change("delete", adds, removes)

        if names:
            self._commit(decide)

    def __delitem__(self, id: str) -> None:
        self.delete(id)

    def optimize(self, *, progress: Any = None) -> int:
        """Put small files together, by one commit; return how many went into others. No tensor changes."""
        self._check_writable()
        with showing(progress, f"optimizing {self.url}") as tell:
            version, count = optimize(self._place, self._committer, self._version, tell)
        self._move(version)
        return count

    def vacuum(self, retention_hours: float = 168.0, *, dry_run: bool = False) -> _Names:
        """Delete files that no version of the last hours needs, and what broken puts left; return their names.

        Older versions cannot be read any more. Puts that take longer than `retention_hours` would lose their files.
        """
        self._check_writable()
        return vacuum(self._place, retention_hours, dry_run=dry_run)

    def _found(self, id: str) -> Tensor:
        if not isinstance(id, str):
            raise InvalidInputError(f"a tensor is found by its id, a text, not {id!r:.80}")
        if self._snapshot is None:
            raise NotFoundError(f"there is no tensor table at {self.url!r} yet")
        header = find_header(self._place, self._snapshot, id)
        if len(self._tensors) >= _MOST_TENSORS:
            self._tensors.clear()
        self._tensors[id] = tensor = Tensor(self._place, self._snapshot, header)
        return tensor

    def _check_writable(self) -> None:
        if not self._writable:
            raise InvalidInputError(f"this handle of {self.url!r} is to be read; open the table with mode 'a'")

    def _commit(self, decide: Callable[[Version | None], Change | None]) -> None:
        self._move(self._committer.commit(decide, self._version))

    def _move(self, version: Version | None) -> None:
        # Threads may share a handle: it never goes back.
        if version is not None and (self._version is None or version.number > self._version.number):
            self._version, self._snapshot = version, Snapshot(version)
            self._tensors = {}


def _restored(place: Place, version: Version | None, writable: bool, patience_s: float) -> TensorTable:
    return TensorTable(place, version, writable=writable, patience_s=patience_s)
