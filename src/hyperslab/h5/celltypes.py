"""The type of a dataset's cells: what h5py calls it, and how an array stores it.

h5py has types that NumPy marks only by metadata (texts of any length, enums, cells that are arrays). Arrays of
Hyperslab store texts as bytes of one length, enums as integers, and cells that are arrays as further axes; what was
meant is noted beside the array, and undone when cells are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError
from hyperslab.formats.hdf5.datatype import Datatype
from hyperslab.h5.failures import WrongKindError

__all__ = ["CellType", "form_of", "hdf5_type", "new_type", "noted_type", "text_type"]

DType = np.dtype[Any]
Cells = npt.NDArray[Any]
Form = Mapping[str, Any]

# Texts whose lengths are not known yet have room for so many bytes; longer ones make the array be written anew.
_TEXT_BYTES = 64


@dataclass(frozen=True, slots=True)
class CellType:
    """`dtype` as h5py says it, `inner` the axes of cells that are arrays, `stored` the type of what is stored."""

    dtype: DType
    stored: DType
    inner: tuple[int, ...] = ()
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", not self.inner and not _is_marked(self.dtype))

    @property
    def base(self) -> DType:
        """The type of one cell of what is read: without the axes of cells that are arrays."""
        return self.dtype if self.dtype.subdtype is None else self.dtype.subdtype[0]

    def shown(self, cells: Any, fields: tuple[str, ...] = ()) -> Any:
        """Return cells as h5py gives them, from cells as they were read."""
        dtype = self.base
        if len(fields) == 1:
            dtype = dtype[fields[0]]
        elif fields:
            dtype = np.dtype([(name, dtype[name]) for name in fields])
            # Without gaps where the other fields were.
            cells = np.asarray(cells).astype(dtype)[()] if not _is_marked(dtype) else cells
        if not _is_marked(dtype):
            return cells
        shown = _shown(np.asarray(cells), dtype)
        return shown if isinstance(cells, np.ndarray) else shown[()]

    def kept(self, values: Any, fields: tuple[str, ...] = ()) -> Cells:
        """Return values as they are stored; texts may come out longer than there is room for."""
        if len(fields) == 1:
            return _kept(values, self.base[fields[0]])
        if fields:
            names = list(fields)
            return _kept(values, np.dtype([(name, self.base[name]) for name in names]))
        return _kept(values, self.base)


def new_type(dtype: Any, values: Cells | None = None) -> CellType:
    """Return how cells of a type that h5py takes are stored; `values`, already as they are stored, must fit in.

    >>> new_type(h5py.string_dtype()).stored, new_type("(3,)f8").inner
    (dtype('S64'), (3,))
    """
    dtype = np.dtype(dtype)
    base, inner = (dtype, ()) if dtype.subdtype is None else dtype.subdtype
    stored = _storage(base, None if values is None else values.dtype)
    return CellType(dtype, stored, inner)


def noted_type(form: Form, stored: DType) -> CellType:
    """Return the type of cells that were stored with a note on what they are."""
    try:
        base = _restored(form, stored)
        inner = tuple(int(length) for length in form.get("cell", ()))
        return CellType(base if not inner else np.dtype((base, inner)), stored, inner)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise MetadataError(f"the note on the type of cells, {form!r:.200}, cannot be understood: {error}") from error


def form_of(kind: CellType) -> dict[str, Any]:
    """Return the note that says what stored cells are; empty if they are what they seem.

    >>> form_of(new_type(h5py.string_dtype("ascii")))
    {'string': 'ascii'}
    """
    form = _form(kind.base)
    return {**form, "cell": list(kind.inner)} if kind.inner else form


def hdf5_type(datatype: Datatype, stored: DType) -> CellType:
    """Return the type of the cells of an HDF5 file's dataset."""
    inner: tuple[int, ...] = ()
    if datatype.kind == "array" and datatype.dtype.subdtype is not None:
        inner = datatype.dtype.subdtype[1]
    return CellType(_hdf5_dtype(datatype), stored, inner)


def text_type(encoding: str, length: int | None = None) -> DType:
    """Return h5py's type of texts, of any length or of one."""
    dtype: DType = h5py.string_dtype(encoding, length)
    return dtype


def _enum_type(members: Mapping[str, int], base: DType) -> DType:
    dtype: DType = h5py.enum_dtype(dict(members), basetype=base)
    return dtype


def _is_marked(dtype: DType) -> bool:
    """Whether a type says more than NumPy knows, in itself or in one of its fields."""
    if dtype.kind == "O" or dtype.metadata:
        return True
    return any(_is_marked(dtype[name]) for name in dtype.names or ())


def _is_text(dtype: DType) -> bool:
    """Whether cells are texts of any length."""
    info = h5py.check_string_dtype(dtype)
    return info is not None and info.length is None


def _shown(cells: Cells, dtype: DType) -> Cells:
    if dtype.subdtype is not None:
        return _shown(cells, dtype.subdtype[0])
    if dtype.names is not None:
        out = np.empty(cells.shape, dtype)
        for name in dtype.names:
            out[name] = _shown(cells[name], dtype[name])
        return out
    if _is_text(dtype):
        texts = np.empty(cells.size, dtype)
        texts[:] = [_bytes(each, "utf-8") for each in cells.ravel().tolist()]
        return texts.reshape(cells.shape)
    return cells if dtype.kind == "O" else cells.astype(dtype, copy=False).view(dtype)


def _bytes(text: Any, encoding: str) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode(encoding, "surrogateescape")


def _kept(values: Any, dtype: DType) -> Cells:
    if dtype.names is not None:
        given = values if isinstance(values, np.ndarray) else np.array(values, dtype)
        if given.dtype.names is None:
            given = given.astype(dtype)
        parts = [_kept(given[name], dtype[name]) for name in dtype.names]
        out = np.empty(given.shape, [(name, part.dtype) for name, part in zip(dtype.names, parts, strict=True)])
        for name, part in zip(dtype.names, parts, strict=True):
            out[name] = part
        return out
    if isinstance(values, np.ndarray | np.generic) and values.dtype.kind == "U":
        raise WrongKindError(
            f"h5py takes no texts of NumPy's type {values.dtype}; make them `str` objects or bytes (astype('S'))"
        )
    info = h5py.check_string_dtype(dtype)
    if info is not None and (dtype.kind == "O" or dtype.metadata):
        return _encoded(values, info.encoding, info.length)
    try:
        return np.asarray(values, dtype=dtype)
    except OverflowError as error:
        raise WrongKindError(f"{values!r:.80} does not fit cells of type {dtype}: {error}") from error


def _encoded(values: Any, encoding: str, length: int | None) -> Cells:
    """Return texts as bytes of one length."""
    given = np.asarray(values, dtype=object) if not isinstance(values, np.ndarray) else values
    if given.dtype.kind not in "OS":
        raise WrongKindError(f"the dataset holds texts; {values!r:.80} holds none")
    raw = [each if isinstance(each, bytes) else _text(each).encode(encoding) for each in given.ravel().tolist()]
    if any(b"\0" in each.rstrip(b"\0") for each in raw):
        raise WrongKindError("a text holds a NUL character, behind which it would be cut off; leave it out")
    cells = np.array(raw, dtype="S") if raw else np.empty(0, "S1")
    if length is not None:
        cells = cells.astype(f"S{length}")
    return cells.astype(f"S{max(1, cells.dtype.itemsize)}").reshape(given.shape)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongKindError(f"the dataset holds texts, and {value!r:.80} is none")
    return value


def _storage(dtype: DType, needed: DType | None) -> DType:
    """Return the type that is stored for one of h5py's, wide enough for values of a stored type."""
    if dtype.names is not None:
        parts = [(name, _storage(dtype[name], None if needed is None else needed[name])) for name in dtype.names]
        return np.dtype(parts)
    if _is_text(dtype):
        return np.dtype(f"S{_TEXT_BYTES}") if needed is None else np.dtype(f"S{max(1, needed.itemsize)}")
    if dtype.kind == "U":
        raise WrongKindError(f"h5py stores no texts of NumPy's type {dtype}; use h5py.string_dtype()")
    if dtype.hasobject:
        raise WrongKindError(
            f"cells of type {dtype} ({h5py.check_dtype(vlen=dtype) or 'references'}) have no form in Zarr; "
            "use numbers, texts or structures of them"
        )
    return np.dtype(dtype.str) if dtype.metadata else dtype


def _form(dtype: DType) -> dict[str, Any]:
    if dtype.names is not None:
        fields = {name: form for name in dtype.names if (form := _form(dtype[name]))}
        return {"fields": fields} if fields else {}
    if (members := h5py.check_enum_dtype(dtype)) is not None:
        return {"enum": {name: int(value) for name, value in members.items()}}
    info = h5py.check_string_dtype(dtype) if dtype.metadata else None
    if info is not None:
        return {"string": info.encoding} | ({} if info.length is None else {"length": info.length})
    return {"opaque": True} if h5py.check_opaque_dtype(dtype) else {}


def _restored(form: Form, stored: DType) -> DType:
    if "fields" in form and stored.names is not None:
        return np.dtype([(name, _restored(form["fields"].get(name, {}), stored[name])) for name in stored.names])
    if "enum" in form:
        return _enum_type({str(name): int(value) for name, value in form["enum"].items()}, stored)
    if "string" in form:
        if stored.kind != "S":
            raise ValueError(f"texts are stored as bytes, and these as {stored}")
        return text_type(form["string"], form.get("length"))
    opaque: DType = h5py.opaque_dtype(stored) if form.get("opaque") else stored
    return opaque


def _hdf5_dtype(datatype: Datatype) -> DType:
    match datatype.kind:
        case "vlen_string":
            return text_type(datatype.charset)
        case "string" if datatype.charset == "utf-8":
            return text_type("utf-8", datatype.nbytes)
        case "vlen" if datatype.base is not None:
            sequences: DType = h5py.vlen_dtype(_hdf5_dtype(datatype.base))
            return sequences
        case "enum" if datatype.dtype.kind != "b":
            return _enum_type(dict(datatype.members), datatype.dtype)
        case "array" if datatype.base is not None:
            return np.dtype((_hdf5_dtype(datatype.base), datatype.shape))
        case "compound":
            parts = [_hdf5_dtype(each.type) for each in datatype.fields]
            if not any(_is_marked(part) for part in parts):
                return datatype.result
            return np.dtype([(each.name, part) for each, part in zip(datatype.fields, parts, strict=True)])
    return datatype.dtype
