"""The lab's provider of functions: `hyperslab serve-function` with instances, cold starts and a limit around it.

The function itself is `hyperslab.functions.asgi`, with its settings from `HYPERSLAB_FUNCTION_*` as anywhere else. Each
call takes an instance of it, or waits for a cold one, or is refused. `/lab/instances` tells what happened (GET), and
lets all idle ones go (DELETE): for those beside it, no part of a provider.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.lab.presets import Provider

__all__ = ["Billed", "Instances", "LabFunction"]

Message = MutableMapping[str, Any]
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
    """An ASGI application: another one behind instances."""

    def __init__(self, app: App, provider: Provider) -> None:
        self.app, self.instances = app, Instances(provider)

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
                await self.app(scope, receive, send)
            finally:
                self.instances.give_back(began)


async def _answer(send: Any, status: int, content: Any, retry_after_s: int | None = None) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [] if retry_after_s is None else [(b"retry-after", str(retry_after_s).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
    app = LabFunction(make_app(function_config()), Provider(**json.loads(options.provider)))
    uvicorn.run(
        app, host=options.host, port=options.port, log_level="warning", access_log=False, timeout_keep_alive=600
    )


if __name__ == "__main__":
    main()
