"""How a sparse tensor is cut into blocks and how their cells are written: what the header of such a tensor says."""

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.tensors.layouts.axes import folded_shape
from hyperslab.tensors.layouts.encoded import INDEX_COLUMNS
from hyperslab.tensors.values import Header

__all__ = ["MOST_DIRECT", "MOST_PALETTE", "MOST_VOLUME", "SYMBOLS", "Blocks", "blocks_of", "densities", "inner_strides"]

# A place within a block is below this, so that 46 bits are left open at most.
MOST_VOLUME = 1 << 48
MOST_PALETTE = 1024
MOST_DIRECT = 8
# Distances have so many symbols.
SYMBOLS = 8 + 4 * 46
# With so many, all blocks have the same codes.
_MOST_OCTAVES = 64
# A plane whose bytes are all the same.
_BYTE = re.compile("=[0-9a-f]{2}")

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a tensor is cut, and how its symbols are written. All of it is in the header."""

    shape: tuple[int, ...]
    block: tuple[int, ...]
    inner: tuple[int, ...]
    nnz: int
    octaves: int
    palette: Array | None
    direct: int
    codes: dict[int, str]
    planes: tuple[str, ...]

    @property
    def volume(self) -> int:
        return prod(self.block)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*INDEX_COLUMNS[: len(self.shape)], "count", "nbytes")

    @property
    def escape_bits(self) -> int:
        used = 0 if self.palette is None else len(self.palette)
        return (used - 1).bit_length() if used > self.direct else 0

    def values_of(self, codes: npt.NDArray[np.uint16], id_: str) -> Array:
        """Return the values of the palette that codes stand for."""
        if self.palette is None or int(codes.max(initial=0)) >= len(self.palette):
            raise IntegrityError(f"a block of tensor {id_!r} names a value that is not in its palette")
        return self.palette.take(codes)

    @property
    def value_bits(self) -> int:
        return 0 if self.palette is None else max(1, (len(self.palette) - 1).bit_length())


def blocks_of(header: Header) -> Blocks:
    plan: Blocks | None = header.derived.get("blocks")
    if plan is None:
        plan = header.derived["blocks"] = _parsed(header)
    return plan


def _parsed(header: Header) -> Blocks:
    given, shape = header.parameters, folded_shape(header.shape)
    try:
        palette = given["palette"]
        plan = Blocks(
            shape,
            tuple(int(n) for n in given["block"]),
            tuple(int(n) for n in given["inner"]),
            int(given["nnz"]),
            int(given["octaves"]),
            None if palette is None else np.frombuffer(bytes.fromhex(palette), header.dtype),
            int(given["direct"]),
            {int(table): str(text) for table, text in given["codes"].items()},
            tuple(str(text) for text in given["planes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetadataError(f"the header of tensor {header.id!r} does not describe blocks: {error}") from error
    planes = 0 if plan.palette is not None else header.dtype.itemsize
    if (
        sorted(plan.inner) != list(range(len(shape)))
        or len(plan.block) != len(shape)
        or min(plan.block) < 1
        or not 0 < plan.volume < MOST_VOLUME
        or not 1 <= plan.direct <= MOST_DIRECT
        or (plan.palette is not None and not plan.direct <= len(plan.palette) <= MOST_PALETTE)
        or len(plan.planes) != planes
        or not 1 <= plan.octaves <= _MOST_OCTAVES
        or any(text.startswith("=") and _BYTE.fullmatch(text) is None for text in plan.planes)
    ):
        raise MetadataError(f"the header of tensor {header.id!r} describes blocks that cannot be")
    return plan


def inner_strides(block: tuple[int, ...], inner: tuple[int, ...]) -> Ints:
    """Return by how many places one step along each axis of a block moves on.

    >>> inner_strides((2, 3, 4), (0, 2, 1)).tolist()
    [12, 1, 3]
    """
    strides = np.zeros(len(block), np.int64)
    for place, axis in enumerate(inner):
        strides[axis] = prod(block[later] for later in inner[place + 1 :])
    return strides


def densities(volume: int, counts: Ints, octaves: int) -> Ints:
    """Return which of the tensor's codes blocks have: by how many cells there are for each that is stored."""
    ratio = np.maximum(volume // np.maximum(counts, 1), 1)
    return np.asarray(np.frexp(ratio.astype(np.float64))[1] // octaves, np.int64)
