"""NumPy's `.npy` files, read in place."""

import ast
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.source import ArraySource, MetadataReader
from hyperslab.formats.zarr.metadata import lengths, shown
from hyperslab.layout.layout import Layout, SingleKey

__all__ = ["MAGIC", "open_npy"]

FORMAT = "npy"
MAGIC = b"\x93NUMPY"

_MAX_HEADER_BYTES = 64 << 10
# Nearly all headers are shorter: one request.
_FIRST_BYTES = 1024
_MAX_NESTING = 32


def open_npy(reader: MetadataReader, url: str, path: str) -> ArraySource | None:
    """Return the array in the file `path`, None if there is no such object or it is no `.npy`."""
    head = reader.get_range(path, 0, _FIRST_BYTES)
    if head is None or not head.startswith(MAGIC):
        return None
    length_at, base = _header_place(head, path)
    if base > len(head):
        head = reader.get_range(path, 0, base) or b""
    if len(head) < base:
        raise IntegrityError(f"{path!r} is cut off: its header has {base} bytes, the file {len(head)}")
    layout = _layout(_header(head[length_at:base], head[6], path), path, base)
    promised, found = base + layout.nbytes, reader.size(path)
    if found is not None and found < promised:
        raise IntegrityError(f"{path!r} is cut off: it has {found} bytes, its header promises {promised}")
    return ArraySource(url, path, FORMAT, layout, {})


def _header_place(head: bytes, path: str) -> tuple[int, int]:
    """Return where the header's text starts, and where the cells do."""
    if len(head) < 12:
        raise IntegrityError(f"{path!r} is cut off within its header")
    if head[6] not in (1, 2, 3) or head[7] != 0:
        raise UnsupportedError(f"{path!r} has version {head[6]}.{head[7]} of .npy; supported are 1.0 to 3.0")
    width = 2 if head[6] == 1 else 4
    nbytes = int.from_bytes(head[8 : 8 + width], "little")
    if nbytes > _MAX_HEADER_BYTES:
        raise MetadataError(f"{path!r} has a header of {nbytes} bytes; at most {_MAX_HEADER_BYTES} are read")
    return 8 + width, 8 + width + nbytes


def _header(text: bytes, version: int, path: str) -> dict[str, Any]:
    """Return the header's fields. It is a Python literal, and read as nothing more than that."""
    try:
        decoded = text.decode("utf-8" if version == 3 else "latin-1")
        _check_nesting(decoded)
        header = ast.literal_eval(decoded)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise MetadataError(f"the header of {path!r} is no literal: {shown(str(error))}") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise MetadataError(f"the header of {path!r} is {shown(header)}; expected descr, fortran_order, shape")
    return header


def _check_nesting(text: str) -> None:
    """Refuse what would nest deep in the parser: brackets, and chains of signs."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MAX_NESTING or "--" in text or "++" in text or "~" in text:
        raise ValueError("it is nested too deep")


def _layout(header: dict[str, Any], path: str, base: int) -> Layout:
    if not isinstance(header["shape"], tuple) or not isinstance(header["fortran_order"], bool):
        raise MetadataError(f"the header of {path!r} is {shown(header)}; expected a tuple and a bool")
    shape = lengths(list(header["shape"]), "shape", least=0)
    dtype = _dtype(header["descr"], path)
    # An empty axis still needs chunks of some length; they are never read.
    chunks = tuple(max(1, length) for length in shape)
    if (nbytes := prod(chunks) * dtype.itemsize) >= 2**63:
        raise MetadataError(f"{path!r} promises {nbytes} bytes, more than any file has")
    return Layout(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        keys=SingleKey(path),
        fill=np.zeros((), dtype),
        stored=dtype,
        order=tuple(range(len(shape)))[:: -1 if header["fortran_order"] else 1],
        base=base,
        sparse=False,
    )


def _dtype(descr: Any, path: str) -> np.dtype[np.generic]:
    try:
        dtype = numpy_format.descr_to_dtype(descr)
    except Exception as error:  # NumPy raises what it happens to stumble on
        raise MetadataError(f"the header of {path!r} has the dtype {shown(descr)}: {error}") from error
    if dtype.hasobject:
        raise UnsupportedError(f"{path!r} holds pickled Python objects; nothing is ever unpickled")
    if not dtype.itemsize or dtype.subdtype is not None:
        raise UnsupportedError(f"{path!r} has cells of type {shown(descr)}, which are not supported")
    return dtype  # type: ignore[no-any-return,unused-ignore]
