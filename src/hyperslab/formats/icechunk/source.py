"""Groups and arrays of a repository as sources: their Zarr metadata is in a snapshot, their chunks by manifests."""

from dataclasses import dataclass, replace

from hyperslab.errors import MetadataError, NotFoundError
from hyperslab.formats.icechunk.chunks import RepositoryChunks
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.repository import Revision, find_repository, resolve
from hyperslab.formats.icechunk.snapshot import Snapshot
from hyperslab.formats.source import ArraySource, GroupSource, MetadataReader, join
from hyperslab.formats.zarr import v3

__all__ = ["FORMAT", "open_found", "open_revision"]

FORMAT = "icechunk"


def open_found(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return what a path leads to in the repository that it leads into, at the head of `main`; None if in none."""
    found = find_repository(reader, path)
    return None if found is None else _open(reader, url, *found)


def open_revision(reader: MetadataReader, url: str, revision: Revision) -> ArraySource | GroupSource:
    """Return a group or an array of a repository, as of a revision."""
    return _open(reader, url, revision, resolve(reader, revision))


def _open(reader: MetadataReader, url: str, revision: Revision, identity: bytes) -> ArraySource | GroupSource:
    key = join(revision.root, "snapshots", name_of(identity))
    data = reader.get(key)
    if data is None:
        raise NotFoundError(f"there is no snapshot {name_of(identity)} in the Icechunk repository at {revision.root!r}")
    return _node(Snapshot(data, identity, key), url, revision)


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
