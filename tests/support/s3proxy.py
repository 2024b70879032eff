"""A loopback HTTP server between client and store: logs every request, adds latency, misbehaves on demand.

Behind it is a real server (`S3Proxy(upstream="127.0.0.1:8333")`) or, without one, a fake: `FakeS3`, or `fake`. The
request's head goes on byte for byte, as the client has signed all of it; so for "ignore_range" with a
real server behind, the proxy needs a way of its own to the whole object (`whole`). The log is exact:
what came, what status went back, and how many bytes of body were sent.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import unquote
from weakref import WeakSet

from support.fake_s3 import Answer, FakeS3, error_answer

Action = Literal[
    "status",  # answer `status` with S3's error `code`, without forwarding
    "ignore_range",  # forward without Range: 200 and the whole object
    "truncate",  # right Content-Length, but the connection closes after `after_bytes` of body
    "stall",  # accept, never answer
    "stall_body",  # send `after_bytes` of body, then nothing more
    "drop",  # forward, then close without an answer
    "garbage",  # something that is not HTTP
    "headers",  # answer with `headers` set (or, where None, removed)
    "run",  # call `run()`, then forward: to change the object between requests
]


@dataclass(frozen=True, slots=True)
class Logged:
    """One request, as the server saw it. `body_bytes` is what was sent back, not what was promised."""

    method: str
    path: str
    query: str
    range: str | None
    if_match: str | None
    status: int
    body_bytes: int

    @property
    def key(self) -> str:
        """The object's name without its bucket."""
        return unquote(self.path).lstrip("/").partition("/")[2]


@dataclass
class Rule:
    """What to do to requests whose key contains `key`: after `skip` of them, to `times` of them."""

    action: Action
    key: str = ""
    method: str = "GET"
    times: int | None = None
    skip: int = 0
    status: int = 500
    code: str = "InternalError"
    extra: str = ""
    after_bytes: int = 0
    headers: dict[str, str | None] = field(default_factory=dict)
    run: Callable[[], object] | None = None

    def takes(self, method: str, path: str) -> bool:
        if method != self.method or self.key not in unquote(path) or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass
class _Request:
    method: str
    target: str
    head: bytes
    headers: dict[str, str]
    body: bytes


class S3Proxy:
    """Runs in a thread of its own from `with` to the end of it.

    >>> with S3Proxy() as proxy:
    ...     proxy.fake.objects["bucket/a"] = b"0123"
    ...     proxy.rules.append(Rule("status", status=503, code="SlowDown", times=1))
    """

    def __init__(
        self,
        upstream: str | None = None,
        *,
        latency_s: float = 0.0,
        whole: Callable[[str], bytes] | None = None,
        fake: Any = None,
    ) -> None:
        self.upstream = upstream
        self.whole = whole
        self.latency_s = latency_s
        self.fake = FakeS3() if fake is None else fake
        self.rules: list[Rule] = []
        self.log: list[Logged] = []
        self.connections = 0
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3proxy", daemon=True)

    def __enter__(self) -> "S3Proxy":
        self._thread.start()
        self._server = self._wait(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20, backlog=512))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def clear(self) -> None:
        """Forget log and rules."""
        self.log.clear()
        self.rules.clear()

    def close_server(self) -> None:
        """Accept nobody any more, and end the connections that there are."""

        async def close() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()

        self._wait(close())

    def gets(self) -> list[Logged]:
        """The requests for objects, without listings."""
        return [entry for entry in self.log if entry.method == "GET" and "list-type" not in entry.query]

    def _wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _shut(self) -> None:
        # Those who have just connected begin first: one that never began, or that finds the server closed, would leave
        # its socket open. Nobody else is let in.
        for socket in self._server.sockets:
            self._loop.remove_reader(socket.fileno())
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0.01)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()
        for _, writer in self._idle:
            writer.close()
        # Those that wait for a client to take what was sent, as well.
        for writer in self._accepted:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._accepted.add(writer)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve_one(reader, writer):
                    pass
                writer.close()
        finally:
            self._tasks.discard(task)
            if not writer.is_closing():
                writer.transport.abort()  # nobody reads what is still to be sent

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection goes on."""
        request = await _read_request(reader)
        if request is None:
            return False
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        path = request.target.partition("?")[0]
        rule = next((rule for rule in self.rules if rule.takes(request.method, path)), None)
        action = rule.action if rule else None
        if rule is not None and action in ("stall", "garbage", "drop"):
            return await self._no_answer(rule, request, writer)
        if rule is not None and rule.run is not None:
            await asyncio.to_thread(rule.run)
        if rule is not None and action == "status":
            answer = error_answer(rule.status, rule.code, rule.extra)
        else:
            answer = await self._forward(request, ignore_range=action == "ignore_range")
        if rule is not None:
            for name, value in rule.headers.items():
                answer.headers.pop(name, None)
                if value is not None:
                    answer.headers[name] = value
        return await self._send(request, answer, rule, writer)

    async def _no_answer(self, rule: Rule, request: _Request, writer: asyncio.StreamWriter) -> bool:
        if rule.action == "drop":
            await self._forward(request)
        self._note(request, 0, 0)
        if rule.action == "stall":
            await asyncio.sleep(3600)
        if rule.action == "garbage":
            writer.write(b"\x00\xffNOT HTTP AT ALL\r\n\r\n")
            await writer.drain()
        return False

    async def _send(self, request: _Request, answer: Answer, rule: Rule | None, writer: asyncio.StreamWriter) -> bool:
        cut = rule is not None and rule.action in ("truncate", "stall_body")
        body = b"" if request.method == "HEAD" else answer.body
        sent = body[: rule.after_bytes] if rule is not None and cut else body
        known = {name.lower() for name in answer.headers}
        headers = {} if "content-length" in known else {"Content-Length": str(len(answer.body))}
        headers |= answer.headers
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        # Logged before it is sent: a client that has the answer finds it in the log.
        self._note(request, answer.status, len(sent))
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        writer.write(sent)
        await writer.drain()
        if rule is not None and rule.action == "stall_body":
            await asyncio.sleep(3600)
        return not cut and request.headers.get("connection", "").lower() != "close"

    def _note(self, request: _Request, status: int, nbytes: int) -> None:
        path, _, query = request.target.partition("?")
        asked, pinned = request.headers.get("range"), request.headers.get("if-match")
        self.log.append(Logged(request.method, path, query, asked, pinned, status, nbytes))

    async def _forward(self, request: _Request, *, ignore_range: bool = False) -> Answer:
        if self.upstream is None:
            headers = {k: v for k, v in request.headers.items() if k != "range" or not ignore_range}
            return self.fake.answer(request.method, request.target, headers, request.body)
        if ignore_range:
            assert self.whole is not None, "ignore_range needs S3Proxy(whole=...)"
            key = unquote(request.target.partition("?")[0]).lstrip("/").partition("/")[2]
            about = {"ETag": '"whole"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
            return Answer(200, about, await asyncio.to_thread(self.whole, key))
        while True:
            fresh = not self._idle
            reader, writer = await self._upstream() if fresh else self._idle.pop()
            try:
                writer.write(request.head + request.body)
                answer = await _read_answer(reader, request.method)
            except (ConnectionError, asyncio.IncompleteReadError):
                writer.close()
                if fresh:
                    return error_answer(502, "BadGateway")
                continue  # a kept connection had been closed meanwhile
            except BaseException:
                writer.close()
                raise
            self._idle.append((reader, writer))
            return answer

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = str(self.upstream).rpartition(":")
        return await asyncio.open_connection(host, int(port), limit=1 << 20)


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, headers = _parse(head)
    method, target, _ = first.split(" ", 2)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return _Request(method, target, head, headers, body)


async def _read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, lower = _parse(head)
    status = int(first.split(" ")[1])
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif lower.get("transfer-encoding") == "chunked":
        body = await _read_chunked(reader)
    else:
        body = await reader.readexactly(int(lower.get("content-length", 0)))
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    headers.pop("Transfer-Encoding", None)
    return Answer(status, headers, body)


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        parts.append((await reader.readexactly(size + 2))[:-2])
        if size == 0:
            return b"".join(parts)


def _parse(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}
