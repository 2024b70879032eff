"""A group as xarray's conventions want it: variables with the names of their axes, attributes, encodings.

Formats differ in how they say the same: NetCDF-4 writes one number as an array of one, Zarr's version 2 has no names
of axes but in an attribute, and its fill value is what marks missing cells. Here all of them come out alike.
"""

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends.common import AbstractDataStore
from xarray.backends.zarr import FillValueCoder
from xarray.core.indexing import LazilyIndexedArray

from hyperslab.array import Array, Group
from hyperslab.errors import UnsupportedError
from hyperslab.execute import StoreReader
from hyperslab.formats.hdf5.attributes import Reference
from hyperslab.formats.references.source import ReferencedChunks
from hyperslab.formats.source import join, load_document
from hyperslab.xarray.variables import Coordinates, PythonVariable, StoredVariable

__all__ = ["HyperslabDataStore"]

# Attributes that say what was read off them already, or are of no use outside of their format.
_HIDDEN = ("_ARRAY_DIMENSIONS", "_NCZARR_ARRAY", "_nczarr_array", "_NCZARR_GROUP", "_nczarr_group", "_nczarr_attrs")
# Attributes that have the type of the cells, so bytes stay bytes.
_CELLS = ("_FillValue", "missing_value")
# NetCDF-4 writes this before the name of a variable that is called like an axis, but is not along it.
_NOT_A_COORDINATE = "_nc4_non_coord_"


class HyperslabDataStore(AbstractDataStore):
    """The arrays of an opened group, or one opened array, as xarray's variables.

    A member that cannot be read is left out, and a warning says why.
    """

    def __init__(
        self, found: Array | Group, *, dropped: Collection[str] = (), fill_is_missing: bool | None = None
    ) -> None:
        self.found, self._dropped, self._fill_is_missing = found, frozenset(dropped), fill_is_missing
        self._unlimited: set[str] = set()

    def get_variables(self) -> dict[str, xr.Variable]:
        """Return the variables by name; no cells are read."""
        nodes = dict(self._nodes())
        names = _PhonyNames()
        dims = {name: names.complete(node) for name, node in nodes.items()}
        lengths = self._lengths(nodes, dims)
        coordinates = Coordinates()
        return {
            name: self._variable(name, node, dims[name], lengths, coordinates) for name, node in nodes.items()
        }  # fmt: skip

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the dataset; of one array alone they are its variable's."""
        return _plain_attrs(self.found.attrs) if isinstance(self.found, Group) else {}

    def get_dimensions(self) -> dict[str, int]:
        """Return the length of each axis by its name."""
        return {str(name): n for each in self.get_variables().values() for name, n in each.sizes.items()}

    def get_encoding(self) -> dict[str, Any]:
        """Return how the dataset is stored: which axes may grow without limit."""
        return {"unlimited_dims": self._unlimited} if self._unlimited else {}

    def groups(self) -> dict[str, Group]:
        """Return the groups inside of this one."""
        return {name: member for name, member in self._members() if isinstance(member, Group)}

    def _nodes(self) -> Iterator[tuple[str, "_Node"]]:
        if isinstance(self.found, Array):
            yield _stem(self.found.name), _node(self.found)
            return
        for name, member in self._members():
            if isinstance(member, Array):
                yield name.removeprefix(_NOT_A_COORDINATE), _node(member)
            elif not isinstance(member, Group):
                yield name, member

    def _members(self) -> Iterator[tuple[str, "Array | Group | _Node"]]:
        assert isinstance(self.found, Group)
        for name in self.found:
            if name in self._dropped:
                continue
            try:
                yield name, self.found[name]
            except UnsupportedError as error:
                node = _read_by_zarr(self.found, name)
                if node is None:
                    _warn(f"{name!r} of {self.found.url!r} is left out: {error}")
                else:
                    yield name, node

    def _lengths(self, nodes: Mapping[str, "_Node"], dims: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
        """Return the lengths of axes that may grow: NetCDF lets variables along them have been written less far."""
        lengths: dict[str, int] = {}
        for name, node in nodes.items():
            for dim, n, most in zip(dims[name], node.shape, node.maxshape or node.shape, strict=True):
                if most is None:
                    lengths[dim] = max(lengths.get(dim, 0), n)
        self._unlimited = set(lengths)
        return lengths

    def _variable(
        self, name: str, node: "_Node", dims: tuple[str, ...], lengths: Mapping[str, int], coordinates: Coordinates
    ) -> xr.Variable:
        attrs = _plain_attrs(node.attrs)
        self._set_missing(node, attrs)
        encoding = {"source": node.url, "original_shape": node.shape, **_storage(node, dims)}
        data: StoredVariable | PythonVariable
        if isinstance(node.cells, Array):
            grown = tuple(lengths.get(dim, n) for dim, n in zip(dims, node.shape, strict=True))
            data = StoredVariable(node.cells, grown if node.maxshape else node.shape)
            if dims == (name,):
                coordinates.add(data)
        else:
            data = PythonVariable(node.cells)
        return xr.Variable(dims, LazilyIndexedArray(data), attrs, encoding, fastpath=True)

    def _set_missing(self, node: "_Node", attrs: dict[str, Any]) -> None:
        """Say which value marks missing cells, as the conventions want it."""
        version = _ZARR.get(node.format)
        if version is None:
            fill = attrs.get("_FillValue")
            if node.dtype.kind == "S" and isinstance(fill, str):
                attrs["_FillValue"] = fill.encode()
            return
        as_mask = version == 2 if self._fill_is_missing is None else self._fill_is_missing
        if as_mask:
            fill = _fill_of(node)
            if fill is not None:
                attrs["_FillValue"] = fill
        elif "_FillValue" in attrs and version == 3:
            attrs["_FillValue"] = FillValueCoder.decode(attrs["_FillValue"], node.dtype)


# The version of Zarr whose documents describe arrays of a format.
_ZARR = {"zarr2": 2, "zarr3": 3, "kerchunk": 2, "virtualizarr": 3, "icechunk": 3}


@dataclass(frozen=True, slots=True)
class _Node:
    """An array as it is found, before xarray's conventions."""

    cells: Any
    url: str
    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    dims: tuple[str | None, ...]
    attrs: Mapping[str, Any]
    maxshape: tuple[int | None, ...] | None = None


def _node(array: Array) -> _Node:
    source = array.source
    most = getattr(source.chunks, "maxshape", None)
    if most is not None and len(most) != array.ndim:  # cells are arrays, whose axes come last
        most = (*most, *array.shape[len(most) :])
    return _Node(
        array, array.url, source.format, array.shape, array.dtype, array.chunks, array.shards,
        array.dims or (None,) * array.ndim, array.attrs, most,
    )  # fmt: skip


def _read_by_zarr(group: Group, name: str) -> _Node | None:
    """Return a Zarr array whose cells have no fixed places, such as texts of any length; None if it is not Zarr.

    zarr-python decodes it, out of bytes that come through the session.
    """
    store = _zarr_store(group, name)
    if store is None:
        return None
    import zarr
    from zarr.errors import BaseZarrError

    try:
        array = zarr.open_array(store, mode="r")
    except (BaseZarrError, ValueError, TypeError, KeyError):
        return None
    attrs: dict[str, Any] = dict(array.attrs)
    dims = attrs.get("_ARRAY_DIMENSIONS") or getattr(array.metadata, "dimension_names", None) or (None,) * array.ndim
    return _Node(
        array, group.url.rstrip("/") + "/" + name, group.source.format, array.shape, array.dtype, array.chunks,
        array.shards, tuple(dims), attrs,
    )  # fmt: skip


def _zarr_store(group: Group, name: str) -> Any:
    """Return a store by which zarr-python reads a member through the session; None if it is not Zarr."""
    if group.source.format == "icechunk":
        from hyperslab.formats.icechunk.source import zarr_store

        return zarr_store(StoreReader(group.session, group.store), group.source, name)
    if not group.source.format.startswith("zarr"):
        return None
    from hyperslab.execute.write import StoreWriter
    from hyperslab.formats.zarr.store import ZarrStore

    return ZarrStore(StoreWriter(group.session, group.store), join(group.source.path, name), read_only=True)


def _storage(node: _Node, dims: tuple[str, ...]) -> dict[str, Any]:
    """Return how an array is stored, in the words of the engine that writes its format, and how it is best cut."""
    preferred = {"preferred_chunks": dict(zip(dims, node.shards or node.chunks, strict=True))}
    if node.format in _ZARR:
        # Only version 3 tells the fill value from what marks missing cells.
        fill = {"fill_value": node.cells.fill_value} if _ZARR[node.format] == 3 else {}
        return {"chunks": node.chunks, "shards": node.shards, **preferred, **fill}
    # What lies in one piece is not cut at all.
    return {"chunksizes": node.chunks, **preferred} if node.maxshape is not None else {"contiguous": True}


def _fill_of(node: _Node) -> Any:
    """Return the fill value of a Zarr array, None if it has none."""
    if not isinstance(node.cells, Array):
        return node.cells.fill_value
    array = node.cells
    if isinstance(array.source.chunks, ReferencedChunks):
        return array.fill_value if array.source.chunks.has_fill else None
    if node.format == "zarr2":
        # The layout has something to fill gaps with also where the document has not.
        key = join(array.source.path, ".zarray")
        document = load_document(StoreReader(array.session, array.store), key) or {}
        if document.get("fill_value") is None:
            return None
    return array.fill_value


def _plain_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the conventions want them: one number is no array, texts are `str`."""
    return {
        name: _plain(name, value)
        for name, value in attrs.items()
        if name not in _HIDDEN and not isinstance(value, Reference)
    }


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.size == 1 and value.ndim <= 1:
            return _plain(name, value.reshape(-1)[0])
        return value.tolist() if value.dtype.kind in "OU" else value
    if isinstance(value, bytes) and name not in _CELLS:
        return value.decode("utf-8", "replace")
    # Bytes that are no text, as Python keeps them in one.
    return value if not isinstance(value, str) else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class _PhonyNames:
    """Names for axes that have none: axes of one length in a group share one, as in netCDF."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def complete(self, node: _Node) -> tuple[str, ...]:
        """Return the names of all axes; two axes of one array never get the same."""
        seen: Counter[int] = Counter()
        names: list[str] = []
        for name, n in zip(node.dims, node.shape, strict=True):
            if name is None:
                name = self._known.setdefault((n, seen[n]), f"phony_dim_{len(self._known)}")
                seen[n] += 1
            names.append(name)
        return tuple(names)


def _stem(name: str) -> str:
    """Return a name for a variable that was opened alone.

    >>> _stem("wind.npy"), _stem("wind")
    ('wind', 'wind')
    """
    stem = name.partition(".")[0]
    return stem or "data"


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=2)
