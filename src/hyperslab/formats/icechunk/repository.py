"""Repositories: where one is, and which snapshot a branch or a tag stands for.

Version 1 of the format has a small file for each branch and tag, version 2 one for all of them, `repo`. A repository
that was brought to version 2 may still have the files of version 1, so that `repo` is looked for first.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from hyperslab.errors import AccessError, IntegrityError, InvalidInputError, MetadataError, NotFoundError
from hyperslab.formats.icechunk.envelope import is_icechunk, unwrap
from hyperslab.formats.icechunk.flatbuffer import Tables
from hyperslab.formats.icechunk.ids import ID_BYTES, parse_id
from hyperslab.formats.source import MetadataReader, join, parse_document

__all__ = ["Revision", "find_repository", "parse_revision", "resolve"]

Kind = Literal["branch", "tag", "snapshot"]

_REVISION = re.compile(r"(?P<root>.*?)/?@(?P<kind>branch|tag|snapshot)=(?P<name>[^/]+)(?:/(?P<inside>.*))?")
_DEFAULT = "main"

# Fields of the tables, by their numbers.
_TAGS, _BRANCHES, _SNAPSHOTS = 1, 2, 4
_REF_NAME, _REF_SNAPSHOT = 0, 1
_SNAPSHOT_ID = 0

# How many directories above a path may hold the repository that it leads into.
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Revision:
    """A version of the repository at `root`, as it is asked for, and the path of a node in it."""

    root: str
    kind: Kind = "branch"
    name: str = _DEFAULT
    inside: str = ""

    @property
    def path(self) -> str:
        """The path that says all of this."""
        return join(f"{self.root}@{self.kind}={self.name}", self.inside)


def parse_revision(path: str) -> Revision | None:
    """Return what a path says that names a version of a repository; None for one that does not.

    >>> parse_revision("sea/repo@tag=v1/depth/mean")
    Revision(root='sea/repo', kind='tag', name='v1', inside='depth/mean')
    >>> parse_revision("sea/repo") is None
    True
    """
    found = _REVISION.fullmatch(path)
    if found is None:
        return None
    kind: Kind = found["kind"]  # type: ignore[assignment]
    if kind == "snapshot":
        parse_id(found["name"])
    return Revision(found["root"], kind, found["name"], (found["inside"] or "").strip("/"))


def find_repository(reader: MetadataReader, path: str) -> tuple[Revision, bytes] | None:
    """Return the head of `main` of the repository that a path leads to, or into, and its id; None if there is none."""
    root, inside = path, ""
    for _ in range(_MAX_DEPTH):
        revision = Revision(root, inside=inside)
        with suppress(IntegrityError):  # some other, large file that is called `repo`
            found = _look_up(reader, revision)
            if found is not None:
                return revision, found
        if not root:
            return None
        root, _, name = root.rpartition("/")
        inside = join(name, inside)
    return None


def resolve(reader: MetadataReader, revision: Revision, url: str = "") -> bytes:
    """Return the id of the snapshot that a revision is, now. `url` is what errors call it."""
    if revision.kind == "snapshot":
        return parse_id(revision.name)
    found = _look_up(reader, revision)
    if found is None:
        where, what = url or revision.path, f"{revision.kind} {revision.name!r}"
        raise NotFoundError(f"{where!r} is not there: no Icechunk repository with the {what} was found")
    return found


def _look_up(reader: MetadataReader, revision: Revision) -> bytes | None:
    """Return the id of the snapshot that a branch or a tag is; None if there is no such."""
    key = join(revision.root, "repo")
    try:
        data = reader.get(key)
    except AccessError:
        # Who may not list a bucket is refused what is not there, too.
        found = _by_file(reader, revision)
        if found is None:
            raise
        return found
    if data is not None and is_icechunk(data):
        return _by_list(data, revision, key)
    return _by_file(reader, revision)


def _ref_key(root: str, kind: Kind, name: str) -> str:
    return join(root, f"refs/{kind}.{name}/ref.json")


def _by_file(reader: MetadataReader, revision: Revision) -> bytes | None:
    """Look a branch or a tag up as version 1 stores them."""
    key = _ref_key(revision.root, revision.kind, revision.name)
    data = reader.get(key)
    if data is None or (revision.kind == "tag" and _is_there(reader, key + ".deleted")):
        return None
    name = parse_document(data, key).get("snapshot")
    try:
        return parse_id(name if isinstance(name, str) else "")
    except InvalidInputError as error:
        raise MetadataError(f"{key!r} names no snapshot: {error}") from error


def _is_there(reader: MetadataReader, key: str) -> bool:
    try:
        return reader.get(key) is not None
    except AccessError:  # as above: what is beside it could be read
        return False


def _by_list(data: bytes, revision: Revision, key: str) -> bytes | None:
    """Look a branch or a tag up in the file that version 2 has for all of them."""
    root = unwrap(data, "repo", key)[0].root()
    refs: Tables = root.lists(_BRANCHES if revision.kind == "branch" else _TAGS)
    names = refs.texts(_REF_NAME)
    if revision.name not in names:
        return None
    number = int(refs.words(_REF_SNAPSHOT)[names.index(revision.name)])
    snapshots = root.lists(_SNAPSHOTS)
    if number >= len(snapshots):
        raise MetadataError(f"{key!r} has {len(snapshots)} snapshots; {revision.name!r} is said to be number {number}")
    return snapshots.take(slice(number, number + 1)).structs(_SNAPSHOT_ID, ID_BYTES)[0]
