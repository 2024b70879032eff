"""The line where there can be no network of our own: a TCP proxy that holds bytes, with the same meter.

What it lacks: packets. There is no slow start, no loss, and no queue that overflows; a connection's handshake is one
round trip added to its first bytes. It waits to the millisecond, so a line of 1 ms is off.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.lab.framing import Talk, Tally
from bench.lab.presets import Line, Preset

__all__ = ["Door", "Running", "command"]

# Bytes of a connection that wait in the proxy, beyond what fills the line.
_SPARE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Door:
    """A port that one client reaches one service by."""

    client: str
    service: str
    port: int
    to_port: int
    line: str
    wait_s: float


class Running:
    """A process that ends when its input does: with `stop`, or with us."""

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        root = Path(__file__).resolve().parents[2]
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                list(words), stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=root
            )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


def command(preset: Preset, meter: Path, doors: Sequence[Door]) -> list[str]:
    """Return the command that starts the proxy."""
    lines = {"outside": asdict(preset.outside), "region": asdict(preset.region)}
    setup = json.dumps({"lines": lines, "doors": [asdict(door) for door in doors]})
    return [sys.executable, "-m", "bench.lab.proxy", str(meter), setup]


class _Direction:
    """The rate of one direction of a line, which all connections share."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s, self.free_at = bytes_per_s, 0.0
        self.nbytes = 0

    def take(self, at: float, nbytes: int) -> float:
        """Take the next place from a time on; return when the bytes are through."""
        self.free_at = max(at, self.free_at) + nbytes / self.bytes_per_s
        self.nbytes += nbytes
        return self.free_at


class _Way:
    """One direction of one connection: bytes come in, wait, and go out in order."""

    def __init__(self, direction: _Direction, line: Line, *, wait_s: float, limit: float | None, heard: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.direction, self.delay_s, self.limit = direction, line.rtt_s / 2 + wait_s, limit
        self.most_bytes = int(line.rtt_s * line.bytes_per_s) + _SPARE_BYTES
        self.heard = heard
        self.held = deque[tuple[float, bytes | None]]()
        self.held_bytes, self.free_at = 0, 0.0
        self.source: asyncio.Transport | None = None
        self.target: asyncio.Transport | None = None

    def come(self, data: bytes | None, late_s: float = 0.0) -> None:
        """Take bytes, or the end (None)."""
        now = self.loop.time() + late_s
        nbytes = len(data or b"")
        if self.limit:
            self.free_at = now = max(now, self.free_at) + nbytes / self.limit
        at = self.direction.take(now, nbytes) + self.delay_s
        self.held.append((at, data))
        self.held_bytes += nbytes
        if len(self.held) == 1:
            self.loop.call_at(at, self._go)
        if self.held_bytes > self.most_bytes and self.source is not None:
            self.source.pause_reading()

    def _go(self) -> None:
        while self.held and self.held[0][0] <= self.loop.time() + 0.0005:
            _, data = self.held.popleft()
            self.held_bytes -= len(data or b"")
            self.heard(data)
            if self.target is None or self.target.is_closing():
                continue
            if data is None:
                self.target.close()
            else:
                self.target.write(data)
        if self.held:
            self.loop.call_at(self.held[0][0], self._go)
        if self.source is not None and self.held_bytes <= self.most_bytes // 2 and not self.source.is_closing():
            self.source.resume_reading()


class _End(asyncio.Protocol):
    """One end of a connection: hands what it receives to a way."""

    def __init__(self, way: _Way, first_late_s: float = 0.0) -> None:
        self.way, self.late_s = way, first_late_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.way.source = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.way.come(data, self.late_s)
        self.late_s = 0.0

    def connection_lost(self, error: Exception | None) -> None:
        self.way.come(None)


class _Proxy:
    """All doors of a lab."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        self.lines = lines
        self.directions = {
            name: (_Direction(line.bytes_per_s), _Direction(line.bytes_per_s)) for name, line in lines.items()
        }
        self.tallies: dict[tuple[str, str], Tally] = {}

    async def open(self, door: Door) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: self._accept(door), "127.0.0.1", door.port, backlog=512)

    def _accept(self, door: Door) -> asyncio.Protocol:
        line, (up, down) = self.lines[door.line], self.directions[door.line]
        talk = Talk(self.tallies.setdefault((door.client, door.service), Tally()))
        to_server = _Way(up, line, wait_s=door.wait_s, limit=None, heard=lambda data: _hear_client(talk, data))
        limit = line.connection_bytes_per_s
        to_client = _Way(down, line, wait_s=0.0, limit=limit, heard=lambda data: _hear_server(talk, data))
        return _Front(door, to_server, to_client, line.rtt_s)

    def read(self) -> bytes:
        clients = [
            {"client": client, "service": service, **tally.now()} for (client, service), tally in self.tallies.items()
        ]
        lines = {
            name: {"to_server": {"bytes": up.nbytes}, "to_client": {"bytes": down.nbytes}}
            for name, (up, down) in self.directions.items()
        }
        return json.dumps({"clients": clients, "lines": lines}).encode()

    def reset(self) -> None:
        for tally in list(self.tallies.values()):
            tally.counts.clear()


class _Front(_End):
    """The client's end. The server's is opened when it is there; what came meanwhile waits on its way."""

    def __init__(self, door: Door, to_server: _Way, to_client: _Way, rtt_s: float) -> None:
        # The handshake is over before a first byte could have been sent.
        super().__init__(to_server, first_late_s=rtt_s)
        self.door, self.to_client = door, to_client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.to_client.target = transport  # type: ignore[assignment]
        self.way.source.pause_reading()
        self.opening = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            back, _ = await loop.create_connection(lambda: _End(self.to_client), "127.0.0.1", self.door.to_port)
        except OSError:
            self.way.source.close()
            return
        self.way.target = back
        if not self.way.source.is_closing():
            self.way.source.resume_reading()


def _hear_client(talk: Talk, data: bytes | None) -> None:
    if data is not None:
        talk.from_client(data)


def _hear_server(talk: Talk, data: bytes | None) -> None:
    if data is None:
        talk.server_ended()
    else:
        talk.from_server(data)


def _answer_meter(path: str, proxy: _Proxy) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(16)
        while True:
            reader, _ = listener.accept()
            with reader:
                asked = reader.recv(64)
                reader.send(proxy.read())
                if asked.startswith(b"reset"):
                    proxy.reset()


async def _serve(meter: str, setup: dict[str, Any]) -> None:
    proxy = _Proxy({name: Line(**fields) for name, fields in setup["lines"].items()})
    for fields in setup["doors"]:
        await proxy.open(Door(**fields))
    threading.Thread(target=_answer_meter, args=(meter, proxy), daemon=True).start()
    await asyncio.to_thread(sys.stdin.buffer.read)
    # Also when the lab's owner was killed.
    shutil.rmtree(Path(meter).parent, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("meter")
    parser.add_argument("setup", type=json.loads)
    options = parser.parse_args()
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(options.meter, options.setup))
