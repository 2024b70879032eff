"""The lab's provider of functions: `hyperslab serve-function` with instances, cold starts and a limit around it.

The function itself is `hyperslab.functions.asgi`, with its settings from `HYPERSLAB_FUNCTION_*` as anywhere else. Each
call takes an instance of it, or waits for a cold one, or is refused. `/lab/instances` tells what happened (GET), and
lets all idle ones go (DELETE): for those beside it, no part of a provider.

A second function is at hand on `/whole`, behind the same instances: the benchmark's peer that answers a whole query in
one call. It is made at its first call.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.lab.presets import Provider

__all__ = ["Billed", "Instances", "LabFunction"]

Message = MutableMapping[str, Any]
# More than the header of an answer has, whatever it answers.
_HEADER_BYTES = 1 << 20

App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Billed:
    """What the provider has seen: calls by how they began, those refused, and the seconds that are billed for all."""

    warm: int = 0
    cold: int = 0
    refused: int = 0
    seconds: float = 0.0
    most_at_once: int = 0

    @property
    def calls(self) -> int:
        return self.warm + self.cold

    def __sub__(self, earlier: "Billed") -> "Billed":
        return Billed(
            self.warm - earlier.warm, self.cold - earlier.cold, self.refused - earlier.refused,
            self.seconds - earlier.seconds, self.most_at_once,
        )  # fmt: skip


class Instances:
    """Instances of a function: each runs one call at a time."""

    def __init__(self, provider: Provider) -> None:
        self.provider, self.billed = provider, Billed()
        self._idle_since: list[float] = []
        self._busy = 0

    async def take(self) -> float | None:
        """Take an instance, waiting for its start if it is a new one; return when that began, None if there is none."""
        began = time.monotonic()
        self._idle_since = [since for since in self._idle_since if began - since < self.provider.idle_s]
        if self._busy >= self.provider.instances:
            self.billed = replace(self.billed, refused=self.billed.refused + 1)
            return None
        self._busy += 1
        most = max(self.billed.most_at_once, self._busy)
        if self._idle_since:
            self._idle_since.pop()
            self.billed = replace(self.billed, warm=self.billed.warm + 1, most_at_once=most)
        else:
            self.billed = replace(self.billed, cold=self.billed.cold + 1, most_at_once=most)
            await asyncio.sleep(self.provider.cold_s)
        return began

    def give_back(self, began: float) -> None:
        """Give an instance back; its call is billed in whole milliseconds, its cold start included."""
        now = time.monotonic()
        self._busy -= 1
        self._idle_since.append(now)
        seconds = math.ceil((now - began) * 1000) / 1000
        self.billed = replace(self.billed, seconds=self.billed.seconds + seconds)

    def let_go(self) -> None:
        """Forget the idle ones: the next call is a cold one."""
        self._idle_since.clear()


class LabFunction:
    """An ASGI application: another one behind instances.

    `more` makes the functions of further paths, each at its first call.
    """

    def __init__(self, app: App, provider: Provider, more: Mapping[str, Callable[[], App]] | None = None) -> None:
        self.app, self.instances = app, Instances(provider)
        self._more, self._made = more or {}, dict[str, App]()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] == "/health":
            await self.app(scope, receive, send)
        elif scope["path"] == "/lab/instances":
            if scope["method"] == "DELETE":
                self.instances.let_go()
            await _answer(send, 200, asdict(self.instances.billed))
        elif (began := await self.instances.take()) is None:
            message = f"all {self.instances.provider.instances} instances are busy"
            await _answer(send, 429, {"error": "throttled", "message": message}, retry_after_s=1)
        else:
            try:
                await self._called(scope["path"])(scope, receive, _Paced(send, self.instances.provider.bytes_per_s))
            finally:
                self.instances.give_back(began)

    def _called(self, path: str) -> App:
        if path not in self._more:
            return self.app
        if path not in self._made:
            self._made[path] = self._more[path]()
        return self._made[path]


class _Paced:
    """Sends an answer no sooner than an instance could have read what it is made of.

    The line limits a connection, an instance has as many as it likes. What was read an answer says itself: in its
    header, or in the field `x-read-bytes`.
    """

    def __init__(self, send: Callable[[Message], Awaitable[None]], bytes_per_s: float) -> None:
        self._send, self._bytes_per_s, self._began = send, bytes_per_s, time.monotonic()
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is not None:
            read_bytes = _read_bytes(self._start, bytes(message.get("body", b"")[:_HEADER_BYTES]))
            await asyncio.sleep(max(0.0, self._began + read_bytes / self._bytes_per_s - time.monotonic()))
            await self._send(self._start)
            self._start = None
        await self._send(message)


def _read_bytes(start: Message, body: bytes) -> int:
    if body[:4] == b"HSC1":
        nbytes = int.from_bytes(body[4:8], "little")
        return int(json.loads(body[8 : 8 + nbytes])["read_bytes"]) if 8 + nbytes <= len(body) else 0
    return int(dict(start["headers"]).get(b"x-read-bytes", 0))


async def _answer(send: Any, status: int, content: Any, retry_after_s: int | None = None) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [] if retry_after_s is None else [(b"retry-after", str(retry_after_s).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _whole_call() -> App:
    from bench.peers.systems.whole_call_app import from_environment

    return from_environment()


def end_with_input() -> None:
    """End this process when its input does: with whoever started it."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    import uvicorn

    from hyperslab.functions.asgi import make_app
    from hyperslab.functions.config import function_config

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("provider", help="its figures, as JSON")
    parser.add_argument("--end-with-input", action="store_true")
    options = parser.parse_args()
    if options.end_with_input:
        end_with_input()
    provider = Provider(**json.loads(options.provider))
    app = LabFunction(make_app(function_config()), provider, {"/whole": _whole_call})
    uvicorn.run(
        app, host=options.host, port=options.port, log_level="warning", access_log=False, timeout_keep_alive=600
    )


if __name__ == "__main__":
    main()
