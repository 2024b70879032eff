"""What all of a repository's metadata files have in common: a header, then a FlatBuffer, compressed or not."""

from typing import Literal

import numpy as np

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.icechunk.flatbuffer import Buffer
from hyperslab.layout.compressors import unpack_zstd

__all__ = ["MAX_UNPACKED_BYTES", "is_icechunk", "unwrap"]

# Larger files are refused before they are unpacked. The arrays of a manifest of ten million chunks take about as much.
MAX_UNPACKED_BYTES = 512 << 20

_MAGIC = "ICE🧊CHUNK".encode()
_VERSION_AT = len(_MAGIC) + 24  # the writer's name stands in between
_HEAD_BYTES = _VERSION_AT + 3
_VERSIONS = (1, 2)
_KINDS = {"snapshot": 1, "manifest": 2, "repo": 6}
_PLAIN, _ZSTD = 0, 1

Kind = Literal["snapshot", "manifest", "repo"]


def is_icechunk(data: bytes) -> bool:
    """Say whether these are the first bytes of a repository's metadata file."""
    return data.startswith(_MAGIC)


def unwrap(data: bytes, kind: Kind, key: str) -> tuple[Buffer, int]:
    """Return what a metadata file holds, and the version of the format that it is in."""
    if not is_icechunk(data) or len(data) < _HEAD_BYTES:
        raise MetadataError(f"{key!r} does not start like a file of an Icechunk repository; was it overwritten?")
    version, found, compression = data[_VERSION_AT:_HEAD_BYTES]
    if version not in _VERSIONS:
        raise UnsupportedError(f"{key!r} is in version {version} of Icechunk's format; versions 1 and 2 can be read")
    if found != _KINDS[kind]:
        raise MetadataError(f"{key!r} is a file of kind {found}, expected {_KINDS[kind]}: a {kind}")
    return Buffer(_unpack(data, compression, key), key), version


def _unpack(data: bytes, compression: int, key: str) -> bytes:
    if compression not in (_PLAIN, _ZSTD):
        raise UnsupportedError(f"{key!r} is compressed in the way {compression}; 0 (not at all) and 1 (zstd) are known")
    body = np.frombuffer(data, np.uint8, offset=_HEAD_BYTES)
    if compression == _PLAIN:
        if body.nbytes > MAX_UNPACKED_BYTES:
            raise MetadataError(f"{key!r} holds {body.nbytes} bytes; at most {MAX_UNPACKED_BYTES} are read")
        return body.tobytes()
    try:
        return unpack_zstd(body, MAX_UNPACKED_BYTES)
    except (ValueError, IndexError) as error:
        raise MetadataError(f"{key!r} cannot be unpacked: {error}") from error
