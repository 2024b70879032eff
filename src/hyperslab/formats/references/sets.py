"""Reference sets, whatever file they come from: what they hold by path, and where the chunks of a read lie."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from hyperslab.errors import MetadataError
from hyperslab.formats.source import MetadataReader, check_stored_name
from hyperslab.formats.zarr.metadata import shown
from hyperslab.layout import References
from hyperslab.plan import Pieces

__all__ = ["LEAVES", "Nodes", "ReferenceSet", "gather_nodes"]

LEAVES = (".zarray", ".zgroup", ".zattrs")

# The documents of each array and group, by its path; '' is the root.
Nodes = dict[str, dict[str, dict[str, Any]]]


class ReferenceSet(Protocol):
    """References that were opened. Sets pickle without what they hold: it is read again where it is needed."""

    @property
    def key(self) -> str:
        """The file, or folder, that they are stored in."""
        ...

    def nodes(self, reader: MetadataReader) -> Nodes:
        """Return the documents of all arrays and groups."""
        ...

    def references(self, reader: MetadataReader, path: str, wanted: Pieces) -> References:
        """Return where the chunks of a read of the array at `path` lie."""
        ...


def gather_nodes(documents: Iterable[tuple[str, Any]], key: str) -> Nodes:
    """Sort Zarr's documents, given by their keys, by the arrays and groups that they are of.

    A group need not have a document of its own: what is below it makes it one.
    """
    nodes: Nodes = {"": {}}
    for name, document in documents:
        path, _, leaf = name.rpartition("/")
        if not isinstance(document, Mapping):
            raise MetadataError(f"{key!r} has {shown(name)} as {shown(document)}; expected an object")
        if path:
            check_stored_name(path, key)
        nodes.setdefault(path, {})[leaf] = dict(document)
    for path in list(nodes):
        while path:
            path = path.rpartition("/")[0]
            if path in nodes:
                break
            nodes[path] = {}
    return nodes
