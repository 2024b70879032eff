"""Checksums: of chunks, and of the index of a shard."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from hyperslab.errors import IntegrityError
from hyperslab.layout.codecs import ByteArray, Size, numcodec

__all__ = ["Checksum", "ChecksumName", "crc32c"]

ChecksumName = Literal["adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"]

_STORED = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum of 32 bits before or after the bytes it is of."""

    name: ChecksumName
    location: Literal["start", "end"] = "end"
    # What `jenkins_lookup3` starts from.
    initial: int = 0

    def encoded(self, size: Size) -> Size:
        return Size(size.nbytes + 4, size.exact)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        size.check(data.nbytes - 4, key)
        if data.nbytes < 4:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes are too few for a checksum")
        payload, at = (data[4:], 0) if self.location == "start" else (data[:-4], data.nbytes - 4)
        if self.name == "crc32c":
            found = crc32c(payload)
        elif self.name in ("crc32", "adler32"):
            found = zlib.crc32(payload.data) if self.name == "crc32" else zlib.adler32(payload.data)
        else:
            return self._checked_by_numcodecs(data, payload)
        (expected,) = _STORED.unpack_from(data.data, at)
        if expected != found:
            raise IntegrityError(
                f"chunk {key!r} is damaged: its {self.name} is {found:#010x}, stored was {expected:#010x}"
            )
        return payload

    def _checked_by_numcodecs(self, data: ByteArray, payload: ByteArray) -> ByteArray:
        initial = (("initval", self.initial),) if self.name == "jenkins_lookup3" else ()
        numcodec(("id", self.name), *initial).decode(data)
        return payload


def crc32c(data: ByteArray) -> int:
    """Return the CRC-32C (Castagnoli) of `data`."""
    # The extension takes no memoryview, but an array: nothing is copied.
    return _crc32c()(data)


@lru_cache(maxsize=1)
def _crc32c() -> Callable[[ByteArray], int]:
    import google_crc32c

    return cast("Callable[[ByteArray], int]", google_crc32c.value)
