"""Snapshots: the groups and arrays of one version of a repository, and which manifests list an array's chunks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError
from hyperslab.formats.icechunk.envelope import unwrap
from hyperslab.formats.icechunk.flatbuffer import Tables
from hyperslab.formats.icechunk.ids import ID_BYTES, NODE_ID_BYTES
from hyperslab.formats.source import check_stored_name, parse_document

__all__ = ["ArrayManifests", "Node", "Snapshot"]

# Fields of the tables, by their numbers.
_ID, _NODES, _FILES, _FILES_2 = 0, 2, 6, 7
_NODE_ID, _NODE_PATH, _NODE_DOCUMENT, _NODE_KIND, _NODE_DATA = range(5)
_ARRAY_MANIFESTS = 2
_MANIFEST_ID, _MANIFEST_EXTENTS = 0, 1
_ARRAY, _GROUP = 1, 2

_EXTENT_BYTES = 8
# What version 1 says of a manifest: its id, its size after four bytes that align it, then how many chunks it lists.
_FILE = np.dtype({"names": ["id", "nbytes"], "formats": [f"V{ID_BYTES}", "<u8"], "offsets": [0, 16], "itemsize": 32})
_FILE_ID, _FILE_NBYTES = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class ArrayManifests:
    """The manifests that list the chunks of an array, `node`, by its id: each with a box of places in the grid.

    `sizes` are of their files. `lows` and `highs` have a row for each: where its box starts and ends along each axis.
    """

    node: bytes
    ids: tuple[bytes, ...]
    sizes: tuple[int, ...]
    lows: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]

    def covering(self, places: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.intp]]]:
        """Return which manifests' boxes hold any of these places, each with the rows of those that it holds."""
        found = []
        for number, (low, high) in enumerate(zip(self.lows, self.highs, strict=True)):
            rows = np.flatnonzero(((places >= low) & (places < high)).all(axis=1))
            if rows.size:
                found.append((number, rows))
        return found


@dataclass(frozen=True, slots=True)
class Node:
    """A group or an array: its path ('' is the root), its Zarr metadata, and for an array its manifests."""

    path: str
    document: dict[str, Any]
    manifests: ArrayManifests | None


class Snapshot:
    """One version of a repository. Nodes are parsed when they are asked for: there may be very many."""

    def __init__(self, data: bytes, identity: bytes, key: str) -> None:
        self.buffer, self.version = unwrap(data, "snapshot", key)
        self.key, self.identity, self._data = key, identity, data
        root = self.buffer.root()
        if root.structs(_ID, ID_BYTES)[0] != identity:
            raise MetadataError(f"{key!r} is another snapshot than its name says")
        self._nodes = root.lists(_NODES)
        self._rows = {_path(text, key): row for row, text in enumerate(self._nodes.texts(_NODE_PATH))}
        if len(self._rows) != len(self._nodes):
            raise MetadataError(f"{key!r} lists several nodes of one name")

        self._sizes = _sizes(root)

    @property
    def nbytes(self) -> int:
        """Memory that the snapshot takes, about."""
        return self.buffer.nbytes + len(self._data) + 200 * (len(self._rows) + len(self._sizes))

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot, (self._data, self.identity, self.key)

    def names_below(self, path: str) -> list[str]:
        """Return the names of the nodes one level below a group, sorted."""
        lead = path + "/" if path else ""
        below = [each.removeprefix(lead) for each in self._rows if each.startswith(lead)]
        return sorted(name for name in below if name and "/" not in name)

    def node(self, path: str) -> Node | None:
        """Return the node at a path, None if there is none."""
        row = self._rows.get(path)
        if row is None:
            return None
        table = self._nodes.take(slice(row, row + 1))
        document = parse_document(table.vectors(_NODE_DOCUMENT, 1).raws()[0], f"{self.key}:/{path}")
        kind = int(table.octets(_NODE_KIND)[0])
        if kind not in (_ARRAY, _GROUP):
            raise MetadataError(f"{self.key!r} has a node of kind {kind} at {path!r}; expected an array or a group")
        if (document.get("node_type") == "array") != (kind == _ARRAY):
            raise MetadataError(f"{self.key!r} contradicts itself: is {path!r} an array or a group?")
        return Node(path, document, self._manifests(table) if kind == _ARRAY else None)

    def _manifests(self, node: Tables) -> ArrayManifests:
        tables = node.tables(_NODE_DATA).lists(_ARRAY_MANIFESTS)
        ids = tables.structs(_MANIFEST_ID, ID_BYTES)
        extents = tables.vectors(_MANIFEST_EXTENTS, _EXTENT_BYTES)
        ndim = int(extents.counts[0]) if len(tables) else 0
        pairs = extents.words(2 * ndim).reshape(len(tables), ndim, 2)
        if not self._sizes.keys() >= set(ids):
            raise MetadataError(f"{self.key!r} contradicts itself: it does not list all manifests that its arrays have")
        return ArrayManifests(
            node.structs(_NODE_ID, NODE_ID_BYTES)[0],
            tuple(ids),
            tuple([self._sizes[identity] for identity in ids]),
            pairs[:, :, 0],
            pairs[:, :, 1],
        )


def _path(text: str, key: str) -> str:
    if not text.startswith("/"):
        raise MetadataError(f"{key!r} has a node at {text[:200]!r}; expected a path that starts with '/'")
    if text != "/":
        check_stored_name(text[1:], key)
    return text[1:]


def _sizes(root: Tables) -> dict[bytes, int]:
    """Return how large the files of all manifests are, by their ids."""
    rows = np.frombuffer(root.vectors(_FILES, _FILE.itemsize).raws()[0], _FILE)
    sizes = {bytes(row): nbytes for row, nbytes in zip(rows["id"].tolist(), rows["nbytes"].tolist(), strict=True)}
    files = root.lists(_FILES_2)
    return sizes | dict(zip(files.structs(_FILE_ID, ID_BYTES), files.longs(_FILE_NBYTES).tolist(), strict=True))
