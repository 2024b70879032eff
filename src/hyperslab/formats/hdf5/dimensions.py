"""Names of axes, from HDF5's dimension scales and what NetCDF-4 makes of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hyperslab.errors import HyperslabError
from hyperslab.formats.hdf5.attributes import read_attributes
from hyperslab.formats.hdf5.groups import kind_of

if TYPE_CHECKING:
    from hyperslab.formats.hdf5.objects import Dataset, HdfFile

__all__ = ["read_dimensions"]

_ATTRIBUTES = ("CLASS", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Coordinates")
# In how many groups the name of a scale is looked for that is not in a group above its dataset.
_MOST_GROUPS = 1000


def read_dimensions(dataset: "Dataset") -> tuple[str | None, ...] | None:
    """Return the names of a dataset's axes, None where no axis has any.

    An axis has the name of the scale that is attached to it, else its label; a scale of one axis has its own.
    """
    if not dataset.shape:
        return None
    file, ndim = dataset.file, len(dataset.shape)
    attrs = read_attributes(file.opened, dataset.header, _ATTRIBUTES)
    names: list[str | None] = [None] * ndim
    scales = _scales(attrs.get("DIMENSION_LIST"), ndim, file)
    if any(scales):
        known = names_of(file, dataset.parents, [scale for scale in scales if scale is not None])
        names = [None if scale is None else known.get(scale) for scale in scales]
    elif attrs.get("CLASS") == "DIMENSION_SCALE":
        names = _own_names(dataset, attrs.get("_Netcdf4Coordinates"), ndim)
    labels = _labels(attrs.get("DIMENSION_LABELS"), ndim)
    found = tuple(name or label for name, label in zip(names, labels, strict=True))
    return found if any(found) else None


def names_of(file: "HdfFile", parents: Sequence[int], addresses: Iterable[int]) -> dict[int, str]:
    """Return the names of objects, looked for in the groups above first, then in the whole file."""
    wanted, found, seen = set(addresses), dict[int, str](), set[int]()
    groups = list(dict.fromkeys([*parents[::-1], file.superblock.root]))
    while groups and wanted and len(seen) < _MOST_GROUPS:
        for group in groups:
            seen.add(group)
            links = file.members(group).items()
            hard = {link.address: name for name, link in reversed(links) if link.address is not None}
            found |= {address: hard[address] for address in wanted & hard.keys()}
            wanted -= hard.keys()
        groups = _groups_below(file, groups, seen) if wanted else []
    return found


def _groups_below(file: "HdfFile", groups: Sequence[int], seen: set[int]) -> list[int]:
    """Return the groups within these that were not searched yet."""
    links = [link.address for group in groups for link in file.members(group).values() if link.address is not None]
    unseen = [address for address in dict.fromkeys(links) if address not in seen]
    headers = file.opened.headers(unseen[:_MOST_GROUPS])
    return [header.address for header in headers if kind_of(header) == "group"]


def _scales(value: Any, ndim: int, file: "HdfFile") -> list[int | None]:
    """Return for each axis the address of the first scale attached to it."""
    if not isinstance(value, np.ndarray) or value.dtype != object or value.shape != (ndim,):
        return [None] * ndim
    base, size = file.superblock.base, file.superblock.size
    firsts = [
        int(each[0]) if isinstance(each, np.ndarray) and each.dtype.kind == "u" and each.size else 0 for each in value
    ]
    return [first + base if 0 < first < size - base else None for first in firsts]


def _labels(value: Any, ndim: int) -> list[str | None]:
    if not isinstance(value, np.ndarray) or value.shape != (ndim,):
        return [None] * ndim
    return [each if isinstance(each, str) and each else None for each in value.tolist()]


def _own_names(dataset: "Dataset", ids: Any, ndim: int) -> list[str | None]:
    """Return the names of a scale's axes: the first is its own, others NetCDF finds by numbers."""
    own = dataset.path.rstrip("/").rpartition("/")[2] or None
    if ndim == 1 or not isinstance(ids, np.ndarray) or ids.shape != (ndim,):
        return [own, *[None] * (ndim - 1)]
    numbers = _numbered(dataset)
    return [own, *(numbers.get(number) for number in ids.tolist()[1:])]


def _numbered(dataset: "Dataset") -> dict[int, str]:
    """Return the names of the scales in the groups above by the numbers that NetCDF gave them."""
    file, found = dataset.file, dict[int, str]()
    for group in dataset.parents:
        places = {link.address: name for name, link in file.members(group).items() if link.address is not None}
        for header in file.opened.headers(list(places)):
            try:
                number = read_attributes(file.opened, header, ["_Netcdf4Dimid"]).get("_Netcdf4Dimid")
            except HyperslabError:
                continue
            if isinstance(number, np.integer):
                found[int(number)] = places[header.address]
    return found
