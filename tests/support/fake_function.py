"""A function beside the data that misbehaves on demand: the real handler in this process, behind a small HTTP server.

What `S3Proxy` does to answers on their way can be done here, too (rules for the method "POST"); `edit` changes what
the handler answered, before it is sent: to let it lie.
"""

import json
from collections.abc import Callable
from typing import Any

from hyperslab.functions import FunctionConfig, Root, Service, handle
from hyperslab.store import Store
from hyperslab.store.call import CallLimits, CallReply, CallRequest
from hyperslab.store.callee import Function
from support.calling import KEY
from support.fake_s3 import Answer
from support.s3proxy import Rule, S3Proxy

__all__ = ["FakeFunction", "failing", "header_of", "repacked", "with_header"]

Edit = Callable[[CallRequest, bytes], bytes]


class FakeFunction(S3Proxy):
    """A function that reads `store`, from `with` to the end of it; every call is in `log`.

    `edit(request, body)` gives the body to be sent instead of an honest one, for the next `edits` calls (None: all).
    """

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__()
        self.service = Service(FunctionConfig(roots=(Root(store, ""),), keys={KEY.id: KEY}, **settings))
        self.edit: Edit | None = None
        self.edits: int | None = None

    @property
    def function(self) -> Function:
        return Function(f"{self.endpoint}/", key=KEY)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.service.close()

    def lie(self, edit: Edit | None, times: int | None = None) -> None:
        """Change answers from now on."""
        self.edit, self.edits = edit, times

    def calls(self) -> int:
        """How many calls there were."""
        return sum([each.method == "POST" for each in self.log])

    def body_bytes(self) -> int:
        """How many bytes of body were sent back."""
        return sum([each.body_bytes for each in self.log])

    async def _forward(self, request: Any, *, ignore_range: bool = False) -> Answer:
        answer = await handle(self.service, request.headers, request.body)
        body = answer.body
        answer.close()
        if answer.status == 200 and self.edit is not None and self.edits != 0:
            self.edits = None if self.edits is None else self.edits - 1
            body = self.edit(CallRequest.unpack(request.body, CallLimits()), body)
        headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
        return Answer(answer.status, headers, body)


def failing(status: int, times: int | None = None, **headers: str) -> Rule:
    """Let calls be answered with this status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Rule("status", method="POST", status=status, times=times, headers=named)


def repacked(change: Callable[[CallReply], CallReply]) -> Edit:
    """An edit that changes what is answered, with checksum and lengths as they must be then."""

    def edit(request: CallRequest, body: bytes) -> bytes:
        return change(CallReply.unpack(memoryview(body), request, 1 << 30)).pack(compress=False)

    return edit


def header_of(body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return an answer's header and what is behind it."""
    stop = 8 + int.from_bytes(body[4:8], "little")
    return json.loads(body[8:stop]), body[stop:]


def with_header(header: Any, payload: bytes) -> bytes:
    """Return an answer that has this header, whatever that is."""
    packed = json.dumps(header).encode()
    return b"HSC1" + len(packed).to_bytes(4, "little") + packed + payload
