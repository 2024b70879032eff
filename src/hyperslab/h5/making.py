"""What `create_dataset` is asked for, checked as h5py checks it, and what of it an array of Hyperslab takes."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py.h5py_warnings import H5pyDeprecationWarning

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.h5.celltypes import CellType, new_type, text_type
from hyperslab.h5.failures import WrongKindError
from hyperslab.h5.handles import Datatype

__all__ = ["Recipe", "recipe_of", "shape_of"]

Shape = tuple[int, ...]

# Settings of HDF5's storage that change nothing here: what is stored is compressed and has checksums anyway.
_NO_EFFECT = frozenset(
    ["shuffle", "fletcher32", "track_times", "track_order", "rdcc_nslots", "rdcc_nbytes", "rdcc_w0",
     "allow_unknown_filter", "virtual_prefix", "efile_prefix"]
)  # fmt: skip
_UNSUPPORTED = ("external", "scaleoffset", "dcpl", "dapl")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A dataset to be created: shape, type, values as they are stored (None: all fill), notes and settings."""

    shape: Shape
    type: CellType
    values: npt.NDArray[Any] | None
    notes: dict[str, Any]
    settings: dict[str, Any]


def recipe_of(shape: Any, dtype: Any, data: Any, options: Mapping[str, Any]) -> Recipe:
    """Return what is to be created for the arguments of `create_dataset`.

    >>> recipe_of((4, 5), "f4", None, {"maxshape": (None, 5)}).notes
    {'maxshape': [None, 5]}
    """
    _check_options(options)
    dtype = dtype.dtype if isinstance(dtype, Datatype) else None if dtype is None else np.dtype(dtype)
    if isinstance(data, h5py.Empty) or (data is None and shape is None):
        return _empty(data, dtype, options)
    kind, values = _cells(shape, dtype, data)
    lengths = shape_of(shape) if shape is not None else _outer(values, kind)
    if values is not None:
        values = _reshaped(values, lengths, kind)
    most = _maxshape(options.get("maxshape"), lengths)
    settings: dict[str, Any] = {"chunks": _chunks(options.get("chunks"), lengths, most, kind)}
    if values is None or settings["chunks"] is not None:
        # Filled later, part by part: then each part should not have to be put into a large object.
        settings["shards"] = False
    if options.get("fillvalue") is not None:
        settings["fill_value"] = _fill(options["fillvalue"], kind)
    return Recipe(lengths, kind, values, {"maxshape": list(most)}, settings)


def shape_of(shape: Any) -> Shape:
    """Return a shape that may be given as one length."""
    if isinstance(shape, int | np.integer):
        return (int(shape),)
    try:
        return tuple(int(length) for length in shape)
    except (TypeError, ValueError) as error:
        raise WrongKindError(f"a shape is a tuple of lengths, not {shape!r:.80}") from error


def _check_options(options: Mapping[str, Any]) -> None:
    known = {"chunks", "maxshape", "fillvalue", "compression", "compression_opts", "fill_time", *_NO_EFFECT}
    for name, value in options.items():
        if name in _UNSUPPORTED:
            if value is not None:
                raise UnsupportedError(f"create_dataset({name}=…) has no equal in Zarr; leave it out")
        elif name not in known:
            raise WrongKindError(f"create_dataset takes no argument {name!r}")
    if options.get("fill_time", "ifset") not in ("ifset", "alloc", "never", None):
        raise InvalidInputError(f"fill_time is 'ifset', 'alloc' or 'never', not {options['fill_time']!r}")
    if not isinstance(options.get("track_times"), bool | None):
        raise WrongKindError(f"track_times is True or False, not {options['track_times']!r}")
    _check_compression(options.get("compression"), options.get("compression_opts"))


def _check_compression(name: Any, level: Any) -> None:
    """Refuse what h5py refuses. What is asked for is a wish: Zarr arrays of ours are compressed by zstd."""
    if isinstance(name, int) and not isinstance(name, bool):
        if not 0 <= name < 10:
            what = "Invalid filter" if name < 0 else "Unknown compression"
            raise InvalidInputError(f"{what}: compression as a number is gzip's level, 0 to 9, not {name}")
        return
    if name not in (None, True, False, "gzip", "lzf", "szip"):
        raise InvalidInputError(f"Unknown compression: known are 'gzip', 'lzf' and 'szip', not {name!r:.80}")
    if name == "lzf" and level is not None:
        raise InvalidInputError("lzf has no levels; leave compression_opts out")
    if name == "gzip" and level is not None and level not in range(10):
        raise InvalidInputError(f"gzip's level is 0 to 9, not {level!r:.80}")


def _empty(data: Any, dtype: np.dtype[Any] | None, options: Mapping[str, Any]) -> Recipe:
    if isinstance(data, h5py.Empty):
        dtype = data.dtype
    if dtype is None:
        raise WrongKindError("one of data, shape or dtype must be given")
    if any(options.get(name) for name in ("chunks", "maxshape", "compression")):
        raise WrongKindError("Empty datasets have no cells, so neither chunks nor shapes to grow to")
    return Recipe((), new_type(dtype), None, {"empty": True}, {})


def _cells(shape: Any, dtype: np.dtype[Any] | None, data: Any) -> tuple[CellType, npt.NDArray[Any] | None]:
    """Return the type of a new dataset, and its values as they are stored."""
    if data is None:
        if dtype is None:
            warnings.warn(
                "create_dataset without dtype makes cells of float32; give a dtype",
                H5pyDeprecationWarning,
                stacklevel=5,
            )
            dtype = np.dtype("f4")
        return new_type(dtype), None
    if dtype is None:
        dtype = _guessed(data)
    values = new_type(dtype).kept(data)
    return new_type(dtype, values), values


def _guessed(data: Any) -> np.dtype[Any]:
    """Return the type that h5py gives to data: texts become texts of any length."""
    known: np.dtype[Any] | None = getattr(data, "dtype", None)
    if known is not None and (known.kind != "O" or not isinstance(data, np.ndarray)):
        return known
    cells: npt.NDArray[Any] = np.asarray(data)
    if cells.dtype.kind in "SUO":
        items = np.asarray(data, dtype=object).ravel().tolist()
        if items and all(isinstance(each, bytes) for each in items):
            return text_type("ascii")
        if items and all(isinstance(each, str) for each in items):
            return text_type("utf-8")
        if cells.dtype.kind == "O" and cells.dtype.metadata:
            return cells.dtype
        raise WrongKindError(f"{data!r:.80} holds Python objects that h5py has no type for; give a dtype")
    return cells.dtype


def _outer(values: npt.NDArray[Any] | None, kind: CellType) -> Shape:
    shape = () if values is None else values.shape
    return shape[: len(shape) - len(kind.inner)] if kind.inner else shape


def _reshaped(values: npt.NDArray[Any], shape: Shape, kind: CellType) -> npt.NDArray[Any]:
    if prod(shape + kind.inner) != values.size:
        raise InvalidInputError(f"data of shape {values.shape} does not fill a dataset of shape {shape}")
    return values.reshape(shape + kind.inner)


def _maxshape(given: Any, shape: Shape) -> tuple[int | None, ...]:
    if given is None or (isinstance(given, tuple) and not given):
        return shape
    most = (given,) if isinstance(given, int | np.integer) else tuple(given)
    if len(most) != len(shape) or any(m is not None and m < n for m, n in zip(most, shape, strict=True)):
        raise InvalidInputError(f"maxshape {most} does not allow the shape {shape}")
    return tuple(None if length is None else int(length) for length in most)


def _chunks(given: Any, shape: Shape, most: tuple[int | None, ...], kind: CellType) -> Shape | None:
    """Return the chunks that were asked for, with the axes of cells that are arrays; None to have them chosen."""
    if given is None or given is True:
        if given is True and not shape:
            raise WrongKindError("a dataset without axes has no chunks")
        return None
    if given is False:
        if most != shape:
            raise InvalidInputError("a dataset that may grow is stored in chunks; leave chunks=False out")
        return None
    if not shape:
        raise WrongKindError("a dataset without axes has no chunks")
    chunks = shape_of(given)
    if len(chunks) != len(shape) or any(
        limit is not None and size > limit for size, limit in zip(chunks, most, strict=True)
    ):
        raise InvalidInputError(f"chunks {chunks} do not fit a dataset of shape {shape}")
    return chunks + kind.inner


def _fill(value: Any, kind: CellType) -> Any:
    try:
        if kind.base.names is not None and np.ndim(value) == 0 and not hasattr(value, "dtype"):
            raise TypeError("a structure needs a value for each field")
        return kind.kept(value)[()]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"fillvalue {value!r:.80} is no cell of type {kind.dtype}: {error}") from error
