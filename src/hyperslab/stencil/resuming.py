"""Going on where it was: an output that was begun carries a fingerprint of what it is made of.

The objects of a Zarr array are whole or absent, so those that are there need not be made again, if they are the same
function's of the same inputs. Until all are there the array's seal holds the fingerprint; a run with another one is
refused. Several processes may begin at once (ranks of one launch): who comes second goes on with what the first made.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from hyperslab.errors import ConflictError, InvalidInputError
from hyperslab.execute import Snapshot
from hyperslab.formats.copying import Place
from hyperslab.formats.source import ArraySource, join
from hyperslab.formats.zarr.array import ZarrArray, stored_objects
from hyperslab.formats.zarr.create import NewArray
from hyperslab.formats.zarr.documents import fetch_document
from hyperslab.formats.zarr.seal import Seal, check_seal
from hyperslab.formats.zarr.v3 import parse_node

__all__ = ["Begun", "begin", "end_if_whole", "fingerprint"]

Shape = tuple[int, ...]

# What is known by its name.
_NAMED = (type, BuiltinFunctionType, FunctionType, ModuleType, np.ufunc)
# Functions that a function calls are looked into as deep as this.
_DEPTH = 8
# And what objects hold, as deep as this.
_HELD_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Begun:
    """An output that is to be filled, but for the objects at the places `done`."""

    array: ZarrArray
    done: frozenset[Shape]

    @property
    def done_bytes(self) -> int:
        """Bytes of the cells that are there."""
        layout = self.array.source.layout
        sides = [zip(coords, layout.object_shape, layout.shape, strict=True) for coords in self.done]
        cells = sum([prod([max(0, min(n, end - at * n)) for at, n, end in each]) for each in sides])
        return cells * layout.dtype.itemsize


def begin(place: Place, new: NewArray, mark: str, *, overwrite: bool) -> Begun:
    """Create an output, or return the one that an earlier run of the same began."""
    begun = None if overwrite else _begun(place, mark)
    if begun is not None:
        return begun
    try:
        return Begun(place.create(new, overwrite=overwrite, seal=Seal(copying=mark)), frozenset())
    except (ConflictError, InvalidInputError):
        # Another rank may have been faster; it may have stored objects since it was looked for.
        begun = None if overwrite else _begun(place, mark)
        if begun is None:
            raise
        return begun


def _begun(place: Place, mark: str) -> Begun | None:
    key = join(place.path, "zarr.json")
    found = fetch_document(place.writer(), key)
    if found is None:
        return None
    document = found[0]
    seal = check_seal(document, key)
    if seal is None or seal.copying is None:
        raise InvalidInputError(
            f"{place.url!r} is stored already; pass overwrite=True to replace it with all that it holds"
        )
    source = parse_node(document, place.url, place.path)
    if seal.copying != mark or not isinstance(source, ArraySource):
        raise InvalidInputError(
            f"{place.url!r} holds something unfinished, but not of this function, these inputs and settings; "
            "pass overwrite=True to replace it"
        )
    array = ZarrArray(place.session, place.store, source, Snapshot(), document)
    return Begun(array, frozenset(stored_objects(place.writer(), source)))


def end_if_whole(array: ZarrArray) -> bool:
    """Say in the metadata that all is there, if it is; return whether it is."""
    layout = array.source.layout
    grid = layout.object_grid
    there = stored_objects(array.writer(), array.source)
    whole = sum(all([at < n for at, n in zip(coords, grid, strict=True)]) for coords in there) == prod(grid)
    if whole:
        array.mark_complete()
    return whole


def fingerprint(function: Callable[..., Any], inputs: Sequence[Any], settings: Sequence[Any]) -> str:
    """Return what tells one computation from another: the function with all it refers to, inputs, settings.

    It is the same in every process. Of objects other than numbers, texts, arrays and functions what they
    hold by name counts, and their type.

    >>> one, same, other = lambda s: s(0) + 1, lambda s: s(0) + 1, lambda s: s(0) + 2
    >>> fingerprint(one, ["a"], []) == fingerprint(same, ["a"], [])
    True
    >>> fingerprint(one, ["a"], []) == fingerprint(other, ["a"], [])
    False
    """
    digest = hashlib.sha256()
    for each in _facts(function, _DEPTH):
        # With its length: 1 and 23 are not 12 and 3.
        digest.update(b"%d:" % len(each) + each)
    for item in (*inputs, *settings):
        digest.update(repr(item).encode() + b"\0")
    return "apply-" + digest.hexdigest()[:24]


def _facts(value: Any, depth: int) -> list[bytes]:
    """Return what a function is made of, or what a value is, as bytes."""
    function = getattr(value, "py_func", value)
    if isinstance(function, FunctionType) and depth:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        names = _names(function.__code__)
        used = [function.__globals__[name] for name in names if name in function.__globals__]
        rest = [*cells, *used, function.__defaults__, function.__kwdefaults__]
        return [*_code(function.__code__), *[fact for each in rest for fact in _facts(each, depth - 1)]]
    if isinstance(value, partial):
        return [
            b"partial",
            *[fact for each in (value.func, value.args, value.keywords) for fact in _facts(each, depth)],
        ]
    if isinstance(value, MethodType):
        return [b"method", *_facts(value.__func__, depth), *_facts(value.__self__, depth)]
    if isinstance(value, np.ndarray):
        return [str((value.dtype, value.shape)).encode(), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, _NAMED):
        return [f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value))}".encode()]
    if isinstance(value, tuple | list):
        return [type(value).__name__.encode(), *[fact for each in value for fact in _facts(each, depth)]]
    if isinstance(value, dict):
        return [b"dict", *[fact for pair in value.items() for fact in _facts(pair, depth)]]
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return [repr(value).encode()]
    # What others are made of cannot be told, but for what they hold by name.
    kind, deeper = type(value), min(depth, _HELD_DEPTH) - 1
    call = _facts(kind.__call__, deeper) if depth and callable(value) else []
    held = _facts(vars(value), deeper) if depth and hasattr(value, "__dict__") else []
    return [f"{kind.__module__}.{kind.__qualname__}".encode(), *call, *held]


def _code(code: CodeType) -> list[bytes]:
    inner = [fact for each in code.co_consts if isinstance(each, CodeType) for fact in _code(each)]
    consts = [repr(each).encode() for each in code.co_consts if not isinstance(each, CodeType)]
    return [code.co_code, *consts, repr((code.co_names, code.co_varnames)).encode(), *inner]


def _names(code: CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return [*code.co_names, *inner]
