"""Datasets: h5py's, read and written through arrays of Hyperslab."""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, NoReturn

import h5py
import numpy as np
import numpy.typing as npt

from hyperslab.array import Array
from hyperslab.errors import InvalidInputError, NotFoundError, SelectionError, UnsupportedError
from hyperslab.h5.celltypes import CellType
from hyperslab.h5.dims import DimensionManager
from hyperslab.h5.failures import WrongKindError
from hyperslab.h5.handles import Handle
from hyperslab.h5.keys import Key, is_simple, parse_key
from hyperslab.h5.nodes import ArrayNode, Tree
from hyperslab.h5.views import AsStrView, AstypeView, FieldsView, as_array
from hyperslab.h5.zarr_tree import ZarrTree

__all__ = ["Dataset"]

Shape = tuple[int, ...]

_COMPRESSORS = ("gzip", "lzf", "szip", "zstd", "blosc", "lz4", "zlib", "bz2")
# What iteration reads at once at most, where a row is not more.
_BLOCK_BYTES = 16 << 20


class Dataset(Handle):
    """A dataset: what is indexed is read, what is assigned is stored.

    Keys, types and errors are h5py's: steps go forwards, one list or mask at most, texts come as bytes (`asstr()`
    makes them `str`). Reads are planned by Hyperslab; `array` is the opened array below, with `explain` and the rest.

    >>> import hyperslab.h5 as h5py
    >>> f = h5py.File("memory://datasets/doc.h5", "w")
    >>> temperature = f.create_dataset("run/temperature", data=np.arange(12.0).reshape(3, 4))
    >>> temperature[1, ::2], temperature.shape
    (array([4., 6.]), (3, 4))
    >>> temperature[:, [0, 3]] = -1
    >>> temperature[2]
    array([-1.,  9., 10., -1.])
    """

    _node: ArrayNode

    def __init__(self, tree: Tree, node: ArrayNode | None = None) -> None:
        super().__init__(tree, node)
        if not isinstance(node, ArrayNode):
            raise InvalidInputError(f"{self.name!r} is no dataset")
        self._direct = node.type.plain and not node.empty and bool(node.shape)

    # What it is

    @property
    def array(self) -> Any:
        """The opened array below: its `explain`, `points` and `lazy` are not h5py's."""
        return self._node.cells

    @property
    def shape(self) -> Shape | None:
        """Cells along each axis; None if the dataset has no cells by its nature."""
        self._check_open()
        return None if self._node.empty else self._node.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self.resize(shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of cells, marked by h5py's metadata where NumPy has no word for it."""
        self._check_open()
        return self._node.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape or ())

    @property
    def size(self) -> int | None:
        shape = self.shape
        return None if shape is None else prod(shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells, decoded."""
        return (self.size or 0) * self.dtype.itemsize

    @property
    def maxshape(self) -> tuple[int | None, ...] | None:
        """How far each axis may grow; None without limit."""
        return None if self.shape is None else self._node.maxshape

    @property
    def chunks(self) -> Shape | None:
        """Cells of one chunk; None where cells lie in one piece."""
        self._check_open()
        return None if self._node.empty else self._node.chunks

    @property
    def fillvalue(self) -> Any:
        """What cells hold that were never written."""
        self._check_open()
        fill = self._node.fill
        return self._node.type.shown(fill if isinstance(fill, np.generic) else np.asarray(fill)[()])

    @property
    def compression(self) -> str | None:
        """What chunks are compressed by, as the format calls it; "unknown" for a filter without a name."""
        names = self._node.filters
        known = next((name for name in names if name in _COMPRESSORS), None)
        return known or ("unknown" if any(name.isdigit() for name in names) else None)

    @property
    def compression_opts(self) -> Any:
        """The level, where the compressor has one."""
        values = self._node.filters.get("gzip")
        return values[0] if values else None

    @property
    def shuffle(self) -> bool:
        """Whether bytes of equal weight are put side by side before they are compressed."""
        return "shuffle" in self._node.filters

    @property
    def fletcher32(self) -> bool:
        """Whether chunks have a checksum of HDF5's. (Zarr arrays of ours have another.)"""
        return "fletcher32" in self._node.filters

    @property
    def scaleoffset(self) -> Any:
        """The setting of HDF5's filter of that name."""
        values = self._node.filters.get("scaleoffset")
        return values[1] if values else None

    external = None
    is_virtual = False

    @property
    def dims(self) -> DimensionManager:
        """The axes: their labels and scales. They are only read."""
        self._check_open()
        return DimensionManager(self._tree, self._node)

    @property
    def is_scale(self) -> bool:
        """Whether the dataset is a scale of an axis."""
        return self._node.is_scale

    @property
    def regionref(self) -> NoReturn:
        """Refuse: references are not made."""
        raise UnsupportedError("references to parts of datasets are not made; keep the path and the key instead")

    def make_scale(self, name: str = "") -> NoReturn:
        """Refuse: scales are only read."""
        raise WrongKindError(f"{self.name!r}: scales of axes are only read; name the axes of the Zarr array instead")

    # Reading

    def __getitem__(self, key: Any) -> Any:
        if self._direct and is_simple(key) and not (self._released or self._tree.closed):
            found = self._node.cells[key]
            # With `...` in the key NumPy gives one cell as an array, h5py as a scalar.
            return found[()] if type(found) is np.ndarray and not found.ndim else found
        self._check_open()
        if self._node.empty:
            return self._nothing(key)
        parsed = self._parse(key)
        found = self._read(parsed)
        if isinstance(found, np.ndarray) and not found.ndim and parsed.items != (Ellipsis,):
            found = found[()]
        return self._node.type.shown(found, parsed.fields)

    def read_direct(
        self, dest: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None
    ) -> None:  # fmt: skip
        """Read a selection into (a part of) an array that is there already."""
        self._check_direct(dest, writes=True)
        parsed = self._parse(() if source_sel is None else source_sel)
        place = dest[() if dest_sel is None else dest_sel]
        if place.shape != parsed.shape + self._node.type.inner:
            raise WrongKindError(f"cells of shape {parsed.shape} were to be read into an array of {place.shape}")
        if self._direct and not parsed.mask and place.flags.c_contiguous and place.dtype == self.dtype:
            self._node.cells.read(parsed.for_array(), out=place)
        else:
            place[...] = self[() if source_sel is None else source_sel]

    def astype(self, dtype: npt.DTypeLike) -> AstypeView:
        """Return a view that is read as another type: `dataset.astype("f4")[:10]`."""
        return AstypeView(self, dtype)

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> AsStrView:
        """Return a view whose texts are read as `str`: `dataset.asstr()[0]`."""
        info = h5py.check_string_dtype(self.dtype)
        if info is None:
            raise WrongKindError(f"{self.name!r} holds {self.dtype}, no texts")
        return AsStrView(self, encoding or info.encoding, errors)

    def fields(self, names: str | list[str]) -> FieldsView:
        """Return a view of one field, or of several: `dataset.fields(["x", "y"])[:10]`."""
        return FieldsView(self, names)

    def iter_chunks(self, sel: Any = None) -> Iterator[tuple[slice, ...]]:
        """Return the parts of a selection that lie in one chunk each, as keys."""
        chunks, shape = self.chunks, self.shape
        if chunks is None or shape is None:
            raise WrongKindError(f"{self.name!r} is not stored in chunks")
        given = () if sel is None else sel if isinstance(sel, tuple) else (sel,)
        if len(given) > len(shape):
            raise SelectionError(f"{len(given)} indices were given for {len(shape)} axes")
        spans = [_span(item, n) for item, n in zip((*given, *[slice(None)] * len(shape)), shape, strict=False)]
        axes = [
            [slice(max(a, at), min(b, at + size), 1) for at in range(a // size * size, b, size)]
            for (a, b), size in zip(spans, chunks, strict=True)
        ]
        return product(*axes)

    def __iter__(self) -> Iterator[Any]:
        shape = self.shape
        if not shape:
            raise TypeError("a dataset without axes cannot be iterated over")
        row_bytes = max(1, prod(shape[1:]) * self.dtype.itemsize)
        step = max(1, min(_BLOCK_BYTES // row_bytes, (self.chunks or shape)[0]))
        for start in range(0, shape[0], step):
            yield from self[start : start + step]

    def __len__(self) -> int:
        return self.len()

    def len(self) -> int:
        """Return the length of the first axis."""
        shape = self.shape
        if not shape:
            raise TypeError("a dataset without axes has no len()")
        return shape[0]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return as_array(None if copy is False else self[...], dtype, copy)

    # Changing

    def __setitem__(self, key: Any, values: Any) -> None:
        self._check_writable(self.name)
        if self._node.empty:
            raise WrongKindError(f"{self.name!r} has no cells that could be assigned")
        array, parsed = self._array(), self._parse(key)
        kind = self._node.type
        cells = _fitted(kind.kept(_part(values, parsed.fields, kind), parsed.fields), parsed, kind)
        self._make_room(cells.dtype, parsed.fields)
        if parsed.mask and kind.inner:
            whole = np.asarray(array[...])
            whole[parsed.items[0]] = cells
            parsed, cells = Key((Ellipsis,), (), whole.shape), whole
        self._array()[parsed.for_array()] = cells

    def write_direct(
        self, source: npt.NDArray[Any], source_sel: Any = None, dest_sel: Any = None
    ) -> None:  # fmt: skip
        """Write (a part of) an array into a selection."""
        self._check_direct(source)
        part = source[() if source_sel is None else source_sel]
        parsed = self._parse(() if dest_sel is None else dest_sel)
        if part.shape != parsed.shape + self._node.type.inner:
            raise WrongKindError(f"an array of shape {part.shape} was to be written to cells of {parsed.shape}")
        self[() if dest_sel is None else dest_sel] = part

    def resize(self, size: Any, axis: int | None = None) -> None:
        """Change the shape, or the length of one axis, as far as `maxshape` allows; new cells hold the fill value."""
        self._check_writable(self.name)
        shape, most = self.shape, self._node.maxshape
        if shape is None or most is None:
            raise WrongKindError(f"{self.name!r} has no cells, and no shape to change")
        if axis is not None:
            if not 0 <= axis < len(shape):
                raise InvalidInputError(f"{self.name!r} has {len(shape)} axes, and no axis {axis}")
            size = (*shape[:axis], int(size), *shape[axis + 1 :])
        wanted = tuple(int(n) for n in ((size,) if np.ndim(size) == 0 else size))
        if len(wanted) != len(shape) or any(b is not None and a > b for a, b in zip(wanted, most, strict=True)):
            raise WrongKindError(f"{self.name!r} may grow to {most}, not to {wanted}; `maxshape` sets that on creation")
        self._array().resize((*wanted, *self._node.type.inner))

    def flush(self) -> None:
        """Do nothing: what was assigned is stored."""

    def refresh(self) -> None:
        """See what others have stored meanwhile."""
        self._check_open()
        if isinstance(self._node.cells, Array):
            self._node.cells = self._node.cells.refresh()

    def __repr__(self) -> str:
        if not self:
            return "<Closed HDF5 dataset>"
        name = self.name.rpartition("/")[2]
        return f'<HDF5 dataset "{name}": shape {self.shape}, type "{self.dtype.str}">'

    def _parse(self, key: Any) -> Key:
        if self._node.empty:
            raise WrongKindError(f"{self.name!r} has no cells that could be selected")
        return parse_key(key, self._node.shape, self._node.type.base.names)

    def _read(self, parsed: Key) -> Any:
        if parsed.mask and self._node.type.inner:
            return np.asarray(self._node.cells[...])[parsed.items[0]]
        return self._node.cells[parsed.for_array()]

    def _nothing(self, key: Any) -> h5py.Empty:
        if key is Ellipsis or (isinstance(key, tuple) and key in ((), (Ellipsis,))):
            return h5py.Empty(self.dtype)
        raise SelectionError(f"{self.name!r} has no cells; it is read by [()] or [...]")

    def _array(self) -> Array:
        cells = self._node.cells
        if not isinstance(cells, Array):
            raise NotFoundError(f"{self.name!r} was deleted or moved; open it where it is")
        return cells

    def _make_room(self, needed: np.dtype[Any], fields: tuple[str, ...]) -> None:
        """Have the array written anew if texts are longer than there is room for."""
        stored = self._node.type.stored
        if len(fields) == 1:
            needed = np.dtype([(fields[0], needed)])
        wider = _wider(stored, needed)
        if wider != stored and isinstance(self._tree, ZarrTree):
            self._tree.widen(self._node, wider)

    def _check_direct(self, array: Any, *, writes: bool = False) -> None:
        if self._node.empty:
            raise WrongKindError(f"{self.name!r} has no cells")
        good = isinstance(array, np.ndarray) and array.flags.c_contiguous and (array.flags.writeable or not writes)
        if not good:
            raise WrongKindError("an array must be C-contiguous (and writable, to be read into); np.ascontiguousarray")


def _span(item: Any, length: int) -> tuple[int, int]:
    if isinstance(item, slice):
        start, stop, step = item.indices(length)
        if step != 1:
            raise SelectionError("chunks are iterated over without steps; leave the step out")
        return start, max(start, stop)
    return int(item), int(item) + 1


def _part(values: Any, fields: tuple[str, ...], kind: CellType) -> Any:
    """Return the values that go into some fields: of whole structures, those fields."""
    names = getattr(getattr(values, "dtype", None), "names", None)
    if fields and names is not None and set(fields) <= set(names):
        return values[fields[0]] if len(fields) == 1 and kind.base[fields[0]].names is None else values
    return values


def _fitted(cells: npt.NDArray[Any], parsed: Key, kind: CellType) -> npt.NDArray[Any]:
    """Return values in a shape that NumPy broadcasts to the selection; refuse what h5py would not."""
    inner, shape = kind.inner, parsed.shape + kind.inner
    if len(parsed.fields) == 1 and (sub := kind.base[parsed.fields[0]].subdtype) is not None:
        shape = parsed.shape + sub[1]
    if parsed.mask and not inner and cells.ndim and cells.size == parsed.shape[0]:
        return cells.reshape(parsed.shape)
    while cells.ndim > len(shape) and cells.shape[0] == 1:
        cells = cells[0]
    try:
        fits = np.broadcast_shapes(cells.shape, shape) == shape and cells.shape[-len(inner) or cells.ndim :] == inner
    except ValueError:
        fits = False
    if not fits:
        raise WrongKindError(f"values of shape {cells.shape} cannot be broadcast to cells of {shape}")
    return cells


def _wider(stored: np.dtype[Any], needed: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type with room for longer texts, twice what is needed, so that few arrays are written anew often."""
    if stored.names is not None and needed.names is not None:
        parts = [(n, _wider(stored[n], needed[n]) if n in needed.names else stored[n]) for n in stored.names]
        return np.dtype(parts)
    if stored.kind == "S" and needed.kind == "S" and needed.itemsize > stored.itemsize:
        return np.dtype(f"S{2 * needed.itemsize}")
    return stored
