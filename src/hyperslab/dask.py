"""Arrays of Dask written to a store, block by block, by the tasks that compute them. (`Array.to_dask` is the way back.)

Blocks are aligned to objects first: each object is written once, whole, by one task, and no two tasks meet. When all
are done, the store is asked whether every object is there, and the metadata says so from then on.

>>> import hyperslab as hs
>>> field = hs.save("memory://dask/field", np.arange(64.0).reshape(8, 8), chunks=(2, 2), shards=(4, 4))
>>> lazy = field.to_dask(chunks=(4, 8))
>>> float(lazy[3, ::2].sum().compute())
108.0
>>> doubled = hs.from_dask(lazy * 2, "memory://dask/doubled")
>>> float(doubled[7, 7])
126.0
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isnan, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.array import Array
from hyperslab.errors import InvalidInputError, StoreError, UnsupportedError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.zarr.array import ZarrArray, stored_objects
from hyperslab.formats.zarr.create import LayoutName
from hyperslab.new import create

__all__ = ["from_dask"]

Shape = tuple[int, ...]

# Blocks of Dask's that are this large become objects as they are; others are cut, or put together.
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 64 << 20


def from_dask(
    array: Any,
    url: Any,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    fill_value: Any = 0,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    compute: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Any:
    """Write an array of Dask as a Zarr array at `url`, in parallel, and return that; arguments as for `create`.

    Where neither `chunks` nor `shards` are given, blocks of Dask's that are equally large become one object each. Else
    the array is rechunked so that a block is a whole number of objects. With `compute=False` nothing is written yet:
    what is returned gives the written array when it is computed.

    >>> import dask.array as da
    >>> import hyperslab as hs
    >>> hs.from_dask(da.ones((40, 60), chunks=(20, 30)), "memory://doc/from_dask", chunks=(20, 30)).chunks
    (20, 30)
    """
    da = _dask_array()
    if not isinstance(array, da.Array):
        raise InvalidInputError(f"an array of Dask is written, got {type(array).__name__}; hs.save takes others")
    if any(isnan(n) for n in array.shape):
        raise InvalidInputError("lengths of the array's blocks are not known; call compute_chunk_sizes() on it first")
    if chunks is None and shards is None and layout == "default":
        shards = _shards_like(array.chunks, array.dtype)
    made = create(
        url, array.shape, array.dtype, chunks=chunks, shards=shards, layout=layout, fill_value=fill_value, dims=dims,
        attrs=attrs, overwrite=overwrite, storage_options=storage_options, session=session,
    )  # fmt: skip
    done = _write(array, made)
    return done.compute() if compute else done


def _shards_like(blocks: tuple[Shape, ...], dtype: np.dtype[Any]) -> Shape | None:
    """Return the shape of Dask's blocks, if objects can be like them: of one length along each axis, not too large.

    >>> _shards_like(((100, 100, 30), (400,)), np.dtype("f8"))
    (100, 400)
    """
    regular = all(set(axis[:-1]) <= {axis[0]} and axis[-1] <= axis[0] for axis in blocks if axis)
    shape = tuple(axis[0] if axis else 0 for axis in blocks)
    nbytes = prod(shape) * dtype.itemsize
    # Structures are not put into shards.
    fits = _LEAST_BYTES <= nbytes <= _MOST_BYTES and dtype.names is None
    return shape if blocks and regular and fits else None


def _write(array: Any, made: Array) -> Any:
    """Return what writes the array when it is computed, and then gives it."""
    from dask.delayed import delayed

    da = _dask_array()
    if not made.ndim or not made.size:
        return delayed(_write_whole)(array, made)
    aligned = array.rechunk(_aligned(array.chunks, made.source.layout.object_shape))
    counts = da.map_blocks(
        _write_block, aligned, target=made, dtype=np.int64, chunks=tuple((1,) * len(axis) for axis in aligned.chunks),
        meta=np.empty((0,) * made.ndim, np.int64),
    )  # fmt: skip
    return delayed(_finish)(counts.sum(), made)


def _aligned(blocks: tuple[Shape, ...], objects: Shape) -> tuple[Shape, ...]:
    """Return lengths of blocks that end where objects do, each about as long as those it is made of.

    >>> _aligned(((4, 4, 4, 1),), (3,))
    ((3, 3, 6, 1),)
    """
    return tuple(_aligned_axis(axis, size) for axis, size in zip(blocks, objects, strict=True))


def _aligned_axis(lengths: Shape, size: int) -> Shape:
    total = sum(lengths)
    ends = np.cumsum(lengths)[:-1] // size * size
    cuts = [0, *sorted({int(end) for end in ends if 0 < end < total}), total]
    return tuple(high - low for low, high in pairwise(cuts))


def _write_block(cells: npt.NDArray[Any], *, target: Array, block_info: Any = None) -> npt.NDArray[np.int64]:
    """Write one block; return how many cells that were, in a block of one."""
    box = tuple(slice(low, high) for low, high in block_info[0]["array-location"])
    target[box] = cells
    return np.full((1,) * cells.ndim, cells.size, np.int64)


def _write_whole(cells: Any, made: Array) -> Array:
    """Write an array of one block, or without cells."""
    made[...] = np.asarray(cells)
    return made


def _finish(cells: int, made: Array) -> Array:
    """Say that the array is complete, once all of it is seen to be stored."""
    layout = made.source.layout
    there = stored_objects(StoreWriter(made.session, made.store), made.source)
    missing = prod(layout.object_grid) - sum(
        all(at < n for at, n in zip(coords, layout.object_grid, strict=True)) for coords in there
    )
    if missing or int(cells) != made.size:
        raise StoreError(
            f"{missing} objects of {made.url!r} are not there, though all blocks were written; "
            "do the workers reach the same store?"
        )
    changes = ZarrArray(made.session, made.store, made.source, made.snapshot)
    changes.mark_complete()
    return Array(changes.source, made.store, made.session, writable=True, changes=changes)


def _dask_array() -> Any:
    try:
        import dask.array
    except ImportError:
        raise UnsupportedError("arrays of Dask need Dask: pip install 'hyperslab[dask]'") from None
    return dask.array
