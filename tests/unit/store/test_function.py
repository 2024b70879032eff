import asyncio
import json
import pickle
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.forking import Child
from support.scripted import Scripted, ScriptedServer, Sent

from hyperslab.errors import AccessError, FunctionError, IntegrityError, InvalidInputError, UnsupportedError
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallReply, CallRequest, ChunkAnswer
from hyperslab.store.function import Function, FunctionClient
from hyperslab.store.signing import SigningKey, verify

KEY = SigningKey("tests", bytes(range(16)))
CELLS = np.arange(100, dtype="<i4")
LAYOUT = CallLayout((1000,), CELLS.dtype, (0,))
REQUEST = CallRequest("s3://bucket", (LAYOUT,), (CallChunk("a/c/0", 0, ((0, 100, 1),)),))
REPLY = CallReply([ChunkAnswer(memoryview(CELLS.tobytes()), '"1"', 4000)], 0.25, 1, 400)
PACKED = REPLY.pack(compress=False)


def call(
    function: Function, request: CallRequest = REQUEST, *, timeout_s: float = 20, limit_bytes: int = 1 << 20
) -> tuple[CallReply, int]:
    async def once() -> tuple[CallReply, int]:
        client = FunctionClient(function)
        try:
            return await client.acall(request, timeout_s=timeout_s, limit_bytes=limit_bytes)
        finally:
            await client.aclose()

    return asyncio.run(once())


def always(answer: Scripted) -> Callable[[Sent], Scripted]:
    return lambda _: answer


def failure_of(answer: Scripted, **settings: float) -> FunctionError:
    """Return the error that an answer makes, after one request."""
    with ScriptedServer(always(answer)) as server:
        with pytest.raises(FunctionError) as failure:
            call(Function(server.url, key=KEY), **settings)
        assert len(server.requests) == 1
    assert KEY.secret.hex() not in str(failure.value)
    copy = pickle.loads(pickle.dumps(failure.value))
    assert (str(copy), vars(copy)) == (str(failure.value), vars(failure.value))
    return failure.value


def test_a_call_is_one_signed_post() -> None:
    with ScriptedServer(always(Scripted(PACKED))) as server:
        reply, nbytes = call(Function(server.url, key=KEY))
    assert bytes(reply.answers[0].data or b"") == CELLS.tobytes()
    assert (reply.answers[0].etag, reply.seconds, reply.gets, reply.read_bytes) == ('"1"', 0.25, 1, 400)
    assert nbytes == len(PACKED)
    (sent,) = server.requests
    assert sent.method == "POST"
    assert CallRequest.unpack(sent.body, CallLimits()).chunks[0].key == "a/c/0"
    assert verify({"tests": KEY}, sent.headers, sent.body, now=time.time())[0] == "tests"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["accept-encoding"] == "identity"


def test_without_a_key_nothing_is_signed_and_headers_go_along() -> None:
    with ScriptedServer(always(Scripted(PACKED))) as server:
        call(Function(server.url, headers={"X-Functions-Key": "code"}))
    (sent,) = server.requests
    assert sent.headers["x-functions-key"] == "code"
    assert not [name for name in sent.headers if name.startswith("x-hyperslab")]


def test_each_call_has_a_nonce_of_its_own() -> None:
    async def both(url: str) -> None:
        client = FunctionClient(Function(url, key=KEY))
        for _ in range(2):
            await client.acall(REQUEST, timeout_s=20, limit_bytes=1 << 20)
        await client.aclose()

    with ScriptedServer(always(Scripted(PACKED))) as server:
        asyncio.run(both(server.url))
    assert len({sent.headers["x-hyperslab-nonce"] for sent in server.requests}) == 2


def test_many_calls_at_once() -> None:
    async def many(url: str) -> list[tuple[CallReply, int]]:
        client = FunctionClient(Function(url, key=KEY))
        calls = [client.acall(REQUEST, timeout_s=20, limit_bytes=1 << 20) for _ in range(64)]
        try:
            return await asyncio.gather(*calls)
        finally:
            await client.aclose()

    with ScriptedServer(always(Scripted(PACKED))) as server:
        replies = asyncio.run(many(server.url))
    assert [nbytes for _, nbytes in replies] == [len(PACKED)] * 64


def test_compressed_cells_are_asked_for() -> None:
    def script(sent: Sent) -> Scripted:
        assert json.loads(sent.body)["compress"] is True
        return Scripted(REPLY.pack(compress=True))

    with ScriptedServer(script) as server:
        reply, _ = call(Function(server.url, compress=True))
    assert bytes(reply.answers[0].data or b"") == CELLS.tobytes()


def test_a_large_reply_without_a_stated_length() -> None:
    cells = np.arange(1_000_000, dtype="<i4")
    chunk = CallChunk("a/c/0", 0, ((0, len(cells), 1),))
    request = CallRequest("s3://b", (replace(LAYOUT, chunks=(len(cells),)),), (chunk,))
    packed = CallReply([ChunkAnswer(memoryview(cells.tobytes()), None, cells.nbytes)]).pack(compress=False)
    with ScriptedServer(always(Scripted(packed, chunked=True))) as server:
        reply, nbytes = call(Function(server.url), request, limit_bytes=5_000_000)
    np.testing.assert_array_equal(np.frombuffer(reply.answers[0].data, "<i4"), cells)
    assert nbytes == len(packed)


@pytest.mark.parametrize(
    ("status", "transient"),
    [
        *[(status, False) for status in (400, 401, 403, 404, 409, 413, 422, 501)],
        *[(status, True) for status in (408, 429, 500, 502, 503, 504)],
    ],
)
def test_a_refusal_is_told(status: int, transient: bool) -> None:
    body = json.dumps({"error": "word", "message": "why\nso"}).encode()
    error = failure_of(Scripted(body, status, {"Retry-After": "3"}))
    assert (error.status, error.transient, error.nbytes, error.retry_after_s) == (status, transient, len(body), 3.0)
    assert f"answered {status}: why so" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[]", b'{"message": 7}', b"[" * 100_000])
def test_what_others_say_about_a_failure_is_not_repeated(body: bytes) -> None:
    error = failure_of(Scripted(body, 502))
    assert str(error).endswith("answered 502")
    assert error.retry_after_s is None
    assert min(len(body), 64 << 10) <= error.nbytes <= len(body)


def test_a_redirect_is_not_followed() -> None:
    with ScriptedServer(always(Scripted(PACKED))) as elsewhere:
        error = failure_of(Scripted(b"", 307, {"Location": elsewhere.url}))
        assert not elsewhere.requests
    assert "redirect" in str(error)
    assert error.status == 307


@pytest.mark.parametrize("chunked", [False, True])
def test_a_longer_answer_is_cut_off(chunked: bool) -> None:
    error = failure_of(Scripted(PACKED + bytes(1 << 20), chunked=chunked))
    assert "longer than" in str(error)
    assert not error.transient
    assert error.nbytes <= len(PACKED) + 2048
    assert isinstance(error.__cause__, IntegrityError)


def test_the_callers_limit_holds() -> None:
    assert "longer than the 300 bytes" in str(failure_of(Scripted(PACKED), limit_bytes=300))


def test_an_answer_that_breaks_off_says_how_much_came() -> None:
    error = failure_of(Scripted(PACKED, stated=len(PACKED) + 10))
    assert error.transient
    assert error.nbytes == len(PACKED)


def test_an_answer_that_stops_ends_in_time() -> None:
    started = time.monotonic()
    error = failure_of(Scripted(PACKED, pause_at=50), timeout_s=2.5)
    assert time.monotonic() - started < 30
    assert "within 2.5 s" in str(error)
    assert (error.transient, error.nbytes, error.status) == (True, 50, 200)


@pytest.mark.parametrize("at", [0, 6, 20, len(PACKED) - 1])
def test_a_changed_byte_is_found(at: int) -> None:
    changed = bytearray(PACKED)
    changed[at] ^= 1
    error = failure_of(Scripted(bytes(changed)))
    assert (error.status, error.nbytes, error.transient) == (200, len(PACKED), False)


def test_an_answer_that_was_encoded_again_is_refused() -> None:
    assert "re-encoded" in str(failure_of(Scripted(PACKED, headers={"Content-Encoding": "gzip"})))


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_other_answer_is_one_error(body: bytes, chunked: bool) -> None:
    assert failure_of(Scripted(b"HSC1" + body, chunked=chunked)).nbytes == len(body) + 4


def test_nobody_listens() -> None:
    with socket.socket() as held:  # so that nobody else listens there either
        held.bind(("127.0.0.1", 0))
        with pytest.raises(FunctionError, match="cannot be connected to") as failure:
            call(Function(f"http://127.0.0.1:{held.getsockname()[1]}/", key=KEY))
    assert (failure.value.status, failure.value.nbytes, failure.value.transient) == (None, 0, True)


def test_a_forked_child_has_connections_of_its_own() -> None:
    async def parent(url: str) -> int:
        client = FunctionClient(Function(url, key=KEY))
        await client.acall(REQUEST, timeout_s=20, limit_bytes=1 << 20)
        child = Child(lambda: in_child(client))
        nbytes = await asyncio.to_thread(child.result)
        await client.acall(REQUEST, timeout_s=20, limit_bytes=1 << 20)
        await client.aclose()
        return nbytes

    def in_child(client: FunctionClient) -> int:
        asyncio._set_running_loop(None)  # the parent's, which is forked along with the rest

        async def again() -> int:
            _, nbytes = await client.acall(REQUEST, timeout_s=20, limit_bytes=1 << 20)
            await client.aclose()
            return nbytes

        return asyncio.run(again())

    with ScriptedServer(always(Scripted(PACKED))) as server:
        assert asyncio.run(parent(server.url)) == len(PACKED)
    assert len(server.requests) == 3


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(UnsupportedError, match=re.escape("pip install 'hyperslab[function]'")):
        call(Function("http://127.0.0.1:1/"))


def test_calls_are_signed_for_aws(monkeypatch: pytest.MonkeyPatch, no_aws: object) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with ScriptedServer(always(Scripted(PACKED))) as server:
        call(Function(server.url, key=KEY, auth="aws"))
    (sent,) = server.requests
    assert re.match(
        r"AWS4-HMAC-SHA256 Credential=me/\d{8}/eu-west-1/lambda/aws4_request, "
        r"SignedHeaders=content-type;host;x-amz-date;x-hyperslab-",
        sent.headers["authorization"],
    )


def test_aws_without_credentials_sends_nothing(no_aws: object) -> None:
    with ScriptedServer(always(Scripted(PACKED))) as server:
        with pytest.raises(AccessError, match="there are no credentials to sign a call"):
            call(Function(server.url, auth="aws"))
        assert not server.requests


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://abc123.lambda-url.eu-west-1.on.aws/", "aws"),
        ("https://europe-west1-lab.cloudfunctions.net/hyperslab", "google"),
        ("https://hyperslab-abc-ew.a.run.app", "google"),
        ("https://lab.azurewebsites.net/api/call", "azure"),
        ("http://10.0.0.7:9000", "local"),
    ],
)
def test_the_url_tells_the_provider(url: str, provider: str) -> None:
    assert Function(url).provider == provider
    assert Function(url, provider="azure").provider == "azure"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is written"),
        ("ftp://host/", "is written"),
        ("host:9000", "is written"),
        ("https://", "is written"),
        ("https://host:port/", "is written"),
        ("https://ho st/", "is written"),
        (7, "is written"),
        ("https://me:hidden@host/", "no login"),
        ("https://lab.azurewebsites.net/api/call?code=hidden", "x-functions-key"),
        ("https://host/#hidden", "x-functions-key"),
    ],
)
def test_a_wrong_url_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as failure:
        Function(url)
    assert "hidden" not in str(failure.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "hidden"},
        {"key": b"hidden"},
        {"headers": {"a\nb": "hidden"}},
        {"headers": {"name": "hidden\r\nother: x"}},
        {"headers": {"content-length": "1"}},
        {"headers": {"X-Hyperslab-Key": "hidden"}},
        {"headers": {"authorization": "hidden"}, "url": "http://example.com/"},
        {"headers": "hidden"},
        {"auth": "basic"},
        {"provider": "elsewhere"},
        {"memory_mb": 0},
        {"memory_mb": 1.5},
        {"compress": "yes"},
    ],
)
def test_a_wrong_argument_is_refused(wrong: dict) -> None:
    with pytest.raises(InvalidInputError) as failure:
        Function(**{"url": "https://host/", **wrong})
    assert "hidden" not in str(failure.value)


def test_secrets_are_kept_but_never_shown() -> None:
    function = Function("https://host", key=KEY.text, headers={"Authorization": "Bearer hidden"}, auth="aws")
    assert function.key == KEY
    copy = pickle.loads(pickle.dumps(function))
    assert copy == function
    assert hash(copy) == hash(function)
    assert copy.headers == {"authorization": "Bearer hidden"}
    for text in (repr(function), str(function), repr([function])):
        assert KEY.secret.hex() not in text
        assert "hidden" not in text
    assert repr(function) == "Function(url='https://host/', provider='local', memory_mb=1769, auth='aws')"


def test_the_environment_names_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPERSLAB_FUNCTION_URL", raising=False)
    with pytest.raises(InvalidInputError, match="HYPERSLAB_FUNCTION_URL is not set"):
        Function.from_environment()
    monkeypatch.setenv("HYPERSLAB_FUNCTION_URL", "https://host/")
    monkeypatch.delenv("HYPERSLAB_FUNCTION_KEY", raising=False)
    assert Function.from_environment() == Function("https://host/")
    monkeypatch.setenv("HYPERSLAB_FUNCTION_KEY", KEY.text)
    assert Function.from_environment() == Function("https://host/", key=KEY)
