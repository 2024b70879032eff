"""The function as an ASGI application, for `hyperslab serve-function` and any server of that kind."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.functions.answer import Answer, RefusedError, refusal_of, refuse
from hyperslab.functions.config import FunctionConfig
from hyperslab.functions.guard import Memory
from hyperslab.functions.handler import Service, handle
from hyperslab.store.checked import over

__all__ = ["make_app"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Whoever sends or takes slower than that is cut off.
_BODY_S = 30.0
_SEND_S = 300.0
# Requests up to this length always find room.
_SHORT_BYTES = 64 << 10
# Up to this much goes out as one piece.
_JOIN_BYTES = 8 << 20


def make_app(config: FunctionConfig) -> "FunctionApp":
    """Return the application: `POST /` is a call, `GET /health` says that it runs."""
    return FunctionApp(Service(config))


class FunctionApp:
    """An ASGI application that answers calls."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.arriving = Memory(service.config.arriving_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
        self.service.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        if answer is None:  # the caller has gone
            return
        try:
            async with asyncio.timeout(_SEND_S):
                await _send(answer, send)
        finally:
            answer.close()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | None:
        route = (scope["method"], scope["path"])
        if route == ("GET", "/health"):
            text = json.dumps({"status": "ok"}).encode()
            return Answer(200, {"content-type": "application/json", "content-length": str(len(text))}, [text])
        if scope["path"] != "/":
            return refuse(refusal_of(RefusedError(404, "no-such-path", "calls go to '/'")))
        if scope["method"] != "POST":
            return refuse(refusal_of(RefusedError(405, "wrong-method", "a call is a POST")))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        async with AsyncExitStack() as held:
            try:
                body = await self._body(headers, receive, held)
            except (InvalidInputError, RefusedError) as error:
                return refuse(refusal_of(error))
            return None if body is None else await handle(self.service, headers, body)

    async def _body(self, headers: dict[str, str], receive: Receive, held: AsyncExitStack) -> bytes | None:
        """Return the body, None if the caller hung up; one that is too long is refused as soon as that is known.

        A long one waits, with its sender, until there is memory for it; `held` is what it then holds.
        """
        stated = _stated(headers)
        most = self.service.config.limits.body_bytes
        if stated is not None and stated > most:
            raise over("the request's bytes", stated, most)
        most = most if stated is None else stated
        parts: list[bytes] = []
        got, waited = 0, False
        try:
            async with asyncio.timeout(_BODY_S):
                while True:
                    if max(got, stated or 0) > _SHORT_BYTES and not waited:
                        waited = True
                        # Twice, as its parts are put together.
                        nbytes = min(2 * most, self.arriving.limit_bytes)
                        await held.enter_async_context(self.arriving.taken(nbytes))
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    got += len(parts[-1])
                    if got > most:
                        raise over("the request's bytes", got, most)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(408, "slow", f"the request did not arrive within {_BODY_S:.0f} s") from None


def _stated(headers: dict[str, str]) -> int | None:
    """Return how long the request says that it is."""
    text = headers.get("content-length", "")
    return int(text[:18]) if text.isdecimal() else None


async def _send(answer: Answer, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if sum([len(part) for part in answer.parts]) <= _JOIN_BYTES:
        answer.parts = [answer.body]
    for part in answer.parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
