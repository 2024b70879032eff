"""A web server that answers as a test tells it, byte by byte, and remembers what it was sent."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Sent:
    """A request as it came; names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """What is answered. `stated` is the length that is told (None: the true one), `chunked` tells none.

    After `pause_at` bytes the server waits until the test is over.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    stated: int | None = None
    chunked: bool = False
    pause_at: int | None = None


class _Patient(ThreadingHTTPServer):
    """Lets many callers wait; by default the sixth would be turned away for a second."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: Any) -> None:
        return  # a caller that hung up


class ScriptedServer:
    """Answers each POST with what `script` returns for it."""

    def __init__(self, script: Callable[[Sent], Scripted]) -> None:
        self.script = script
        self.requests: list[Sent] = []
        self._over = threading.Event()
        self._server = _Patient(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                sent = Sent(self.command, self.path, headers, body)
                server.requests.append(sent)
                with suppress(OSError):  # the caller may hang up
                    self.give(server.script(sent))

            def give(self, answer: Scripted) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                stated = len(answer.body) if answer.stated is None else answer.stated
                how = ("transfer-encoding", "chunked") if answer.chunked else ("content-length", str(stated))
                self.send_header(*how)
                self.end_headers()
                part = answer.body[: answer.pause_at]
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(part), part) if answer.chunked else part)
                self.wfile.flush()
                if answer.pause_at is not None:
                    server._over.wait(30)
                if stated != len(part):
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                return

        return Handler
