"""Arrays and groups as the user sees them: thin methods over the rooms below."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from hyperslab.errors import (
    FormatError,
    IntegrityError,
    InvalidInputError,
    NotFoundError,
    SelectionError,
    UnsupportedError,
)
from hyperslab.execute import (
    Ledger,
    Options,
    ReadTask,
    Result,
    Session,
    Snapshot,
    StoreReader,
    aread,
    plan_reads,
    read,
)
from hyperslab.execute.write import StoreWriter
from hyperslab.formats import (
    ArraySource,
    GroupSource,
    locate_chunks,
    member_names,
    open_member,
    reopen,
)
from hyperslab.formats.copying import Place, member_place, save_array
from hyperslab.formats.zarr.array import ZarrArray
from hyperslab.formats.zarr.create import NewArray
from hyperslab.formats.zarr.documents import Attributes, change_attributes
from hyperslab.formats.zarr.shape import append, resize
from hyperslab.layout import Layout
from hyperslab.plan import Budget, Method, Plan
from hyperslab.plan.explain import Explanation, explain
from hyperslab.selection import Points, Selection, compose, parse, parse_points
from hyperslab.store import Store

__all__ = ["Array", "Group", "LazyArray", "created", "read_many", "wrap"]


def wrap(
    source: ArraySource | GroupSource, store: Store, session: Session, *, writable: bool = False
) -> "Array | Group":
    """Return what the user gets of an opened array or group."""
    kind: type[Array] | type[Group] = Array if isinstance(source, ArraySource) else Group
    return kind(source, store, session, writable=writable)  # type: ignore[arg-type]


def created(place: Place, array: ZarrArray) -> "Array":
    """Return what the user gets of an array that has just been created."""
    return Array(array.source, place.store, place.session, writable=True, changes=array)


def read_many(
    pairs: Iterable[tuple["Array", Any]],
    *,
    phi: float | None = None,
    budget: Budget | None = None,
    method: Method | None = None,
    deadline: float | None = None,
) -> list[npt.NDArray[Any]]:
    """Read several selections, of one array or many, by one plan for each store.

    `pairs` are (array, key); the result is a list of arrays in the same order. The arrays must have been opened in one
    session: its limits and budget hold for all of them. Options as for `Array.read`, for all of it.

    >>> import hyperslab as hs
    >>> a = hs.save("memory://many/a", np.arange(12).reshape(3, 4))
    >>> b = hs.save("memory://many/b", np.arange(5.0))
    >>> hs.read_many([(a, np.s_[1]), (b, np.s_[::2])])
    [array([4, 5, 6, 7]), array([0., 2., 4.])]
    """
    wanted = [(array.session, array._result(key)) for array, key in pairs]
    if len({id(session) for session, _ in wanted}) > 1:
        raise InvalidInputError("the arrays were opened in different sessions; open them with one `session=`")
    if wanted:
        read(wanted[0][0], [result.task for _, result in wanted], Options(phi, budget, method, deadline))
    return [result.get() for _, result in wanted]


class Array:
    """An array that is stored elsewhere; what is indexed is read.

    A handle is a snapshot of the array's metadata as of opening; `refresh()` gives a new one. It is made by `open`,
    `create`, `save`, `copy` and `rechunk`.

    `array[key]` reads cells, `array[key] = values` writes them, broadcast and cast as NumPy does. `shape`, `dtype`,
    `ndim` and `size` are as in NumPy. `len(array)` and iteration go along the first axis, one read for each step.
    `np.asarray(array)` reads all of it. `writable` says whether the handle was made or opened to be written. Arrays
    pickle.

    >>> import hyperslab as hs
    >>> a = hs.save("memory://doc/array", np.arange(12).reshape(3, 4), dims=["y", "x"], attrs={"units": "m"})
    >>> a
    <hyperslab.Array 'memory://doc/array' int64 (3, 4) chunks (3, 4) zarr3>
    >>> a[1, ::-2], a.points[[0, 2], [1, 3]], a.dims, a.attrs["units"]
    (array([7, 5]), array([ 1, 11]), ('y', 'x'), 'm')
    >>> a[:, 0] = -1
    >>> a.append([[12, 13, 14, 15]])
    >>> [part.tolist() for part in a.read_boxes([np.s_[3], np.s_[:, 0]])]
    [[12, 13, 14, 15], [-1, -1, -1, 12]]
    """

    def __init__(
        self,
        source: ArraySource,
        store: Store,
        session: Session,
        *,
        writable: bool = False,
        changes: ZarrArray | None = None,
    ) -> None:
        self.source, self.store, self.session, self.writable = source, store, session, writable
        self.snapshot = Snapshot() if changes is None else changes.snapshot
        self.shape, self.dtype = source.layout.shape, source.dtype
        self._changes = changes

    @property
    def url(self) -> str:
        """Where the array is."""
        return self.source.url

    @property
    def name(self) -> str:
        """The last part of the array's path."""
        return self.source.url.rstrip("/").rpartition("/")[2]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Cells of the smallest unit that is stored and decoded alone."""
        return self.source.layout.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Cells of one object, if objects hold several chunks; else None."""
        return self.source.layout.object_shape if self.source.layout.index else None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of all cells, decoded."""
        return self.source.layout.nbytes

    @property
    def attrs(self) -> Attributes:
        """The user's attributes: `array.attrs["units"] = "m"` stores one."""
        return Attributes(self.source.attrs, self._set_attrs)

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The names of the axes, if the format has them; else None."""
        return self.source.dimension_names

    @property
    def fill_value(self) -> Any:
        """What cells of chunks that are not stored hold."""
        return self.source.layout.fill[()]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-dimensional array")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return True

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the array is not in memory: making a NumPy array of it always copies")
        return np.asarray(self.read(...), dtype=dtype)

    def __repr__(self) -> str:
        return f"<hyperslab.Array {self.url!r} {self.dtype} {self.shape} chunks {self.chunks} {self.source.format}>"

    def __getitem__(self, key: Any) -> Any:
        result = self._result(key)
        read(self.session, (result.task,), _PLAIN_READ)
        return result.get()

    def __setitem__(self, key: Any, values: Any) -> None:
        """Write values into the selected cells, broadcast and cast as NumPy does."""
        with _changing(self) as changes:
            changes.assign(self._parse(key), values)

    def resize(self, shape: Any) -> None:
        """Change the array's shape in place; new cells hold the fill value, cells outside of it are deleted."""
        with _changing(self) as changes:
            resize(changes, shape)

    def append(self, values: Any, axis: int = 0) -> None:
        """Add cells at the end of an axis; until all are stored, readers see the array as it was."""
        with _changing(self) as changes:
            append(changes, values, axis)

    def seal(self) -> None:
        """Write what was never written as fill values, so that from now on an object that is gone is an error."""
        with _changing(self) as changes:
            changes.complete()

    def read(
        self,
        key: Any = ...,
        *,
        out: npt.NDArray[Any] | None = None,
        phi: float | None = None,
        budget: Budget | None = None,
        method: Method | None = None,
        deadline: float | None = None,
    ) -> Any:
        """Read a selection, with options.

        out       array that the result is read into
        phi       seconds that a dollar is worth (0: fastest, infinity: cheapest)
        budget    refuse the read if it is predicted to cost more, stop it if it does
        method    force one: "get" (whole chunks), "merge" (one range per chunk), "fetch" (exactly the needed
                  bytes), "paper" (Algorithm 1 of ArrayMorph), "call" (all cut by the function beside the data)
        deadline  seconds after which DeadlineError is raised

        >>> import hyperslab as hs
        >>> a = hs.save("memory://doc/read", np.arange(12).reshape(3, 4))
        >>> a.read(np.s_[1, :3], budget=hs.Budget(bytes=10_000), out=np.zeros(3))
        array([4., 5., 6.])
        """
        result = self._result(key, out)
        read(self.session, (result.task,), Options(phi, budget, method, deadline))
        return result.get()

    async def aread(
        self,
        key: Any = ...,
        *,
        out: npt.NDArray[Any] | None = None,
        phi: float | None = None,
        budget: Budget | None = None,
        method: Method | None = None,
        deadline: float | None = None,
    ) -> Any:
        """Read a selection without blocking the running event loop; options as for `read`."""
        result = await _off_loop(self.source.chunks, self._result, key, out)
        await aread(self.session, (result.task,), Options(phi, budget, method, deadline))
        return await _off_loop(self.source.cells, result.get)

    def read_boxes(self, keys: Iterable[Any], **options: Any) -> list[npt.NDArray[Any]]:
        """Read several selections by one plan: bytes that they share are fetched once."""
        return read_many([(self, key) for key in keys], **options)

    @property
    def lazy(self) -> "LazyArray":
        """A view that selections can be taken of before anything is read."""
        return LazyArray(self, self._whole())

    @property
    def points(self) -> "_Points":
        """Cells by their coordinates: `array.points[[0, 5], [2, 3]]` gives cells (0, 2) and (5, 3)."""
        return _Points(self)

    @property
    def explain(self) -> "_Explain":
        """What a read would send and cost: `print(array.explain[key])`. Reads no cells.

        Sends nothing, but for HDF5, Icechunk and references: where chunks lie is read when it is first needed. Options
        go into a call, `array.explain(key, phi=…, method=…)`; `array.explain.points[i, j]` explains a read of points.
        """
        return _Explain(self)

    def to_dask(self, chunks: Any = "auto") -> Any:
        """Return an array of Dask, each task of which is one planned read; `hyperslab.from_dask` is the way back.

        `chunks` are as Dask has them. Where Dask chooses, blocks are made of whole objects, so that no two tasks read
        the same bytes. What is selected of it becomes part of the reads. The graph holds this array once, however many
        blocks there are.
        """
        return _as_dask(self, chunks)

    def refresh(self) -> "Array":
        """Return the array as it is stored now."""
        reader = StoreReader(self.session, self.store)
        fresh = reopen(reader, self.source)
        if not isinstance(fresh, ArraySource):
            raise NotFoundError(f"{self.url!r} is not an array any more")
        return Array(fresh, self.store, self.session, writable=self.writable)

    def _set_attrs(self, sets: Mapping[str, Any], drops: Iterable[str]) -> Mapping[str, Any]:
        with _changing(self) as changes:
            return changes.change_attributes(sets, drops)

    def _parse(self, key: Any) -> Selection | Points:
        return key if isinstance(key, (Selection, Points)) else parse(key, self.shape, self.dtype.names)

    def _result(self, key: Any, out: npt.NDArray[Any] | None = None) -> Result:
        resolve = None if self.source.cells is None else _Resolve(self)
        selection = self._parse(key)
        return Result(self.url, self.store, self._layout(selection), self.snapshot, selection, out, resolve)

    def _layout(self, selection: Selection | Points) -> Layout:
        """Return where the cells lie. Of HDF5 files and references, that is read when it is first needed."""
        if self.source.chunks is None:
            return self.source.layout
        self.source, layout = locate_chunks(StoreReader(self.session, self.store), self.source, selection)
        return layout

    def _whole(self) -> Selection:
        return parse(..., self.shape)  # type: ignore[return-value]


_PLAIN_READ = Options()


@contextmanager
def _changing(array: Array) -> Iterator[ZarrArray]:
    """Give what changes the array; afterwards, also if that failed, the handle is of the array as it then is."""
    _check_writable(array)
    if array._changes is None:
        array._changes = ZarrArray(array.session, array.store, array.source, array.snapshot)
    try:
        yield array._changes
    finally:
        array.source = array._changes.source
        array.shape = array.source.layout.shape


async def _off_loop(waits: object, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call in a thread if there is something that it will wait for."""
    import asyncio

    return call(*arguments) if waits is None else await asyncio.to_thread(call, *arguments)


def _as_dask(array: Array, chunks: Any) -> Any:
    try:
        import dask.array as da
    except ImportError:
        raise UnsupportedError("arrays of Dask need Dask: pip install 'hyperslab[dask]'") from None
    dask: Any = da.core  # which has no types
    lengths = dask.normalize_chunks(chunks, array.shape, None, array.dtype, array.shards or array.chunks)
    # Named anew each time: what is stored may have changed in between.
    name, meta = f"hyperslab-{uuid4().hex}", np.empty((0,) * array.ndim, array.dtype)
    return dask.from_array(array, lengths, name=name, meta=meta)


class _Resolve:
    """Makes strings, and arrays of any length, out of the cells that refer to them."""

    def __init__(self, array: Array) -> None:
        self._array, self.dtype = array, array.dtype

    def __call__(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array = self._array
        return array.source.resolve(StoreReader(array.session, array.store), cells)


class LazyArray:
    """A selection of an array that has not been read. Selecting again composes; `read()` reads once.

    `np.asarray(view)` reads, too.

    >>> import hyperslab as hs
    >>> view = hs.save("memory://doc/lazy", np.arange(24).reshape(4, 6)).lazy[1:][::-2, 3]
    >>> view.shape, view.read()
    ((2,), array([21,  9]))
    """

    def __init__(self, array: Array, selection: Selection) -> None:
        self.array, self.selection = array, selection

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what would be read."""
        return self.selection.shape_of(self.array.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.selection.dtype_of(self.array.dtype)

    def __getitem__(self, key: Any) -> "LazyArray":
        if self.shape != self.selection.result_shape:
            raise SelectionError(f"field {self.selection.fields!r} holds arrays: read it, then index the result")
        return LazyArray(self.array, compose(self.selection, key, self.array.dtype.names))

    def read(self, **options: Any) -> Any:
        """Read the selected cells; options as for `Array.read`."""
        return self.array.read(self.selection, **options)

    def explain(self, **options: Any) -> Explanation:
        """What reading the view would send and cost."""
        return self.array.explain(self.selection, **options)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the view is not in memory: making a NumPy array of it always copies")
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self) -> str:
        return f"<hyperslab.LazyArray {self.shape} {self.dtype} of {self.array!r}>"


class _Points:
    def __init__(self, array: Array, use: Callable[[Points], Any] | None = None) -> None:
        self._array, self._use = array, use or array.read

    def __getitem__(self, key: Any) -> Any:
        return self._use(parse_points(key, self._array.shape))

    def __setitem__(self, key: Any, values: Any) -> None:
        self._array[parse_points(key, self._array.shape)] = values


class _Explain:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> Explanation:
        return self(key)

    def __call__(self, key: Any = ..., *, phi: float | None = None, method: Method | None = None) -> Explanation:
        array, selection = self._array, self._array._parse(key)
        task = ReadTask(array.url, array.store, array._layout(selection), array.snapshot, selection, _NOTHING)
        plan, run = partial(_plan_of, array, task, phi), partial(_run, array, selection, phi, method)
        return explain(array.url, selection, plan, method, run)

    @property
    def points(self) -> "_Points":
        """What `array.points[...]` would send and cost."""
        return _Points(self._array, self)


_NOTHING: npt.NDArray[Any] = np.empty(0)


def _plan_of(array: Array, task: ReadTask, phi: float | None, method: Method | None) -> Plan:
    return plan_reads(array.session, (task,), Options(phi, None, method))


def _run(array: Array, selection: Selection | Points, phi: float | None, method: Method | None) -> Ledger:
    return read(array.session, (array._result(selection).task,), Options(phi, None, method))


class Group(Mapping[str, "Array | Group"]):
    """Arrays and groups under names: a mapping, whose members are added by `create`, `save` and `create_group`.

    `group[name]` opens a member; a path such as "a/b" leads further inside. Where a group has no consolidated
    metadata, its names are found by listing, and each is looked at.

    >>> import hyperslab as hs
    >>> group = hs.create_group("memory://doc/group", attrs={"title": "run 3"})
    >>> _ = group.save("deep/wind", np.zeros((2, 3)))
    >>> list(group), "deep/wind" in group, group["deep/wind"].shape, group.attrs["title"]
    (['deep'], True, (2, 3), 'run 3')
    >>> print(group.tree())
    deep/
      wind  float64 (2, 3)
    """

    def __init__(self, source: GroupSource, store: Store, session: Session, *, writable: bool = False) -> None:
        self.source, self.store, self.session, self.writable = source, store, session, writable

    @property
    def url(self) -> str:
        """Where the group is."""
        return self.source.url

    @property
    def name(self) -> str:
        """The last part of the group's path."""
        return self.source.url.rstrip("/").rpartition("/")[2]

    @property
    def attrs(self) -> Attributes:
        """The user's attributes: `group.attrs["title"] = "…"` stores one."""
        return Attributes(self.source.attrs, self._set_attrs)

    def create(self, name: str, shape: Any, dtype: npt.DTypeLike, *, overwrite: bool = False, **settings: Any) -> Array:
        """Create an array as a member; arguments as for `hyperslab.create`."""
        place = self._place(name)
        return created(place, place.create(NewArray(shape, dtype, **settings), overwrite=overwrite))

    def save(self, name: str, array: Any, *, overwrite: bool = False, **settings: Any) -> Array:
        """Write an array as a member; arguments as for `hyperslab.save`."""
        place, threads = self._place(name), isinstance(array, Array)
        return created(place, save_array(place, array, settings, overwrite=overwrite, threads=threads))

    def create_group(self, name: str, *, attrs: Mapping[str, Any] | None = None, overwrite: bool = False) -> "Group":
        """Create a group as a member."""
        source = self._place(name).create_group(attrs, overwrite=overwrite)
        return Group(source, self.store, self.session, writable=True)

    def _place(self, name: str) -> Place:
        _check_writable(self)
        return member_place(Place(self.session, self.store, self.source.path, self.url), self.source, name)

    def _set_attrs(self, sets: Mapping[str, Any], drops: Iterable[str]) -> Mapping[str, Any]:
        _check_writable(self)
        writer = StoreWriter(self.session, self.store)
        attrs = change_attributes(writer, self.source.path, self.source.format, sets, drops)
        self.source = replace(self.source, attrs=attrs)
        return attrs

    def __getitem__(self, name: str) -> "Array | Group":
        found = open_member(StoreReader(self.session, self.store), self.source, name)
        return wrap(found, self.store, self.session, writable=self.writable)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except (NotFoundError, InvalidInputError):
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(member_names(StoreReader(self.session, self.store), self.source))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def refresh(self) -> "Group":
        """Return the group as it is stored now."""
        fresh = reopen(StoreReader(self.session, self.store), self.source)
        if not isinstance(fresh, GroupSource):
            raise NotFoundError(f"{self.url!r} is not a group any more")
        return Group(fresh, self.store, self.session, writable=self.writable)

    def tree(self, depth: int | None = None) -> str:
        """Return the names below the group as an indented text, `depth` levels deep."""
        return "\n".join(_tree(self, depth))

    def __repr__(self) -> str:
        return f"<hyperslab.Group {self.url!r} {self.source.format}>"


def _check_writable(handle: Array | Group) -> None:
    if not handle.writable:
        raise InvalidInputError(f"{handle.url!r} was opened to be read; open it with mode='r+' to change it")


def _tree(group: Group, depth: int | None) -> Iterator[str]:
    # Groups whose members are still to be told of, innermost last: they may be nested deeper than Python's calls.
    open_groups: list[tuple[Group, Iterator[str]]] = [(group, iter(group))]
    seen = {_identity(group)}
    while open_groups:
        outer, names = open_groups[-1]
        if (name := next(names, None)) is None:
            open_groups.pop()
            continue
        line, member = _tree_line(outer, name)
        again = isinstance(member, Group) and _identity(member) in seen
        yield "  " * (len(open_groups) - 1) + line + "  (told of above)" * again
        if isinstance(member, Group) and not again and (depth is None or len(open_groups) < depth):
            seen.add(_identity(member))
            open_groups.append((member, iter(member)))


def _tree_line(group: Group, name: str) -> tuple[str, Array | Group | None]:
    try:
        member = group[name]
    except (FormatError, IntegrityError) as error:
        return f"{name}  cannot be read: {error}", None
    return (f"{name}  {member.dtype} {member.shape}" if isinstance(member, Array) else f"{name}/"), member


def _identity(group: Group) -> object:
    """Return what tells groups apart: in a file several paths may lead to one, also from within it."""
    part = group.source.part
    return group.url if part is None or part.address is None else (part.key, part.address)
