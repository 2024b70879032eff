"""What a function sends back over HTTP: cells, or an error that says in one word what was wrong."""

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from hyperslab.errors import (
    AccessError,
    ConflictError,
    FormatError,
    HyperslabError,
    IntegrityError,
    InvalidInputError,
    NotFoundError,
)
from hyperslab.functions.guard import OverloadError, ReplayError
from hyperslab.store.call import CallReply, CallRequest, CallTooLargeError

__all__ = ["Answer", "Refusal", "RefusedError", "refusal_of", "refuse", "reply_answer", "where"]

_RETRY_AFTER_S = 1


class RefusedError(HyperslabError):
    """The function does not do what it is asked: `status` is what HTTP calls that, `code` a word for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a caller sees it."""

    status: int
    code: str
    message: str


@dataclass(slots=True, eq=False)
class Answer:
    """The answer to one request. `close` it when it is sent: then its memory can be used by others."""

    status: int
    headers: dict[str, str]
    parts: list[bytes | memoryview]
    on_close: Callable[[], None] | None = field(default=None, repr=False)

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def close(self) -> None:
        self.parts = []
        if self.on_close is not None:
            done, self.on_close = self.on_close, None
            done()


def reply_answer(reply: CallReply, request: CallRequest) -> Answer:
    """Return the answer that brings cells."""
    parts = reply.parts(compress=request.compress, cell_nbytes=request.cell_nbytes)
    return Answer(200, _headers("application/octet-stream", parts), parts)


def refuse(refusal: Refusal) -> Answer:
    """Return the answer that brings an error, as JSON."""
    text = json.dumps({"error": refusal.code, "message": refusal.message}, separators=(",", ":"))
    parts: list[bytes | memoryview] = [text.encode()]
    headers = _headers("application/json", parts)
    if refusal.status in (429, 503):
        headers["retry-after"] = str(_RETRY_AFTER_S)
    return Answer(refusal.status, headers, parts)


def refusal_of(error: BaseException) -> Refusal:
    """Return what a caller is told of an error: never a trace, never what our own code did not write."""
    if isinstance(error, RefusedError):
        return Refusal(error.status, error.code, error.message)
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            message = str(error) if isinstance(error, HyperslabError) else _SAID[code]
            return Refusal(status, code, message)
    return Refusal(502, "failed", f"the function failed ({type(error).__name__}); its log says where")


def where(error: BaseException) -> str:
    """Return where an error came from, for the log: no values, which may be secrets or a person's data."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join([f"{frame.filename}:{frame.lineno}" for frame in reversed(frames)])


def _headers(kind: str, parts: list[bytes | memoryview]) -> dict[str, str]:
    return {
        "content-type": kind,
        "content-length": str(sum([len(part) for part in parts])),
        "cache-control": "no-store",
    }


# The first that fits counts.
_KINDS: tuple[tuple[type[BaseException], int, str], ...] = (
    (CallTooLargeError, 413, "too-large"),
    (InvalidInputError, 400, "bad-request"),
    (ReplayError, 401, "replayed"),
    (OverloadError, 503, "busy"),
    (MemoryError, 503, "busy"),
    (ConflictError, 409, "changed"),
    (FormatError, 422, "unsupported"),
    (IntegrityError, 422, "damaged"),
    (TimeoutError, 504, "timeout"),
    (AccessError, 502, "store-refused"),
    (NotFoundError, 502, "store-failed"),
    (HyperslabError, 502, "store-failed"),
)
_SAID = {
    "busy": "the function's memory is taken; try again later",
    "timeout": "the function did not finish in time; ask for less in one call",
}
