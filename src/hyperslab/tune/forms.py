"""Forms of an array: how it could be cut into chunks and objects, and how well chunks of each size compress."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hyperslab.errors import InternalError, InvalidInputError
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.v3 import parse_node
from hyperslab.layout import Layout
from hyperslab.layout.told import TOLD_CHUNKS

__all__ = ["Form", "Shape", "Shrink", "form_of", "layout_of"]

Shape = tuple[int, ...]
# The codecs of arrays that are written by default.
_ENCODED = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}, {"name": "crc32c"}]
_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


@dataclass(frozen=True, slots=True)
class Form:
    """Cells of a chunk, and of an object that holds whole chunks; `plain` ones are not compressed, and read in part.

    >>> Form((8, 8), (64, 64)).chunks_per_object
    64
    """

    chunks: Shape
    objects: Shape
    plain: bool = False

    def __post_init__(self) -> None:
        if any(whole % part for whole, part in zip(self.objects, self.chunks, strict=True)):
            raise InvalidInputError(f"objects {self.objects} are not made of whole chunks {self.chunks}")

    @property
    def chunks_per_object(self) -> int:
        return prod(self.objects) // prod(self.chunks)

    @property
    def shards(self) -> Shape | None:
        """Cells of one object, if it holds several chunks."""
        return None if self.objects == self.chunks else self.objects

    def told(self, shape: Shape) -> bool:
        """Whether the metadata of an array of that shape, once it is written, say where chunks of its shards lie."""
        return self.shards is not None and self.object_count(shape) * self.chunks_per_object <= TOLD_CHUNKS

    def object_count(self, shape: Shape) -> int:
        """How many objects an array of that shape has."""
        return prod([-(-length // size) for length, size in zip(shape, self.objects, strict=True)])


@dataclass(frozen=True, slots=True)
class Shrink:
    """What share of its bytes a compressed chunk has, by the bytes of its cells: points (bytes, share), ascending.

    >>> round(Shrink(((1024, 0.5), (4096, 0.25))).of(2048), 6)
    0.375
    """

    points: tuple[tuple[int, float], ...] = ((1, 1.0),)

    def of(self, nbytes: int) -> float:
        """Return the share for a chunk of so many bytes; in between, straight against the logarithm."""
        sizes, shares = zip(*self.points, strict=True)
        return float(np.interp(np.log(max(1, nbytes)), np.log(sizes), shares))


def form_of(layout: Layout) -> Form:
    """Return the form that an array has now."""
    plain = layout.plain and layout.index is None
    if layout.table is not None or not layout.packed:
        # An HDF5 file: each chunk is reached by itself, as if it were an object.
        return Form(layout.chunks, layout.chunks, plain)
    return Form(layout.chunks, layout.object_shape, plain)


def layout_of(form: Form, shape: Shape, itemsize: int, name: str = "array") -> Layout:
    """Return the layout that an array of cells of that size would have in a form, as the planner needs it."""
    codecs: list[Any] = [_BYTES] if form.plain else [_BYTES, *_ENCODED]
    if form.shards is not None:
        config = {
            "chunk_shape": list(form.chunks),
            "codecs": codecs,
            "index_codecs": [_BYTES, {"name": "crc32c"}],
            "index_location": "start",
        }
        codecs = [{"name": "sharding_indexed", "configuration": config}]
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": f"r{8 * itemsize}",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(form.objects)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": [0] * itemsize,
        "codecs": codecs,
    }
    found = parse_node(document, name, name)
    if not isinstance(found, ArraySource):
        raise InternalError(f"{document} is not an array")
    return found.layout
