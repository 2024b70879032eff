import importlib
import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from support.function_calls import KEY, Calls
from support.lambda_rie import url_event

import hyperslab.functions.aws as aws
from hyperslab.store.signing import SigningKey


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A chunk to ask for, and a handler that has not answered yet."""
    calls = Calls()
    for name, value in calls.variables.items():
        monkeypatch.setenv(name, value)
    importlib.reload(aws)
    return calls


def event(calls: Calls, body: bytes, key: SigningKey = KEY) -> dict[str, Any]:
    return url_event("POST", "/", calls.signed(body, key), body)


def test_cells_come_back_in_base64(calls: Calls) -> None:
    answer = aws.lambda_handler(event(calls, calls.request().pack()), None)
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, True)
    assert answer["headers"]["content-type"] == "application/octet-stream"
    calls.check(b64decode(answer["body"]))
    json.dumps(answer)


def test_a_body_in_base64_is_the_same(calls: Calls) -> None:
    body = calls.request().pack()
    encoded = {"body": b64encode(body).decode(), "isBase64Encoded": True}
    answer = aws.lambda_handler({**event(calls, body), **encoded}, None)
    calls.check(b64decode(answer["body"]))


def test_errors_come_back_as_text(calls: Calls) -> None:
    answer = aws.lambda_handler(event(calls, calls.request().pack(), SigningKey("tests", bytes(16))), None)
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (401, False)
    assert json.loads(answer["body"])["error"] == "not-signed"


@pytest.mark.parametrize(("count", "status"), [(587_500, 200), (587_501, 413)])
def test_what_aws_would_cut_off_is_refused_first(calls: Calls, count: int, status: int) -> None:
    answer = aws.lambda_handler(event(calls, calls.request(count).pack()), None)
    assert answer["statusCode"] == status
    assert len(json.dumps(answer)) < 6_291_556
    if status == 200:
        calls.check(b64decode(answer["body"]), count)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_only_posts_are_calls(calls: Calls, method: str) -> None:
    answer = aws.lambda_handler(url_event(method, "/", {}, b""), None)
    assert answer["statusCode"] == (200 if method == "GET" else 405)
    json.loads(answer["body"])


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"requestContext": {}},
        {"requestContext": {"http": {"method": "POST"}}, "body": 7},
        {"requestContext": {"http": {"method": "POST"}}, "body": "?", "isBase64Encoded": True},
        {"requestContext": {"http": {"method": "POST"}}, "body": "é", "isBase64Encoded": True},
        {"requestContext": {"http": {"method": ["POST"]}}, "headers": 7},
        {"requestContext": {"http": {"method": "POST"}}, "headers": {"x": 7}},
        {"requestContext": {"http": {"method": "POST"}}, "body": "\ud800"},
    ],
)
def test_what_is_no_event_is_refused(calls: Calls, wrong: Any) -> None:
    assert aws.lambda_handler(wrong, None)["statusCode"] in (400, 401, 405)


def test_a_function_without_settings_says_only_that(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HYPERSLAB_FUNCTION_KEYS", "hidden")
    answer = aws.lambda_handler(event(calls, calls.request().pack()), None)
    assert answer["statusCode"] == 503
    assert "its log says" in answer["body"]
    assert "signing key" in caplog.text
    assert "hidden" not in caplog.text + answer["body"]
    monkeypatch.setenv("HYPERSLAB_FUNCTION_KEYS", KEY.text)
    assert aws.lambda_handler(event(calls, calls.request().pack()), None)["statusCode"] == 200
