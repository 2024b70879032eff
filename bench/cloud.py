"""An object store at the end of a slow link, in a process of its own: what S3 looks like from afar.

It serves one object: `ramp.npy`, in which cell i holds i, or a file that it is given. A request is answered `latency_s`
after it came, and all answers share one rate. So the waiting is real, while the server takes as little as possible of
the processors that it shares with the client. What it does not have: handshakes that take time, slow start, losses.

By itself, `python bench/cloud.py 0.02 125e6` prints its port and serves until its input ends. `/counts` tells how many
requests were answered, and with how many bytes.
"""

import argparse
import asyncio
import io
import json
import os
import re
import selectors
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np

__all__ = ["BUCKET", "CELLS", "Cloud"]

BUCKET, NAME = "cloud", "ramp.npy"
CELLS = 1 << 28
_SLICE_BYTES = 1 << 16
# Slices of one answer that wait for their turn on the link: enough to fill it, few enough to share it.
_SLICES_AHEAD = 4
_ERROR = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>not here</Message></Error>'


class Cloud:
    """A running server; clients connect to `endpoint`."""

    def __init__(self, *, latency_s: float, bytes_per_s: float, file: Path | None = None) -> None:
        command = [sys.executable, __file__, str(latency_s), str(bytes_per_s)]
        command += [] if file is None else ["--file", str(file)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.name = NAME if file is None else file.name
        self.url = f"s3://{BUCKET}/{self.name}"

    @property
    def options(self) -> dict[str, object]:
        """Hyperslab's storage options."""
        return {"endpoint": self.endpoint, "anonymous": True}

    def counts(self) -> tuple[int, int]:
        """Return the requests answered so far, and the bytes of their bodies."""
        with urllib.request.urlopen(f"{self.endpoint}/counts") as answer:
            requests, nbytes = json.load(answer)
        return requests, nbytes

    def __enter__(self) -> "Cloud":
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class Stored:
    """The object: a file."""

    def __init__(self, path: Path) -> None:
        self.name, self.file = path.name, path.open("rb")
        self.nbytes = path.stat().st_size

    def bytes(self, start: int, stop: int) -> bytes:
        """Return some bytes of the object."""
        return os.pread(self.file.fileno(), stop - start, start)


class Ramp:
    """The object: the header of a `.npy` file, and int32 cells that count up."""

    name = NAME

    def __init__(self) -> None:
        head = io.BytesIO()
        header = {"descr": "<i4", "fortran_order": False, "shape": (CELLS,)}
        np.lib.format.write_array_header_1_0(head, header)
        self.head = head.getvalue()
        self.nbytes = len(self.head) + 4 * CELLS

    def bytes(self, start: int, stop: int) -> bytes:
        """Return some bytes of the object.

        >>> Ramp().bytes(128 + 4, 128 + 9)
        b'\\x01\\x00\\x00\\x00\\x02'
        """
        base = len(self.head)
        if start < base:
            return self.head[start : min(stop, base)] + (self.bytes(base, stop) if stop > base else b"")
        first, last = (start - base) // 4, -(-(stop - base) // 4)
        cells = np.arange(first, last, dtype="<i4").tobytes()
        return cells[start - base - 4 * first : stop - base - 4 * first]


class _Link:
    """The rate that all answers share."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s, self.free_at = bytes_per_s, 0.0
        self.requests = self.nbytes = 0

    def take(self, now: float, nbytes: int) -> float:
        """Take the next place; return when the bytes are through."""
        self.free_at = max(now, self.free_at) + nbytes / self.bytes_per_s
        return self.free_at


class _Connection(asyncio.Protocol):
    """Answers one request after another."""

    def __init__(self, stored: Stored | Ramp, link: _Link, latency_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.stored, self.link, self.latency_s = stored, link, latency_s
        self.received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            self.loop.call_later(self.latency_s, self._answer, head)

    def _answer(self, head: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        if path == b"/counts":
            counts = json.dumps([self.link.requests, self.link.nbytes]).encode()
            self._write_head(b"200 OK", len(counts), b"")
            self.transport.write(counts)
            return
        self.link.requests += 1
        if path != f"/{BUCKET}/{self.stored.name}".encode():
            self._write_head(b"404 Not Found", len(_ERROR), b"")
            self.transport.write(b"" if method == b"HEAD" else _ERROR)
            return
        start, stop, size = 0, self.stored.nbytes, self.stored.nbytes
        found = re.search(rb"\r\n[Rr]ange: bytes=(\d*)-(\d*)", head)
        status, extra = b"200 OK", b""
        if found:
            first, last = found.groups()
            start = int(first) if first else size - int(last)
            stop = min(int(last) + 1, size) if first and last else size
            status, extra = b"206 Partial Content", b"Content-Range: bytes %d-%d/%d\r\n" % (start, stop - 1, size)
        self._write_head(status, stop - start, extra)
        if method == b"GET":
            self.link.nbytes += stop - start
            self._send(start, stop, 0)

    def _write_head(self, status: bytes, nbytes: int, extra: bytes) -> None:
        self.transport.write(
            b'HTTP/1.1 %b\r\nContent-Length: %d\r\nETag: "ramp"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n'
            b"Accept-Ranges: bytes\r\n%b\r\n" % (status, nbytes, extra)
        )

    def _send(self, start: int, stop: int, ahead: int) -> None:
        """Put slices on the link, a few ahead; the next when one is through."""
        while ahead < _SLICES_AHEAD and start < stop:
            end = min(start + _SLICE_BYTES, stop)
            is_last_ahead = ahead == _SLICES_AHEAD - 1
            at = self.link.take(self.loop.time(), end - start)
            self.loop.call_at(at, self._through, start, end, stop if is_last_ahead else end)
            start, ahead = end, ahead + 1

    def _through(self, start: int, end: int, stop: int) -> None:
        self.transport.write(self.stored.bytes(start, end))
        if end < stop:
            self._send(end, stop, 0)


async def _serve(latency_s: float, bytes_per_s: float, file: Path | None) -> None:
    loop = asyncio.get_running_loop()
    stored, link = Ramp() if file is None else Stored(file), _Link(bytes_per_s)
    server = await loop.create_server(lambda: _Connection(stored, link, latency_s), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    with suppress(ValueError, OSError):
        await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("latency_s", type=float)
    parser.add_argument("bytes_per_s", type=float)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    # `select` waits to the microsecond; the default selector rounds up to a millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_serve(options.latency_s, options.bytes_per_s, options.file))
