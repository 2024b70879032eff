"""What an HDF5 file says and Zarr has no words for, noted in one attribute of an array or group.

The attribute `_hyperslab_h5` is a JSON object. Of a group: `links` (soft and external ones by name), `ordered` (its
attributes are listed as they were made) and `datatype` (it is no group but a named type). Of an array: `form` (what
its cells are, see `celltypes`), `maxshape` and `empty` (it has no cells by its nature). Of both: `values`, the types of
attributes that JSON does not tell. Other programs see arrays, groups and attributes as usual.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from hyperslab.errors import MetadataError
from hyperslab.h5.celltypes import form_of, new_type, noted_type
from hyperslab.h5.failures import WrongKindError

__all__ = ["NOTES", "from_json", "note_of_type", "notes_of", "to_json", "type_of_note", "user_attributes"]

NOTES = "_hyperslab_h5"
_OBJECTS = ("links", "form", "values", "datatype")
# A note may say that a short text has a long type.
_MOST_BYTES = 64 << 20


def notes_of(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notes among some attributes; empty if there are none."""
    notes: Any = attrs.get(NOTES, {})
    parts = [notes, *(notes.get(name, {}) for name in _OBJECTS)] if isinstance(notes, dict) else [notes]
    for part in parts:
        if not isinstance(part, dict):
            raise MetadataError(f"the attribute {NOTES!r} holds {part!r:.80} where a JSON object should be")
    return dict(notes)


def user_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without the notes."""
    return {name: value for name, value in attrs.items() if name != NOTES}


def to_json(value: Any, dtype: Any = None, shape: Any = None) -> tuple[Any, dict[str, Any] | None]:
    """Return an attribute's value as JSON has it, and what must be noted to get it back; None if nothing.

    >>> to_json(np.float32(0.5)), to_json([1, 2]), to_json("m/s")
    ((0.5, {'dtype': '<f4'}), ([1, 2], None), ('m/s', None))
    """
    if isinstance(value, h5py.Empty):
        return None, {"empty": note_of_type(value.dtype)}
    if dtype is None and isinstance(value, str | bytes) and not isinstance(value, np.generic):
        return _decoded(value), None
    array = _array(value, dtype)
    if shape is not None:
        array = _reshaped(array, shape)
    if array.dtype.kind == "O":
        return np.asarray(np.frompyfunc(_decoded, 1, 1)(array)).tolist(), None
    if array.dtype.kind == "S":
        texts = np.asarray(np.frompyfunc(_decoded, 1, 1)(array.astype(object)))
        return texts.tolist(), {"dtype": array.dtype.str, **_shape_note(array)}
    if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        note = {} if array.dtype in (np.dtype("i8"), np.dtype("f8"), np.dtype("?")) else {"dtype": array.dtype.str}
        form = form_of(new_type(array.dtype))
        note |= _shape_note(array) | ({"form": form, "dtype": array.dtype.str} if form else {})
        return array.tolist(), note or None
    raw = np.ascontiguousarray(array).tobytes()
    return b64encode(raw).decode("ascii"), {"raw": note_of_type(array.dtype), "shape": list(array.shape)}


def from_json(value: Any, note: Mapping[str, Any] | None) -> Any:
    """Return an attribute's value as h5py gives it: NumPy's scalars and arrays, texts as `str`.

    >>> from_json(0.5, {"dtype": "<f4"}).dtype, from_json(["a", "b"], None)
    (dtype('float32'), array(['a', 'b'], dtype=object))
    """
    try:
        if note is not None:
            return _from_note(value, note)
        if isinstance(value, str | dict) or value is None:
            return value
        array = np.asarray(value)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        if note is None:
            return value  # lists of unlike things, which another program has written
        raise MetadataError(f"an attribute was noted as {note!r:.80}, which {value!r:.80} is not: {error}") from error
    if array.dtype.kind == "U":
        return np.array(value, dtype=object)
    return array[()] if array.dtype.kind in "biuf" else value


def note_of_type(dtype: Any) -> dict[str, Any]:
    """Return a type as JSON, so that `type_of_note` gives it back."""
    kind = new_type(dtype)
    form = form_of(kind)
    return {"descr": _descr(kind.stored), **({"form": form} if form else {})}


def type_of_note(note: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type that was noted."""
    try:
        return noted_type(note.get("form", {}), _dtype(note["descr"])).dtype
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetadataError(f"the noted type {note!r:.200} cannot be understood: {error}") from error


def _from_note(value: Any, note: Mapping[str, Any]) -> Any:
    if "empty" in note:
        return h5py.Empty(type_of_note(note["empty"]))
    if "raw" in note:
        dtype = type_of_note(note["raw"])
        return np.frombuffer(b64decode(value), dtype).reshape(note["shape"]).copy()[()]
    dtype = noted_type(note.get("form", {}), np.dtype(note.get("dtype", "f8"))).dtype
    if dtype.kind == "S":
        value = np.asarray(np.frompyfunc(_raw, 1, 1)(np.asarray(value, dtype=object)))
        if value.size * dtype.itemsize > _MOST_BYTES:
            raise ValueError(f"it would take more than {_MOST_BYTES} bytes")
    array = np.asarray(value, dtype=dtype)
    return (array.reshape(note["shape"]) if "shape" in note else array)[()]


def _array(value: Any, dtype: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value) if dtype is None else np.asarray(value, dtype=dtype)
    if array.dtype.kind in "SU" and not isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value, dtype=object)
    if array.dtype.kind == "O" and not all(isinstance(each, str | bytes) for each in array.ravel().tolist()):
        raise WrongKindError(f"an attribute holds numbers, texts or arrays of them, not {value!r:.80}")
    if array.dtype.kind in "UMm" and not h5py.check_opaque_dtype(array.dtype):
        raise WrongKindError(f"h5py has no attributes of NumPy's type {array.dtype}; use `str` objects or numbers")
    return array


def _reshaped(array: np.ndarray[Any, Any], shape: Any) -> np.ndarray[Any, Any]:
    try:
        return array.reshape(shape)
    except ValueError as error:
        raise WrongKindError(f"the attribute's value of shape {array.shape} has another size than {shape}") from error


def _shape_note(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return what an empty list does not tell."""
    return {} if array.size else {"shape": list(array.shape), "dtype": array.dtype.str}


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else bytes(text).decode("utf-8", "surrogateescape")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _descr(dtype: np.dtype[Any]) -> Any:
    return dtype.str if dtype.names is None else [[name, _descr(dtype[name])] for name in dtype.names]


def _dtype(descr: Any) -> np.dtype[Any]:
    if isinstance(descr, str):
        return np.dtype(descr)
    return np.dtype([(name, _dtype(inner)) for name, inner in descr])
