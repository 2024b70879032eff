"""What a function answers to a call, as bytes. No input or output.

A reply is `HSC1`, the length of a JSON header (4 bytes, little-endian), the header, and the cells of all chunks
one after the other, compressed if that was asked for: by zstd, after the bytes of all cells were regrouped where that
makes them shorter. Nothing of it is believed before it is checked.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.layout import zstd
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.codecs import ByteArray, Size
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.filters import Shuffle
from hyperslab.store.call_request import CallRequest
from hyperslab.store.checked import MOST_CELLS, bad, fields, parsed, tag, whole

__all__ = ["CallReply", "ChunkAnswer", "shrink_of"]

_MAGIC = b"HSC1"
# Of zstd: more would take longer than the link that it spares.
_LEVEL = 1
# So many bytes of cells tell well enough how much smaller the others get.
_SAMPLE_BYTES = 128 << 10
# Cells are compressed if they get smaller than this share of themselves: what the bytes of the others cost is far more
# than the milliseconds for that.
_WORTH = 0.98
# Larger cells are of several fields, whose bytes are not alike by their places.
_MOST_SHUFFLED = 16


@dataclass(frozen=True, slots=True, eq=False)
class ChunkAnswer:
    """The cells of one chunk, C-contiguous over the array's axes; None if the chunk is not stored.

    `etag` and `object_nbytes` are its object's.
    """

    data: memoryview | None
    etag: str | None = None
    object_nbytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CallReply:
    """What a function answers, in the order of the request's chunks.

    `seconds` is how long it took, `gets` the requests that it sent to the store, for `read_bytes` in all.
    """

    answers: list[ChunkAnswer]
    seconds: float = 0.0
    gets: int = 0
    read_bytes: int = 0

    def pack(self, *, compress: bool, cell_nbytes: int = 1) -> bytes:
        """Return the reply as one run of bytes."""
        return b"".join(self.parts(compress=compress, cell_nbytes=cell_nbytes))

    def parts(self, *, compress: bool, cell_nbytes: int = 1) -> list[bytes | memoryview]:
        """Return the reply in parts that follow one another; cells that are not compressed are not copied.

        `cell_nbytes` is how long every cell is, as the request says.
        """
        cells = [answer.data for answer in self.answers if answer.data is not None]
        nbytes = sum([len(data) for data in cells])
        width = _best_width(cells, cell_nbytes) if compress else 0
        compressed = _compressed(cells, width) if width else b""
        if is_shorter := 0 < len(compressed) < nbytes:
            cells = [memoryview(compressed)]
        header = {
            "chunks": [[_size(answer), answer.etag, answer.object_nbytes] for answer in self.answers],
            "zstd": is_shorter,
            "shuffled": is_shorter and width > 1,
            "payload_nbytes": nbytes,
            "crc32c": _crc32c(cells),
            "seconds": self.seconds,
            "gets": self.gets,
            "read_bytes": self.read_bytes,
        }
        packed = json.dumps(header, separators=(",", ":")).encode()
        return [_MAGIC + len(packed).to_bytes(4, "little") + packed, *cells]

    @staticmethod
    def unpack(data: memoryview, request: CallRequest, limit_bytes: int) -> "CallReply":
        """Return the reply to `request` that these bytes are; raises IntegrityError if they are not one.

        Its cells, of at most `limit_bytes` in all, are views of `data` unless they were compressed.
        """
        try:
            header, payload = _split(data)
            fields(
                "the header", header,
                "chunks", "zstd", "shuffled", "payload_nbytes", "crc32c", "seconds", "gets", "read_bytes",
            )  # fmt: skip
            sizes = _answer_sizes(header["chunks"], request)
            nbytes = whole("payload_nbytes", header["payload_nbytes"], 0, limit_bytes)
            crc, gets = whole("crc32c", header["crc32c"], 0, 2**32 - 1), whole("gets", header["gets"], 0, 2**31)
            read_bytes = whole("read_bytes", header["read_bytes"], 0, MOST_CELLS)
            seconds = header["seconds"]
            if type(seconds) not in (int, float) or not 0 <= seconds < 1e6:
                bad("seconds", seconds, "a number")
            if {type(header["zstd"]), type(header["shuffled"])} != {bool}:
                bad("zstd and shuffled", [header["zstd"], header["shuffled"]], "true or false")
        except InvalidInputError as error:
            raise _lies(str(error)) from None
        if sum([size or 0 for size in sizes]) != nbytes:
            raise _lies(f"its chunks do not add up to {nbytes} bytes")
        flat = np.frombuffer(payload, np.uint8)
        if crc32c(flat) != crc:
            raise _lies("its checksum does not hold")
        width = request.cell_nbytes if header["shuffled"] else 1
        cells = memoryview(_decompressed(flat, nbytes, width) if header["zstd"] else payload)
        if len(cells) != nbytes:
            raise _lies(f"it holds {len(cells)} bytes of cells, expected {nbytes}")
        answers, at = [], 0
        for size, (_, etag, object_nbytes) in zip(sizes, header["chunks"], strict=True):
            answers.append(ChunkAnswer(None if size is None else cells[at : at + size], etag, object_nbytes))
            at += size or 0
        return CallReply(answers, float(seconds), gets, read_bytes)


def shrink_of(cells: npt.NDArray[Any]) -> float:
    """Return what share of their bytes cells like these have in a compressed answer, by a sample of them.

    >>> shrink_of(np.zeros((300, 400))) < 0.01
    True
    """
    if cells.dtype.hasobject or not cells.size:
        return 1.0
    for axis in range(cells.ndim):
        if cells.nbytes > _SAMPLE_BYTES:
            each = cells.nbytes // cells.shape[axis]
            cells = cells[(slice(None),) * axis + (slice(0, max(1, _SAMPLE_BYTES // each)),)]
    sample = np.ascontiguousarray(cells).reshape(-1).view(np.uint8).data
    share = min(_shares([sample], cells.dtype.itemsize).values())
    return share if share < _WORTH else 1.0


def _best_width(cells: list[memoryview], cell_nbytes: int) -> int:
    """Return by how many bytes cells are to be shuffled before they are compressed; 0 if it does not pay to compress.

    It is told by the first cells of each part, as what is billed goes on meanwhile.
    """
    most = max(1, _SAMPLE_BYTES // max(1, len(cells)) // cell_nbytes) * cell_nbytes
    shares = _shares([part[:most] for part in cells if len(part)], cell_nbytes)
    width = min(shares, key=lambda width: shares[width], default=0)
    return width if width and shares[width] < _WORTH else 0


def _shares(samples: list[memoryview], cell_nbytes: int) -> dict[int, float]:
    """Return what share of their bytes samples have once they are compressed, by how they are shuffled before."""
    nbytes = sum([len(sample) for sample in samples])
    widths = (1, cell_nbytes) if 1 < cell_nbytes <= _MOST_SHUFFLED else (1,)
    return {width: len(_compressed(samples, width)) / nbytes for width in widths} if nbytes else {}


def _size(answer: ChunkAnswer) -> int | None:
    return None if answer.data is None else len(answer.data)


def _compressed(cells: list[memoryview], width: int) -> bytes:
    if width == 1:
        return zstd.compress(cells[0] if len(cells) == 1 else b"".join(cells), _LEVEL)
    planes = np.empty((width, sum([len(part) for part in cells]) // width), np.uint8)
    at = 0
    for part in cells:
        count = len(part) // width
        planes[:, at : at + count] = np.frombuffer(part, np.uint8).reshape(count, width).T
        at += count
    # Each by codes of its own: where one has noise, others have not.
    return zstd.compress(planes.reshape(-1), _LEVEL, width)


def _decompressed(flat: ByteArray, nbytes: int, width: int) -> memoryview:
    size = Size(nbytes, exact=True)
    try:
        return Shuffle(width).decode(Zstd().decode(flat, size, "of the reply"), size, "of the reply").data
    except Exception as error:
        raise _lies(f"its cells cannot be decompressed ({type(error).__name__})") from error


def _crc32c(cells: list[memoryview]) -> int:
    import google_crc32c

    crc = 0
    for data in cells:
        if len(data):
            crc = google_crc32c.extend(crc, np.frombuffer(data, np.uint8))  # type: ignore[arg-type,unused-ignore]
    return int(crc)


def _split(data: memoryview) -> tuple[Any, memoryview]:
    """Return a reply's header, not yet checked, and the bytes behind it."""
    if bytes(data[:4]) != _MAGIC:
        raise _lies(f"it does not begin with {_MAGIC.decode()}")
    stop = 8 + int.from_bytes(data[4:8], "little")
    if not 8 < stop <= len(data):
        raise _lies("its header is cut off")
    return parsed(bytes(data[8:stop])), data[stop:]


def _answer_sizes(specs: Any, request: CallRequest) -> list[int | None]:
    """Return the bytes of each chunk's cells, None where it is not stored, if they are what was asked for."""
    if not isinstance(specs, list) or len(specs) != len(request.chunks):
        bad("chunks", specs, f"{len(request.chunks)} of them")
    sizes = []
    for number, (spec, chunk) in enumerate(zip(specs, request.chunks, strict=True)):
        if not isinstance(spec, list) or len(spec) != 3:
            bad("a chunk", spec, "[bytes, etag, bytes of the object]")
        size, etag, object_nbytes = spec
        expected = request.result_nbytes(number)
        if size is not None:
            whole("bytes of a chunk", size, expected, expected)
        whole("bytes of an object", object_nbytes, 0 if size is None else chunk.stop or 1, MOST_CELLS)
        if tag(etag) != chunk.etag and size is not None and None not in (etag, chunk.etag):
            bad("etag", etag, f"the version asked for, {chunk.etag}")
        sizes.append(size)
    return sizes


def _lies(what: str) -> IntegrityError:
    return IntegrityError(f"the function's answer cannot be used: {what}; is the URL that of a Hyperslab function?")
