"""Saving and copying: whole arrays and trees of groups written object by object, in bounded memory.

A copy that was interrupted goes on where it was: its objects are whole or absent, and until it is done its metadata
carries a fingerprint of what is being copied, so that nothing else is taken for it.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.execute import Session, Snapshot, StoreReader
from hyperslab.execute.write import StoreWriter
from hyperslab.formats import member_names
from hyperslab.formats.source import ArraySource, GroupSource, check_name, join
from hyperslab.formats.zarr.array import Done, ZarrArray, check_format, stored_objects
from hyperslab.formats.zarr.assignment import Assignment, assign_blocks, assign_values
from hyperslab.formats.zarr.compression import SAME, as_now
from hyperslab.formats.zarr.create import DOCUMENTS, NewArray, create_array, create_group
from hyperslab.formats.zarr.documents import change_document, dump, fetch_document
from hyperslab.formats.zarr.seal import Seal, check_seal, seal_of, sealed
from hyperslab.formats.zarr.shuffling import as_sample_says
from hyperslab.formats.zarr.sizes import OBJECT_BYTES, choose_chunks
from hyperslab.formats.zarr.v3 import FORMAT, parse_node
from hyperslab.formats.zarr.write import edits_of
from hyperslab.layout import Layout
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.compression import DEFAULT
from hyperslab.selection import Selection, Span
from hyperslab.store import LocalStore, Store

__all__ = ["Place", "Readable", "ReadableGroup", "copy_tree", "member_place", "save_array", "seal_tree", "showing"]

Progress = Callable[[int, int], None]
# Writes the objects of an array with the cells of another one, but those at the places given, which are there; tells of
# bytes, and returns how many objects were left out.
Move = Callable[["Readable", ZarrArray, set[tuple[int, ...]], Done], int]

# Groups inside of groups; a link may lead back up, and round and round.
_MOST_DEPTH = 64


class Readable(Protocol):
    """An array to be copied; it can be read from several threads."""

    @property
    def url(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...
    @property
    def dims(self) -> tuple[str | None, ...] | None: ...
    @property
    def fill_value(self) -> Any: ...
    def read(self, key: Any) -> Any: ...


class ReadableGroup(Protocol):
    """A group to be copied."""

    @property
    def url(self) -> str: ...
    @property
    def attrs(self) -> Mapping[str, Any]: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str) -> Any: ...
    def items(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is to be stored."""

    session: Session
    store: Store
    path: str
    url: str

    def writer(self) -> StoreWriter:
        return StoreWriter(self.session, self.store)

    def member(self, name: str) -> "Place":
        """Return the place of a member of the group that is here."""
        if set(check_name(name).split("/")) & set(DOCUMENTS):
            raise InvalidInputError(f"{name!r} is the name of a metadata document; choose another one for a member")
        return replace(self, path=join(self.path, name), url=self.url.rstrip("/") + "/" + name)

    def create(self, new: NewArray, *, overwrite: bool = False, seal: Seal | None = None) -> ZarrArray:
        """Create an array here, without cells."""
        source, document = create_array(self.writer(), self.path, self.url, new, overwrite=overwrite, seal=seal)
        return ZarrArray(self.session, self.store, source, Snapshot(), document)

    def create_group(
        self, attrs: Mapping[str, Any] | None = None, *, overwrite: bool = False, seal: Seal | None = None
    ) -> GroupSource:
        """Create a group here, without members."""
        return create_group(self.writer(), self.path, self.url, attrs, overwrite=overwrite, seal=seal)


def member_place(place: Place, group: GroupSource, name: str) -> Place:
    """Return the place of a new member; groups that its name goes through are made."""
    check_format(group.format, group.url)
    if group.format != FORMAT:
        raise UnsupportedError(f"group {group.url!r} is {group.format}; new members are only made in Zarr v3")
    if group.members is not None:
        raise UnsupportedError(
            f"the metadata of group {group.url!r} is consolidated, so that a new member would not be seen; "
            "remove 'consolidated_metadata' from its zarr.json first"
        )
    member = place.member(name)
    parts = name.split("/")
    for n in range(1, len(parts)):
        above = place.member("/".join(parts[:n]))
        found = fetch_document(above.writer(), join(above.path, "zarr.json"))
        if found is None:
            above.create_group()
        elif found[0].get("node_type") != "group":
            raise InvalidInputError(f"{above.url!r} is an array, which has no members; choose another name")
    return member


def seal_tree(place: Place) -> ArraySource | GroupSource:
    """Seal the array, or the group and all below it, that is stored here, and return it."""
    key = join(place.path, "zarr.json")
    found = fetch_document(place.writer(), key, checked=False)
    if found is None:
        raise NotFoundError(f"there is no Zarr v3 array or group at {place.url!r}: nothing is stored under {key!r}")
    document, etag = found
    signed = sealed(document, replace(seal_of(document) or Seal(), copying=None))
    source = parse_node(signed, place.url, place.path)
    if isinstance(source, ArraySource):
        array = ZarrArray(place.session, place.store, source, Snapshot(), signed)
        array.complete()
        return array.source
    place.writer().put(key, dump(signed), if_match=etag)
    for name in member_names(StoreReader(place.session, place.store), replace(source, members=None)):
        seal_tree(place.member(name))
    return source


def save_array(place: Place, values: Any, settings: Mapping[str, Any], *, overwrite: bool, threads: bool) -> ZarrArray:
    """Write an array that is in memory, or gives its cells when it is indexed; `threads`: also to several at once."""
    if not (hasattr(values, "shape") and hasattr(values, "dtype") and hasattr(values, "__getitem__")):
        try:
            values = np.asarray(values)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"NumPy cannot make an array of what is to be saved: {error}") from error
    _check_apart(getattr(values, "array", values), place, overwrite=overwrite)
    new = NewArray(tuple(values.shape), values.dtype, **settings)
    # To look at cells that are not at hand would be to read them twice.
    new = as_sample_says(new, np.asarray(values)) if isinstance(values, np.ndarray) else new
    array = place.create(new, overwrite=overwrite)
    array.write(_everything(array.source.layout, values, threads=threads))
    return array


def _everything(layout: Layout, values: Any, *, threads: bool) -> Assignment:
    whole = Selection(layout.shape, tuple([Span(0, n) for n in layout.shape]), tuple(range(len(layout.shape))))
    if isinstance(values, np.ndarray | np.generic):
        return assign_values(layout, whole, np.asarray(values))
    turn = threading.Lock()

    def block(box: tuple[slice, ...]) -> npt.NDArray[Any]:
        if threads:
            return np.asarray(values[box])
        with turn:
            return np.asarray(values[box])

    return assign_blocks(layout, whole, block)


def _check_apart(source: Any, place: Place, *, overwrite: bool) -> None:
    """Refuse to write into what is being read, or to delete it first."""
    store, inner = getattr(source, "store", None), getattr(source, "source", None)
    if not isinstance(inner, ArraySource | GroupSource) or store is None:
        return
    read, written = _address(store, inner.path), _address(place.store, place.path)
    if (written + "/").startswith(read + "/") or (overwrite and (read + "/").startswith(written + "/")):
        raise InvalidInputError(f"{place.url!r} and {inner.url!r} lie in one another; write to another place")


def _address(store: Store, path: str) -> str:
    if isinstance(store, LocalStore):  # of which links lead to the same place
        return os.path.realpath(os.path.join(store.root, path))
    return join(store.address, path)


def copy_tree(
    source: Readable | ReadableGroup,
    place: Place,
    settings: Mapping[str, Any],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    move: Move | None = None,
) -> ArraySource | GroupSource:
    """Copy an array, or a group with all below it; go on with a copy of the same that was interrupted.

    `move` is how cells are moved (default: object by object, each read as it is written).
    """
    _check_apart(source, place, overwrite=overwrite)
    total = _nbytes(source) if progress is not None else 0
    lock, done = threading.Lock(), [0]

    def tell(nbytes: int) -> None:
        if progress is not None:
            with lock:
                done[0] += nbytes
                progress(done[0], total)

    return _copy(source, place, _Manner(settings, tell, overwrite, move=move))


@dataclass(frozen=True, slots=True)
class _Manner:
    """How something is copied: anew, or `resuming` what was begun; `depth` is how many groups it is below the first."""

    settings: Mapping[str, Any]
    tell: Done
    overwrite: bool
    resuming: bool = False
    depth: int = 0
    move: Move | None = None

    def inside(self, source: Any, *, begun: bool) -> "_Manner":
        """Return how a group's members are copied."""
        # What is there, though the group is new, is left from a deletion that was interrupted.
        return replace(self, overwrite=self.overwrite and not begun, resuming=begun, depth=_deeper(self.depth, source))


def _deeper(depth: int, group: Any) -> int:
    if depth >= _MOST_DEPTH:
        raise UnsupportedError(
            f"{group.url!r} is more than {_MOST_DEPTH} groups deep; if a link leads back up, copy members one by one"
        )
    return depth + 1


def _nbytes(source: Any, depth: int = 0) -> int:
    if hasattr(source, "items"):
        return sum(_nbytes(member, _deeper(depth, source)) for _, member in source.items())
    return int(source.nbytes)


def _copy(source: Any, place: Place, manner: _Manner) -> ArraySource | GroupSource:
    return _copy_group(source, place, manner) if hasattr(source, "items") else _copy_array(source, place, manner)


def _copy_array(source: Readable, place: Place, manner: _Manner) -> ArraySource:
    settings, tell, overwrite = manner.settings, manner.tell, manner.overwrite
    mark = _fingerprint(source.url, source.shape, source.dtype, settings)
    begun = _begun(place, mark, source.url, overwrite=overwrite, resuming=manner.resuming)
    if begun is None:
        array = place.create(_alike(source, settings), overwrite=overwrite, seal=Seal(copying=mark))
        there: set[tuple[int, ...]] = set()
    else:
        found = parse_node(begun, place.url, place.path)
        if not isinstance(found, ArraySource) or found.layout.shape != source.shape:
            raise _not_ours(place, source.url)
        array = ZarrArray(place.session, place.store, found, Snapshot(), begun)
        if found.layout.complete:
            tell(source.nbytes)
            return found
        there = stored_objects(place.writer(), found)
    if manner.move is not None:
        _tell_of(there, array, source, tell)
        array.mark_copied(complete=not manner.move(source, array, there, tell))
        return array.source
    whole = _everything(array.source.layout, _Reads(source, array.source.layout.dtype), threads=True)
    edits = edits_of(whole)
    if there:
        tell(len(there) * source.nbytes // max(1, sum(1 for _ in edits_of(whole))))
        edits = (edit for edit in edits if edit.coords not in there)
    array.write(whole, edits=edits, done=tell)
    return array.source


def _tell_of(there: set[tuple[int, ...]], array: ZarrArray, source: Readable, tell: Done) -> None:
    """Tell of the bytes of objects that are stored already."""
    layout = array.source.layout
    inside = [coords for coords in there if all(at < n for at, n in zip(coords, layout.object_grid, strict=True))]
    if inside:
        sides = [zip(coords, layout.object_shape, layout.shape, strict=True) for coords in inside]
        cells = sum(prod([min(n, end - at * n) for at, n, end in each]) for each in sides)
        tell(cells * source.nbytes // prod(layout.shape))


def _copy_group(source: ReadableGroup, place: Place, manner: _Manner) -> GroupSource:
    mark, overwrite = _fingerprint(source.url, (), None, manner.settings), manner.overwrite
    begun = _begun(place, mark, source.url, overwrite=overwrite, resuming=manner.resuming)
    if begun is not None and begun["node_type"] != "group":
        raise _not_ours(place, source.url)
    places = {name: place.member(name) for name in source}
    if begun is None:
        if not overwrite:
            _check_free(place, set(places))
        place.create_group(_for_json(source.attrs), overwrite=overwrite, seal=Seal(copying=mark))
    below = manner.inside(source, begun=begun is not None)
    for name, inside in places.items():
        _copy(source[name], inside, below)
    document = change_document(
        place.writer(),
        join(place.path, "zarr.json"),
        lambda found, seal: (found, replace(seal or Seal(), copying=None)),
    )
    return cast(GroupSource, parse_node(document, place.url, place.path))


def _begun(place: Place, mark: str, source_url: str, *, overwrite: bool, resuming: bool) -> dict[str, Any] | None:
    """Return the metadata of a copy of the same that was begun here; None if there is nothing, or it is to go."""
    key = join(place.path, "zarr.json")
    found = fetch_document(place.writer(), key, checked=not overwrite)
    if found is None:
        return None
    seal = check_seal(found[0], key) if not overwrite else None
    if seal is not None and (seal.copying == mark or (resuming and seal.copying is None)):
        return found[0]
    if overwrite:
        return None
    if seal is not None and seal.copying is not None:
        raise _not_ours(place, source_url)
    raise InvalidInputError(
        f"{place.url!r} is stored already; pass overwrite=True to replace it with all that it holds"
    )


def _not_ours(place: Place, source_url: str) -> InvalidInputError:
    return InvalidInputError(
        f"{place.url!r} holds an unfinished copy, but not of {source_url!r} with these settings; "
        "pass overwrite=True to replace it"
    )


def _check_free(place: Place, names: set[str]) -> None:
    """Refuse to make a group where members already are: a later run would take them for what this one copied."""
    lead = place.path + "/" if place.path else ""
    for key, _ in place.writer().keys(place.path):
        name = key.removeprefix(lead).partition("/")[0]
        if name in names:
            raise InvalidInputError(f"{place.url!r} has a member {name!r}; pass overwrite=True to replace it")


def _fingerprint(url: str, shape: tuple[int, ...], dtype: Any, settings: Mapping[str, Any]) -> str:
    text = json.dumps(
        # What is as it is stays unsaid.
        [url, list(shape), str(dtype), {name: repr(value) for name, value in settings.items() if value != SAME}],
        sort_keys=True,
    )
    return f"{crc32c(np.frombuffer(text.encode(), np.uint8)):08x}"


def _alike(source: Readable, settings: Mapping[str, Any]) -> NewArray:
    """Return what an array must be like to hold a copy of another one."""
    attrs, dtype, fill = _for_json(source.attrs), source.dtype, source.fill_value
    if dtype.hasobject:
        dtype, fill = _fixed_length(source), 0
    opened = getattr(source, "source", None)
    chosen = as_now(settings, opened.compression if isinstance(opened, ArraySource) else DEFAULT)
    return NewArray(source.shape, dtype, fill_value=fill, dims=source.dims, attrs=attrs, **chosen)


def _fixed_length(source: Readable) -> np.dtype[Any]:
    """Return the type of fixed length that holds all strings of an array, which is read once for that."""
    longest, kinds = 1, set()
    sizes = choose_chunks(source.shape, 64, OBJECT_BYTES)
    for low in product(*[range(0, length, size) for length, size in zip(source.shape, sizes, strict=True)]):
        box = tuple([slice(at, at + size) for at, size in zip(low, sizes, strict=True)])
        for cell in np.asarray(source.read(box), object).flat:
            kinds.add(type(cell))
            longest = max(longest, len(cell) if isinstance(cell, str | bytes) else 1)
            if isinstance(cell, str | bytes) and cell[-1:] in ("\0", b"\0"):
                raise UnsupportedError(f"{source.url!r} has strings that end with NUL, which would be lost")
    if not kinds <= {str} and not kinds <= {bytes}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UnsupportedError(f"{source.url!r} has cells of variable length ({found}); only strings can be copied")
    return np.dtype(f"S{longest}" if kinds == {bytes} else f"U{longest}")


def _for_json(value: Any) -> Any:
    """Return attributes in a form that JSON has; what has none, as text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _for_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


class _Reads:
    """An opened array as something to be indexed, with cells of the type that they are copied to."""

    def __init__(self, source: Readable, dtype: np.dtype[Any]) -> None:
        self._source, self._dtype = source, dtype

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self._source.read(key))
        return found.astype(self._dtype) if found.dtype.hasobject else found


@contextmanager
def showing(progress: Any, title: str) -> Iterator[Progress | None]:
    """Give what is to be told of progress: nothing, the user's function, or with True a bar on the terminal."""
    if progress is None or progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    if progress is not True:
        raise InvalidInputError(f"progress is True, or a function of (done_bytes, total_bytes), not {progress!r}")
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
