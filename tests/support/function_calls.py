"""One chunk in a store in memory, and calls for it as bytes and headers: for the handlers of all providers."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hyperslab.store import memory
from hyperslab.store.call import CallChunk, CallLayout, CallReply, CallRequest
from hyperslab.store.signing import SigningKey, sign

KEY = SigningKey("tests", bytes(range(16)))


@dataclass
class Calls:
    """A chunk of 2,000,000 numbers at `run/c/0` of a store of its own."""

    cells: np.ndarray = field(default_factory=lambda: np.arange(2_000_000, dtype="<i8"))
    name: str = field(default_factory=lambda: f"calls-{uuid.uuid4().hex}")

    def __post_init__(self) -> None:
        memory(self.name).put("run/c/0", self.cells.tobytes())

    @property
    def variables(self) -> dict[str, str]:
        return {"HYPERSLAB_FUNCTION_ROOTS": f"memory://{self.name}/run", "HYPERSLAB_FUNCTION_KEYS": KEY.text}

    def request(self, count: int = 10, key: str = "run/c/0") -> CallRequest:
        layout = CallLayout(self.cells.shape, self.cells.dtype, (0,))
        return CallRequest(f"memory://{self.name}", (layout,), (CallChunk(key, 0, ((5, count, 1),)),))

    def signed(self, body: bytes, key: SigningKey = KEY) -> dict[str, str]:
        headers = sign(key, body, now=time.time(), nonce=uuid.uuid4().hex)
        return {"Content-Type": "application/json", **headers}

    def check(self, body: bytes, count: int = 10) -> None:
        """See that an answer brings the right cells."""
        reply = CallReply.unpack(memoryview(body), self.request(count), 1 << 30)
        np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<i8"), self.cells[5 : 5 + count])


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
