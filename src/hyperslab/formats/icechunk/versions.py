"""Files that virtual references lead to: that each still is the version which was referred to."""

from collections.abc import Iterable, Mapping

from hyperslab.errors import ConflictError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.icechunk.manifest import ChunkRef
from hyperslab.formats.source import MetadataReader
from hyperslab.store import Reply
from hyperslab.store.targets import parse_spot

__all__ = ["check_version", "pin_versions"]

# Stores whose ETags are what they send: the requests for chunks say which version they are for.
_STATES_ETAGS = ("s3", "az", "http", "https")

Version = tuple[str, int]


def pin_versions(reader: MetadataReader, refs: Iterable[ChunkRef], seen: dict[str, str]) -> dict[str, str]:
    """Return the ETags that virtual references hold for, by location; ConflictError if a file has changed since.

    Most need no request. Where a time is all that was noted, or a store's ETags are not those that were noted, a byte
    of the file is asked for: the answer tells the time and the ETag, which is `seen` from then on.
    """
    versions: dict[str, Version] = {}
    for ref in refs:
        if ref.location:
            _check_location(ref.location)
            version = _bare(ref.etag), ref.modified_s
            if versions.setdefault(ref.location, version) != version:
                raise ConflictError(f"references to {ref.location!r} are for several versions of it; one must be gone")
    etags = {at: f'"{etag}"' for at, (etag, _) in versions.items() if etag and _states_etags(at)}
    unsure = {at: version for at, version in versions.items() if at not in etags and version != ("", 0)}
    seen |= _look(reader, {at: version for at, version in unsure.items() if at not in seen})
    return etags | {at: seen[at] for at in unsure if at in seen}


def check_version(location: str, etags: Mapping[str, str], reply: Reply) -> None:
    """Raise ConflictError if an answer is of another version than the one that is pinned."""
    expected = etags.get(location)
    if expected is not None and reply.etag != expected:
        raise ConflictError(f"{location!r} changed since it was referred to: {reply.etag}, expected {expected}")


def _check_location(location: str) -> None:
    scheme, found, _ = location.partition("://")
    if scheme == "vcc":
        raise UnsupportedError(
            f"a reference leads to {location[:200]!r}, which only the repository's configuration explains; it is not "
            "followed"
        )
    if not found:
        raise MetadataError(f"a reference leads to {location[:200]!r}; expected a URL")


def _states_etags(location: str) -> bool:
    spot = parse_spot(location)
    return spot is not None and spot.kind in _STATES_ETAGS


def _bare(etag: str) -> str:
    if etag.startswith("W/"):
        raise UnsupportedError(f"a reference holds for a weak ETag, {etag[:80]!r}, which tells no versions apart")
    return etag.strip('"')


def _look(reader: MetadataReader, versions: dict[str, Version]) -> dict[str, str]:
    etags: dict[str, str] = {}
    missing = []
    for location, version in versions.items():
        known = reader.held(location, _held_name(version))
        if known is None:
            missing.append(location)
        else:
            etags[location] = known
    replies = reader.fetch_many([(location, (0, 1), 1) for location in missing])
    for location, reply in zip(missing, replies, strict=True):
        if reply is None:
            raise IntegrityError(f"{location!r} is not there, though references lead to it; was it moved or deleted?")
        _check(location, versions[location], reply)
        if reply.etag is not None:
            etags[location] = reply.etag
            reader.hold(location, _held_name(versions[location]), reply.etag, 100)
    return etags


def _check(location: str, version: Version, reply: Reply) -> None:
    etag, modified_s = version
    if etag and (reply.etag is None or etag not in _spellings(reply.etag)):
        raise ConflictError(
            f"{location!r} changed since it was referred to: its ETag is {reply.etag}, expected {etag!r}"
        )
    if not etag and reply.modified_ns // 1_000_000_000 > modified_s:
        raise ConflictError(f"{location!r} changed since it was referred to: it was written after {modified_s}")


def _spellings(etag: str) -> list[str]:
    """Return how others write an ETag of ours: without a generation, or a file's time in microseconds."""
    bare = etag.partition("#")[0].strip('"')
    inode, _, rest = bare.partition("-")
    time_ns, _, nbytes = rest.partition("-")
    try:
        return [bare, f"{inode}-{int(time_ns, 16) // 1000:x}-{nbytes}"]
    except ValueError:
        return [bare]


def _held_name(version: Version) -> str:
    return f"version {version[0]} {version[1]}"
