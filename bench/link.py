"""A link with latency and a rate, in a process of its own: a TCP relay that holds bytes back.

Every byte arrives half a round trip after it could have been sent, and all connections share one rate in each
direction. What it does not do: handshakes and slow start take no time, and nothing is lost. It needs no rights.

Run by itself, `python bench/link.py 127.0.0.1:8333 0.02 125e6` prints its port and relays until its input ends.
"""

import argparse
import asyncio
import selectors
import subprocess
import sys
from collections import deque
from contextlib import suppress

__all__ = ["Link"]

# What one connection may have under way: more than rate × delay, so that one can fill the link.
_WINDOW_BYTES = 4 << 20


class Link:
    """A running relay to `upstream`: `endpoint` is where clients connect.

    `round_trip_s` is the time of an empty exchange, `bytes_per_s` the rate in each direction.
    """

    def __init__(self, upstream: str, *, round_trip_s: float, bytes_per_s: float) -> None:
        command = [sys.executable, __file__, upstream, str(round_trip_s), str(bytes_per_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class _Lane:
    """One direction of the link, shared by all connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, bytes_per_s: float) -> None:
        self.loop, self.delay_s, self.bytes_per_s = loop, delay_s, bytes_per_s
        self.free_at = 0.0

    def due(self, nbytes: int) -> float:
        """Take the next place on the link; return when the bytes arrive at the other end."""
        self.free_at = max(self.loop.time(), self.free_at) + nbytes / self.bytes_per_s
        return self.free_at + self.delay_s


class _End(asyncio.Protocol):
    """One end of a relayed connection; what it receives leaves by `other`, later."""

    def __init__(self, lane: _Lane) -> None:
        self.lane = lane
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting: deque[bytes] = deque()
        self.held = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        # Small reads keep the sharing of the rate fair.
        transport.max_size = 1 << 16

    def data_received(self, data: bytes) -> None:
        self.held += len(data)
        if self.held > _WINDOW_BYTES:
            self.transport.pause_reading()
        self.waiting.append(data)
        self.lane.loop.call_at(self.lane.due(len(data)), self._deliver)

    def _deliver(self) -> None:
        data = self.waiting.popleft()
        self.held -= len(data)
        if self.held <= _WINDOW_BYTES and not self.transport.is_closing():
            self.transport.resume_reading()
        self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.lane.loop.call_at(self.lane.due(0), self.other.transport.close)


class _Client(_End):
    """The end that a client has connected to; opens the other one first."""

    def __init__(self, up: _Lane, down: _Lane, upstream: tuple[str, int]) -> None:
        super().__init__(up)
        self.down, self.upstream = down, upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.pause_reading()
        self.opening = self.lane.loop.create_task(self._open())

    async def _open(self) -> None:
        server = _End(self.down)
        server.other, self.other = self, server
        await self.lane.loop.create_connection(lambda: server, *self.upstream)
        self.transport.resume_reading()


async def _relay(upstream: str, round_trip_s: float, bytes_per_s: float) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = upstream.rpartition(":")
    up, down = (_Lane(loop, round_trip_s / 2, bytes_per_s) for _ in range(2))
    server = await loop.create_server(lambda: _Client(up, down, (host, int(port))), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    with suppress(ValueError, OSError):
        await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("upstream", help="host:port")
    parser.add_argument("round_trip_s", type=float)
    parser.add_argument("bytes_per_s", type=float)
    options = parser.parse_args()
    # `select` waits to the microsecond; the default selector rounds up to a millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_relay(options.upstream, options.round_trip_s, options.bytes_per_s))
