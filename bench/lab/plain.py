"""A plain HTTP server and a plain client, to try the lab's lines with: nothing of Hyperslab, as little work as can be.

The server answers `GET /n` with n bytes. The client prints one JSON line with what it measured.
"""

import asyncio
import json
import selectors
import socket
import statistics
import sys
import time

__all__ = ["bandwidth", "latency", "serve"]

_SLICE = bytes(1 << 18)
_ENDLESS_BYTES = 1 << 40
# Requests are spread over time, so that what is measured is the line and not the work of this client.
_REQUESTS_PER_S = 100
_LEAST_REQUESTS = 30


class _Answers(asyncio.Protocol):
    """Answers one request after another."""

    def __init__(self) -> None:
        self.left, self.paused, self.received = 0, False, b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=1 << 20)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            nbytes = int(head.split(b" ", 2)[1].strip(b"/") or b"0")
            start = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % nbytes
            if nbytes <= len(_SLICE):
                self.transport.write(start + _SLICE[:nbytes])
                continue
            self.transport.write(start)
            self.left += nbytes
            self._send()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._send()

    def _send(self) -> None:
        while self.left and not self.paused and not self.transport.is_closing():
            step = min(self.left, len(_SLICE))
            self.left -= step
            self.transport.write(_SLICE if step == len(_SLICE) else _SLICE[:step])


async def serve(host: str, port: int) -> None:
    """Serve until cancelled."""
    server = await asyncio.get_running_loop().create_server(_Answers, host, port, backlog=1024)
    print("up", flush=True)
    await server.serve_forever()


def _connect(host: str, port: int, count: int) -> list[socket.socket]:
    """Open connections, all at the same time."""
    opened = [socket.socket() for _ in range(count)]
    with selectors.DefaultSelector() as selector:
        for each in opened:
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.connect_ex((host, port))
            selector.register(each, selectors.EVENT_WRITE)
        while selector.get_map():
            for key, _ in selector.select(30):
                selector.unregister(key.fileobj)
                if error := key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, "no connection to the plain server")
    return opened


def latency(host: str, port: int, connections: int) -> float:
    """Return the seconds from a request on an open connection to its answer of 1 byte: the median."""
    opened = _connect(host, port, connections)
    selector = selectors.DefaultSelector()
    for each in opened:
        selector.register(each, selectors.EVENT_READ)
    sent: dict[socket.socket, float] = {}
    took: list[float] = []
    total = max(connections, _LEAST_REQUESTS)
    started, number = time.perf_counter(), 0
    while len(took) < total:
        now = time.perf_counter()
        free = opened[number % connections] not in sent
        if number < total and free and now >= started + number / _REQUESTS_PER_S:
            sent[opened[number % connections]] = now
            opened[number % connections].send(b"GET /1 HTTP/1.1\r\nHost: lab\r\n\r\n")
            number += 1
        wait = max(0.0, started + number / _REQUESTS_PER_S - time.perf_counter()) if number < total and free else 1.0
        for key, _ in selector.select(wait):
            if key.fileobj.recv(4096) and key.fileobj in sent:
                took.append(time.perf_counter() - sent.pop(key.fileobj))
    _close(selector, opened)
    return statistics.median(took)


def bandwidth(host: str, port: int, connections: int, *, warm_s: float, window_s: float) -> float:
    """Return the bytes per second that arrive over connections which all read without end, once they are warm."""
    opened = _connect(host, port, connections)
    selector = selectors.DefaultSelector()
    buffer = bytearray(1 << 20)
    for each in opened:
        each.send(b"GET /%d HTTP/1.1\r\nHost: lab\r\n\r\n" % _ENDLESS_BYTES)
        selector.register(each, selectors.EVENT_READ)
    begin = time.perf_counter() + warm_s
    nbytes, first, now = 0, None, 0.0
    while now < begin + window_s:
        for key, _ in selector.select(1.0):
            nbytes += key.fileobj.recv_into(buffer)
        now = time.perf_counter()
        if first is None and now >= begin:
            first, nbytes = now, 0
    _close(selector, opened)
    return nbytes / (now - first) if first is not None else 0.0


def _close(selector: selectors.BaseSelector, opened: list[socket.socket]) -> None:
    selector.close()
    for each in opened:
        each.close()


if __name__ == "__main__":
    what, host, port, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(host, int(port)))
    elif what == "latency":
        print(json.dumps(latency(host, int(port), int(rest[0]))))
    else:
        print(json.dumps(bandwidth(host, int(port), int(rest[0]), warm_s=float(rest[1]), window_s=float(rest[2]))))
