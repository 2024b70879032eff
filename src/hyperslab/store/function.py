"""Calls of a function beside the data: one POST each, its answer checked, no secrets in what it says."""

import asyncio
import json
import math
import os
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from hyperslab.errors import FunctionError, IntegrityError, InternalError, UnsupportedError
from hyperslab.store import runtime
from hyperslab.store.call import CallReply, CallRequest
from hyperslab.store.callee import Function
from hyperslab.store.signing import SigningKey, sign
from hyperslab.store.sigv4 import AwsLogin, read_login, sign_aws

__all__ = ["Function", "FunctionClient"]

# A connection is kept for so long between calls: a new one takes round trips until it is up to speed.
_KEEP_S = 90.0

# What a reply holds beside its cells: for itself, and for each chunk (sizes, and an ETag of 512 characters at most).
_REPLY_BYTES = 1024
_CHUNK_BYTES = 600
# Of an answer that is no reply, this much is looked at for the reason.
_REASON_BYTES = 64 << 10
# Bytes that wait in a connection until they are taken: with less, a reply of 1 MB is passed on in many small parts.
_WAITING_BYTES = 1 << 20
# From here on a reply is checked in a thread: it would hold up the other calls for milliseconds.
_THREAD_BYTES = 1 << 20
_MOST_RETRY_AFTER_S = 3600.0


@dataclass(slots=True)
class _Arriving:
    """An answer as far as it is there."""

    nbytes: int = 0
    status: int | None = None
    retry_after_s: float | None = None


class FunctionClient:
    """Connections to one function, for the event loop that makes the first call.

    A forked child gets connections of its own.
    """

    def __init__(self, function: Function, *, connections: int = 256) -> None:
        self.function = function
        self._connections = connections
        self._session: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._login: AwsLogin | None = None

    async def acall(self, request: CallRequest, *, timeout_s: float, limit_bytes: int) -> tuple[CallReply, int]:
        """Send one POST, and return the reply with the bytes of its body as they came.

        At most `limit_bytes` are taken. Whatever fails is a FunctionError, which says how much had arrived.
        """
        if self.function.compress and not request.compress:
            request = replace(request, compress=True)
        limit_bytes = min(limit_bytes, _most_bytes(request))
        body, arriving = request.pack(), _Arriving()
        async with self._failing_well(arriving, timeout_s):
            data = await self._post(body, arriving, limit_bytes)
            if len(data) < _THREAD_BYTES:
                reply = CallReply.unpack(memoryview(data), request, limit_bytes)
            else:
                reply = await asyncio.to_thread(CallReply.unpack, memoryview(data), request, limit_bytes)
        return reply, arriving.nbytes

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is None:
            return
        if self._pid == os.getpid():
            await session.close()
        else:
            runtime.keep_forever(session)

    async def _post(self, body: bytes, arriving: _Arriving, limit_bytes: int) -> bytearray:
        session = self._connect()
        url = self.function.url
        async with session.post(
            url, data=BytesIO(body), headers=self._headers(body), allow_redirects=False, proxy=_proxy(url)
        ) as answer:
            arriving.status = answer.status
            arriving.retry_after_s = _retry_after_s(answer.headers.get("retry-after"))
            if answer.status != 200:
                if answer.status in (401, 403):
                    self._login = None  # it may have expired
                raise self._refused(await _start(answer, arriving), arriving)
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise IntegrityError("the function's answer was re-encoded on its way; call it by its own URL")
            return await _whole(answer, arriving, limit_bytes)

    def _headers(self, body: bytes) -> dict[str, str]:
        # Providers pass text on as text: what is compressed must not be taken for it.
        kind = "application/json" if body.startswith(b"{") else "application/octet-stream"
        headers = {"content-type": kind, **(self.function.headers or {})}
        if isinstance(self.function.key, SigningKey):
            headers |= sign(self.function.key, body, now=time.time(), nonce=secrets.token_urlsafe(16))
        if self.function.auth == "aws":
            if self._login is None:
                self._login = read_login(self.function.url)
            headers |= sign_aws(self._login, self.function.url, headers, body, now=time.time())
        return headers

    def _connect(self) -> Any:
        if self._session is not None and self._pid == os.getpid():
            if self._loop is not asyncio.get_running_loop():
                raise InternalError("the client of a function belongs to another event loop; make one for each")
            return self._session
        if self._session is not None:
            runtime.keep_forever(self._session)  # of the parent: closing it would end the parent's connections
        aiohttp = _aiohttp()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEP_S),
            # A call's own time counts, nothing is unpacked on the way, and nothing is remembered between calls.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept-encoding": "identity", "user-agent": "hyperslab"},
            read_bufsize=_WAITING_BYTES,
        )
        self._pid, self._loop = os.getpid(), asyncio.get_running_loop()
        return self._session

    @asynccontextmanager
    async def _failing_well(self, arriving: _Arriving, timeout_s: float) -> AsyncIterator[None]:
        """Turn all that can go wrong between two machines into one kind of error."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            if isinstance(error, FunctionError):
                raise
            raise self._error(f"did not answer within {timeout_s:g} s", arriving, transient=True) from None
        except IntegrityError as error:
            raise FunctionError(str(error), status=arriving.status, nbytes=arriving.nbytes) from error
        except ssl.SSLCertVerificationError:
            raise self._error("has a certificate that is not trusted; check SSL_CERT_FILE", arriving) from None
        except Exception as error:
            if not _is_network(error):
                raise
            raise self._error(_broken(error), arriving, transient=True) from None

    def _refused(self, start: bytes, arriving: _Arriving) -> FunctionError:
        """Return the error for an answer that is no reply."""
        status = arriving.status or 0
        if 300 <= status < 400:
            return self._error(f"answered {status}, a redirect; give the URL that it leads to", arriving)
        reason = _reason(start)
        text = f"answered {status}" + (f": {reason}" if reason else "")
        passing = status in (408, 425, 429) or (status >= 500 and status != 501)
        return self._error(text, arriving, transient=passing)

    def _error(self, what: str, arriving: _Arriving, *, transient: bool = False) -> FunctionError:
        return FunctionError(
            f"the function at {self.function.url} {what}",
            status=arriving.status,
            retry_after_s=arriving.retry_after_s,
            nbytes=arriving.nbytes,
            transient=transient,
        )


def _aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError:
        raise UnsupportedError(
            "functions are called with aiohttp, which is not installed; run `pip install 'hyperslab[function]'`"
        ) from None
    return aiohttp


async def _whole(answer: Any, arriving: _Arriving, limit_bytes: int) -> bytearray:
    """Return the whole body in one buffer; one that is longer than it may be is not taken."""
    told = answer.content_length
    if told is not None and told > limit_bytes:
        raise _too_long(limit_bytes)
    data = bytearray(told or 0)
    async for part in answer.content.iter_any():
        stop = arriving.nbytes + len(part)
        if stop > (limit_bytes if told is None else told):
            raise _too_long(limit_bytes)
        data[arriving.nbytes : stop] = part
        arriving.nbytes = stop
    if told is not None and arriving.nbytes != told:
        raise IntegrityError(f"the function's answer ended after {arriving.nbytes:,} of {told:,} bytes; call again")
    return data


async def _start(answer: Any, arriving: _Arriving) -> bytes:
    parts = []
    async for part in answer.content.iter_any():
        parts.append(part)
        arriving.nbytes += len(part)
        if arriving.nbytes > _REASON_BYTES:
            break
    return b"".join(parts)[:_REASON_BYTES]


def _reason(start: bytes) -> str:
    """Return what our own function says about a failure, '' for what others say: that may be a whole page."""
    try:
        told = json.loads(start)["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return "".join([c if c.isprintable() else " " for c in told[:500]]) if isinstance(told, str) else ""


def _too_long(limit_bytes: int) -> IntegrityError:
    return IntegrityError(
        f"the function's answer is longer than the {limit_bytes:,} bytes that may come; is the URL that of one of ours?"
    )


def _most_bytes(request: CallRequest) -> int:
    """Return how long an honest reply can be."""
    cells = sum([request.result_nbytes(number) for number in range(len(request.chunks))])
    return cells + _REPLY_BYTES + _CHUNK_BYTES * len(request.chunks)


def _is_network(error: Exception) -> bool:
    """Whether it was the connection that failed, and not a mistake of ours."""
    if isinstance(error, _aiohttp().ClientError | ConnectionError | ssl.SSLError):
        return True
    # What uvloop raises where asyncio tells of a connection that was lost.
    return isinstance(error, RuntimeError) and "handler is closed" in str(error)


def _broken(error: Exception) -> str:
    if isinstance(error, _aiohttp().ClientConnectorError):
        return "cannot be connected to; check its URL and the network"
    return f"broke off the connection ({type(error).__name__}); call again"


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header.

    >>> _retry_after_s("2"), _retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT"), _retry_after_s("soon")
    (2.0, 0.0, None)
    """
    from email.utils import parsedate_to_datetime

    if value is None:
        return None
    try:
        seconds = (
            float(value) if value.strip()[:1].isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
        )
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MOST_RETRY_AFTER_S) if math.isfinite(seconds) else None


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for a URL, as other programs use it."""
    from urllib.request import getproxies, proxy_bypass

    proxies, parts = getproxies(), urlsplit(url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return None if proxy is None or proxy_bypass(parts.netloc) else proxy
