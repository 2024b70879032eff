"""Both meters follow HTTP/1.1 alike: the one on the wire, and the proxy's."""

import socket
import time
from dataclasses import dataclass, field

import pytest

from bench.lab.framing import Talk, Tally

GET = b"GET /a HTTP/1.1\r\nHost: lab\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


def got(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


@dataclass
class Case:
    """What the client says, what the server then says, and what must be counted. `turns`: several of both."""

    name: str
    turns: list[tuple[bytes, bytes]]
    counts: dict[str, int] = field(default_factory=dict)
    server_closes: bool = False


CASES = [
    Case("length", [(GET, got(b"x" * 5000))], {"get": 1, "status_2xx": 1, "answers": 1, "response_bytes": 5000}),
    Case("nothing", [(GET, got(b""))], {"get": 1, "status_2xx": 1, "answers": 1}),
    Case("keep-alive", [(GET, got(b"abc"))] * 3, {"get": 3, "status_2xx": 3, "answers": 3, "response_bytes": 9}),
    Case(
        "pipelined",
        [(GET + GET.replace(b"GET", b"HEAD") + GET, got(b"abc") + got(b"")[:-4] + b"\r\n\r\n" + got(b"de"))],
        {"get": 2, "head": 1, "status_2xx": 3, "answers": 3, "response_bytes": 5},
    ),
    Case(
        "head with a length",
        [(b"HEAD /a HTTP/1.1\r\n\r\n", OK + b"content-length: 999\r\n\r\n"), (GET, got(b"ab"))],
        {"head": 1, "get": 1, "status_2xx": 2, "answers": 2, "response_bytes": 2},
    ),
    Case(
        "chunked",
        [
            (
                GET,
                OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nA;note=1\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
            ),
            (GET, got(b"ab")),
        ],
        {"get": 2, "status_2xx": 2, "answers": 2, "response_bytes": 17},
    ),
    Case(
        "204 and 304 have no body",
        [
            (b"DELETE /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"),
            (GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
            (GET, got(b"ab")),
        ],
        {"delete": 1, "get": 2, "status_2xx": 2, "status_3xx": 1, "answers": 3, "response_bytes": 2},
    ),
    Case(
        "bodies of requests",
        [
            (b"PUT /a HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", got(b"")),
            (b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", got(b"xy")),
        ],
        {"put": 1, "post": 1, "request_bytes": 7, "status_2xx": 2, "answers": 2, "response_bytes": 2},
    ),
    Case(
        "continue",
        [
            (b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
            (b"abc", got(b"")),
        ],
        {"put": 1, "request_bytes": 3, "informational": 1, "status_2xx": 1, "answers": 1},
    ),
    Case(
        "refused before the body",
        [
            (
                b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
                b"HTTP/1.1 412 Failed\r\nContent-Length: 0\r\n\r\n",
            ),
            (GET, got(b"ab")),
        ],
        {"put": 1, "get": 1, "status_4xx": 1, "status_2xx": 1, "answers": 2, "response_bytes": 2},
    ),
    Case(
        "errors",
        [
            (GET, b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
            (GET, b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
        ],
        {"get": 2, "status_4xx": 1, "status_5xx": 1, "answers": 2, "response_bytes": 2},
    ),
    Case("another method", [(b"OPTIONS * HTTP/1.1\r\n\r\n", got(b""))], {"other": 1, "status_2xx": 1, "answers": 1}),
    Case(
        "until the end",
        [(GET, OK + b"\r\n" + b"x" * 3000)],
        {"get": 1, "status_2xx": 1, "answers": 1, "response_bytes": 3000},
        server_closes=True,
    ),
    Case(
        "cut off",
        [(GET, OK + b"Content-Length: 100\r\n\r\n" + b"x" * 30)],
        {"get": 1, "status_2xx": 1, "unfinished": 1, "unfinished_bytes": 30},
        server_closes=True,
    ),
    Case("no answer", [(GET, b"")], {"get": 1, "unfinished": 1}, server_closes=True),
    Case(
        "chunks that are none",
        [(GET, OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")],
        {"get": 1, "status_2xx": 1, "unknown": 1, "unfinished": 1},
        server_closes=True,
    ),
    Case(
        "two lengths",
        [(GET, OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")],
        {"get": 1, "status_2xx": 1, "unknown": 1, "unfinished": 1},
        server_closes=True,
    ),
    Case("not HTTP", [(b"\x16\x03\x01\x02\x00\r\n\r\n", b"")], {"unknown": 1}, server_closes=True),
    Case(
        "an answer that nobody asked for",
        [(GET, got(b"a")), (b"", got(b"b"))],
        {"get": 1, "status_2xx": 1, "answers": 1, "response_bytes": 1, "unknown": 1},
        server_closes=True,
    ),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
CHECKED = [
    "get", "head", "put", "post", "delete", "other", "status_2xx", "status_3xx", "status_4xx", "status_5xx",
    "informational", "answers", "request_bytes", "response_bytes", "unfinished", "unfinished_bytes", "unknown",
    "connections", "open",
]  # fmt: skip


def expected(case: Case) -> dict[str, int]:
    return {**dict.fromkeys(CHECKED, 0), "connections": 1, **case.counts}


def send(from_: socket.socket, to: socket.socket, data: bytes, step: int) -> None:
    for start in range(0, len(data), step):
        from_.sendall(data[start : start + step])
    left = len(data)
    while left:
        left -= len(to.recv(left))


@each_case
@pytest.mark.parametrize("step", [100_000, 7])
def test_the_wire_counts(wire, case, step):
    wire.counts()
    client, server = wire.connect()
    for asked, answered in case.turns:
        send(client, server, asked, step)
        send(server, client, answered, step)
    if case.server_closes:
        server.close()
        assert client.recv(1) == b""
    counts = wire.counts()
    client.close()
    server.close()
    assert {name: getattr(counts, name) for name in CHECKED} == expected(case)


@each_case
@pytest.mark.parametrize("step", [100_000, 7, 1])
def test_the_proxy_counts_the_same(case, step):
    tally = Tally()
    talk = Talk(tally)
    for asked, answered in case.turns:
        for start in range(0, len(asked), step):
            talk.from_client(asked[start : start + step])
        for start in range(0, len(answered), step):
            talk.from_server(answered[start : start + step])
    if case.server_closes:
        talk.server_ended()
    assert {name: tally.now().get(name, 0) for name in CHECKED} == expected(case)


def test_a_client_that_resets_leaves_an_answer_unfinished(wire):
    wire.counts()
    client, server = wire.connect()
    send(client, server, GET, 100)
    send(server, client, OK + b"Content-Length: 100\r\n\r\nabc", 100)
    assert wire.counts().open == 1
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    with pytest.raises(ConnectionResetError):
        server.recv(1)
    server.close()
    counts = wire.counts()
    assert (counts.unfinished, counts.unfinished_bytes, counts.open) == (1, 3, 0)


def test_clients_are_told_apart_by_address(wire):
    wire.counts()
    before = wire.before
    for source, nbytes in (("10.77.0.11", 10), ("10.77.0.12", 20), (None, 30)):
        client, server = wire.connect(source)
        send(client, server, GET, 100)
        send(server, client, got(b"x" * nbytes), 1000)
        client.close()
        server.close()
    used = wire.lab.meter() - before
    found = [used.of("plain", name).response_bytes for name in ("10.77.0.11", "10.77.0.12", "client")]
    assert found == [10, 20, 30]


def test_reset_begins_anew(wire):
    client, server = wire.connect()
    send(client, server, GET, 100)
    assert wire.lab.reset_meter().of("plain").get >= 1
    send(server, client, got(b"abc"), 1000)
    client.close()
    server.close()
    counts = wire.lab.meter().of("plain")
    assert (counts.get, counts.answers, counts.response_bytes) == (0, 1, 3)
    wire.before = wire.lab.meter()


def test_bytes_wait_as_long_as_the_preset_says(wire):
    client, server = wire.connect()
    began = time.monotonic()
    send(client, server, GET, 100)
    send(server, client, got(b"x"), 1000)
    took_s = time.monotonic() - began
    client.close()
    server.close()
    assert took_s >= wire.lab.preset.latency_s
