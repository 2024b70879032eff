"""The function on Google Cloud, which runs it in its functions framework (a Flask application)."""

from typing import Any

from hyperslab.functions.answer import Refusal, refuse
from hyperslab.functions.deployed import Deployed

__all__ = ["handle"]

# Google passes on 32 MB of an answer.
_ANSWER_BYTES = 32_000_000
_RESULT_BYTES = 31_950_000
# What is read of a request before it is looked at; the function's own limit is lower.
_BODY_BYTES = 32 << 20

_deployed = Deployed(result_bytes=_RESULT_BYTES, answer_bytes=_ANSWER_BYTES)


def handle(request: Any) -> tuple[bytes, int, dict[str, str]]:
    """Answer one request of Flask's. Its settings are variables: see `function_config`."""
    too_long = (request.content_length or 0) > _BODY_BYTES
    # A body whose length nobody told ends there, too.
    body = b"" if too_long else request.stream.read(_BODY_BYTES + 1)
    if too_long or len(body) > _BODY_BYTES:
        answer = refuse(Refusal(413, "too-large", f"a request has {_BODY_BYTES:,} bytes at most; ask for less at once"))
    else:
        answer = _deployed.answer(request.method, dict(request.headers), body)
    return answer.body, answer.status, answer.headers
