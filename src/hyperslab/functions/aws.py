"""The function on AWS Lambda, called by its function URL (payload format 2.0)."""

import binascii
from base64 import b64decode, b64encode
from typing import Any

from hyperslab.functions.answer import Answer, Refusal, refuse
from hyperslab.functions.deployed import Deployed

__all__ = ["lambda_handler"]

# AWS passes on 6 MB of a JSON document that holds the answer in base64, so 3/4 of that less its headers.
_ANSWER_BYTES = (6_291_556 - 2_048) * 3 // 4
_RESULT_BYTES = 4_700_000

_deployed = Deployed(result_bytes=_RESULT_BYTES, answer_bytes=_ANSWER_BYTES)


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """Answer one request. Its settings are variables: see `function_config`."""
    return _response(_answer(event))


def _answer(event: Any) -> Answer:
    try:
        method = event["requestContext"]["http"]["method"]
        headers, body = event.get("headers") or {}, event.get("body") or ""
        data = b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except (LookupError, TypeError, AttributeError, ValueError, binascii.Error):
        return refuse(Refusal(400, "bad-request", "that is not the event of a function URL; call it by its URL"))
    return _deployed.answer(method, headers, data)


def _response(answer: Answer) -> dict[str, Any]:
    text = answer.headers.get("content-type") == "application/json"
    body = answer.body
    return {
        "statusCode": answer.status,
        # AWS sets the length itself, once it has undone the base64.
        "headers": {name: value for name, value in answer.headers.items() if name != "content-length"},
        "body": body.decode() if text else b64encode(body).decode("ascii"),
        "isBase64Encoded": not text,
    }
