"""Objects copied into a Zarr group: from the same file or another, of any kind that can be read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hyperslab.array import Array
from hyperslab.errors import UnsupportedError
from hyperslab.formats.hdf5.attributes import Unreadable, user_attrs
from hyperslab.h5.celltypes import new_type
from hyperslab.h5.hdf5_tree import Hdf5Attrs
from hyperslab.h5.links import find
from hyperslab.h5.nodes import ArrayNode, GroupNode, Node, Tree, join
from hyperslab.h5.notes import NOTES
from hyperslab.h5.zarr_tree import ZarrTree

__all__ = ["copy_into"]


def copy_into(
    target: ZarrTree, path: str, tree: Tree, node: Node, *, shallow: bool, expands: Mapping[str, bool], attrs: bool
) -> None:
    """Copy an object to a path of a Zarr group that is still free.

    shallow  of groups in the group only their names and attributes
    expands  for "soft" and "external": whether what a link leads to is copied, instead of the link
    """
    names = tree.names(node.path) if isinstance(node, GroupNode) else []
    if isinstance(node, ArrayNode):
        _copy_array(target, path, node, attrs=attrs)
        return
    if not isinstance(node, GroupNode):
        target.create_group(path, dtype=node.dtype)
    else:
        target.create_group(path)
    if attrs:
        _copy_attrs(target, path, node)
    for name in names:
        inside = join(node.path, name)
        link = tree.link(inside)
        if link is not None and link.kind != "hard" and not expands.get(link.kind, False):
            target.set_link(join(path, name), link)
            continue
        place, member = find(tree, inside)
        if shallow and isinstance(member, GroupNode):
            target.create_group(join(path, name))
            continue
        copy_into(target, join(path, name), place, member, shallow=False, expands=expands, attrs=attrs)


def _copy_array(target: ZarrTree, path: str, node: ArrayNode, *, attrs: bool) -> None:
    array = node.cells
    if isinstance(array, Array) and array.source.part is None:
        # A Zarr array: its cells as they are stored, its attributes and notes with them.
        held = dict(array.source.attrs)
        kept = held if attrs else {NOTES: {k: v for k, v in held.get(NOTES, {}).items() if k != "values"}}
        target.copy_array(path, array, kept)
        return
    if isinstance(array, Array) and node.type.plain and not node.empty:
        # Part by part: it may be larger than memory.
        noted = {"maxshape": list(node.maxshape or node.shape)}
        target.copy_array(path, array, {NOTES: noted}, chunked=node.chunks is not None)
        if attrs:
            _copy_attrs(target, path, node)
        return
    kind = new_type(node.type.dtype)
    values = None if node.empty else kind.kept(_whole(node))
    notes: dict[str, Any] = {"empty": True} if node.empty else {"maxshape": list(node.maxshape or node.shape)}
    target.create_array(path, () if node.empty else node.shape, new_type(node.type.dtype, values), values, notes)
    if attrs:
        _copy_attrs(target, path, node)


def _whole(node: ArrayNode) -> Any:
    return node.type.shown(np.asarray(node.cells[...]))


def _copy_attrs(target: ZarrTree, path: str, node: Node) -> None:
    stored = target.open(path).attrs
    found = node.attrs.read()
    for name, value in (user_attrs(found) if isinstance(node.attrs, Hdf5Attrs) else found).items():
        if isinstance(value, Unreadable):
            raise UnsupportedError(f"the attribute {name!r} of {node.path!r} cannot be read: {value.reason}")
        stored.store(name, value)
