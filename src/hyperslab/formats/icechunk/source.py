"""Groups and arrays of a repository as sources: their Zarr metadata is in a snapshot, their chunks by manifests."""

from dataclasses import dataclass, replace
from typing import Any

from hyperslab.errors import MetadataError, NotFoundError
from hyperslab.formats.icechunk.chunks import RepositoryChunks
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.repository import Revision, find_repository, parse_revision, resolve
from hyperslab.formats.icechunk.snapshot import Snapshot
from hyperslab.formats.source import ArraySource, GroupSource, MetadataReader, join
from hyperslab.formats.zarr import v3

__all__ = ["FORMAT", "open_main", "open_revision", "zarr_store"]

FORMAT = "icechunk"


def open_main(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return what a path leads to in the repository that it leads into, at the head of `main`; None if in none."""
    found = find_repository(reader, path)
    return None if found is None else _open(reader, url, *found)


def open_revision(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return a group or an array of a repository, of the version that the path names; None if it names none."""
    revision = parse_revision(path)
    return None if revision is None else _open(reader, url, revision, resolve(reader, revision, url))


def _open(reader: MetadataReader, url: str, revision: Revision, identity: bytes) -> ArraySource | GroupSource:
    key = join(revision.root, "snapshots", name_of(identity))
    snapshot: Snapshot | None = reader.held(key, "snapshot")
    if snapshot is None:
        data = reader.get(key)
        if data is None:
            raise NotFoundError(
                f"{url!r} is not there: no Icechunk repository with the snapshot {name_of(identity)} was found"
            )
        snapshot = Snapshot(data, identity, key)
        reader.hold(key, "snapshot", snapshot, snapshot.nbytes)
    return _node(snapshot, url, revision)


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group: all of a snapshot is there once it has been opened."""

    snapshot: Snapshot
    revision: Revision

    def names(self, reader: MetadataReader) -> list[str]:
        """Return the names one level below the group, sorted."""
        return self.snapshot.names_below(self.revision.inside)

    def member(self, reader: MetadataReader, group: GroupSource, name: str) -> ArraySource | GroupSource:
        """Return the member `name`; nothing is sent."""
        inside = replace(self.revision, inside=join(self.revision.inside, name))
        return _node(self.snapshot, group.url.rstrip("/") + "/" + name, inside)


def zarr_store(reader: MetadataReader, group: GroupSource, name: str) -> Any:
    """Return a store by which zarr-python reads a member that is an array; None if there is no such."""
    from hyperslab.formats.icechunk.store import RepositoryStore

    if not isinstance(group.inside, Members):
        return None
    revision = group.inside.revision
    node = group.inside.snapshot.node(join(revision.inside, name))
    if node is None or node.manifests is None:
        return None
    return RepositoryStore(reader, RepositoryChunks(revision.root, node.manifests), node)


def _node(snapshot: Snapshot, url: str, revision: Revision) -> ArraySource | GroupSource:
    node = snapshot.node(revision.inside)
    if node is None:
        if not revision.inside:
            return GroupSource(url, revision.path, FORMAT, {}, inside=Members(snapshot, revision))
        raise NotFoundError(f"{url!r} is not there: snapshot {name_of(snapshot.identity)} has no {revision.inside!r}")
    found = v3.parse_node(node.document, url, revision.path)
    if isinstance(found, GroupSource):
        return replace(found, format=FORMAT, members=None, inside=Members(snapshot, revision))
    manifests = node.manifests
    if manifests is None or (manifests.ids and manifests.lows.shape[1] != len(found.layout.shape)):
        raise MetadataError(f"{snapshot.key!r} contradicts itself: how many axes has {revision.inside!r}?")
    # Which chunks there are is said by the manifests alone.
    layout = replace(found.layout, complete=False, told=None)
    return replace(found, format=FORMAT, layout=layout, chunks=RepositoryChunks(revision.root, manifests))
