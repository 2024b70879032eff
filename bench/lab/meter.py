"""What the meter has counted, and the difference between two readings."""

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

__all__ = ["CLIENT", "FUNCTION", "Counts", "Reading", "read", "reset"]

CLIENT, FUNCTION = "client", "function"
_NAMES = {"10.77.0.1": CLIENT, "10.77.0.3": FUNCTION}
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Counts:
    """What one client did at one service, from the wire. Bytes are those of bodies.

    `answers` are complete, and `response_bytes` theirs. What a connection's end cut off is `unfinished`; `unknown` are
    messages whose framing could not be followed, so a figure that could be wrong says so. `open` requests still wait.

    >>> (Counts(get=3, response_bytes=100) - Counts(get=1, response_bytes=40)).requests
    2
    """

    get: int = 0
    head: int = 0
    put: int = 0
    post: int = 0
    delete: int = 0
    other: int = 0
    status_2xx: int = 0
    status_3xx: int = 0
    status_4xx: int = 0
    status_5xx: int = 0
    informational: int = 0
    answers: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    unfinished: int = 0
    unfinished_bytes: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    connections: int = 0
    repeated_bytes: int = 0
    packets_up: int = 0
    packets_down: int = 0
    wire_bytes_up: int = 0
    wire_bytes_down: int = 0
    open: int = 0

    @property
    def requests(self) -> int:
        return self.get + self.head + self.put + self.post + self.delete + self.other

    def __sub__(self, earlier: "Counts") -> "Counts":
        return self._with(earlier, -1)

    def __add__(self, other: "Counts") -> "Counts":
        return self._with(other, 1)

    def _with(self, other: "Counts", sign: int) -> "Counts":
        names = [each.name for each in fields(self)]
        # `open` is a level, not a sum over time: of a difference it is the later one's.
        values = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        return Counts(**{**values, "open": self.open if sign < 0 else values["open"]})

    def __str__(self) -> str:
        return ", ".join(f"{each.name} {value:,}" for each in fields(self) if (value := getattr(self, each.name)))


@dataclass(frozen=True, slots=True)
class Reading:
    """All counts at a moment, or between two: by client ("client", "function", an address) and service ("s3", …)."""

    counts: Mapping[tuple[str, str], Counts]
    lines: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str | bytes) -> "Reading":
        found = json.loads(text)
        counts = {}
        for each in found["clients"]:
            client, service = each.pop("client"), each.pop("service")
            counts[_NAMES.get(client, client), service] = Counts(**each)
        return Reading(counts, found["lines"])

    def of(self, service: str = "s3", client: str = CLIENT) -> Counts:
        """Return what a client did at a service."""
        return self.counts.get((client, service), Counts())

    def __iter__(self) -> Iterator[tuple[tuple[str, str], Counts]]:
        return iter(self.counts.items())

    def __sub__(self, earlier: "Reading") -> "Reading":
        differences = {key: counts - earlier.counts.get(key, Counts()) for key, counts in self.counts.items()}
        return Reading(differences, self.lines)


def read(path: Path) -> Reading:
    """Return what the meter at a socket has counted so far."""
    return Reading.parse(_ask(path, b"read"))


def reset(path: Path) -> Reading:
    """Return what the meter has counted, and begin anew."""
    return Reading.parse(_ask(path, b"reset"))


def _ask(path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.send(command)
        return connection.recv(_MOST_BYTES)
