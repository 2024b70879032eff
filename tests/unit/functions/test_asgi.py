"""The function behind HTTP: routes, bodies cut off at their limit, and a real server from start to end."""

import asyncio
import json
import signal
import socket
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from support.calling import function, signed
from support.serving import ServedFunction

from hyperslab.functions.asgi import FunctionApp
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallReply, CallRequest

LAYOUT = CallLayout((1 << 20,), np.dtype("<i4"), (0,))
CELLS = np.arange(1 << 20, dtype="<i4")


@pytest.fixture
def bench():
    with function(limits=CallLimits(body_bytes=3000)) as made:
        made.put("data/a", CELLS.tobytes())
        yield made


def asked(bench, body=b"", *, method="POST", path="/", headers=None, messages=None):
    """Send one request as an ASGI server does; return the status, headers, body, and how much was received."""
    sent, given = [], messages or [{"type": "http.request", "body": body, "more_body": False}]
    left = list(given)

    async def receive():
        if not left:
            await asyncio.sleep(3600)
        return left.pop(0)

    async def send(message):
        sent.append(message)

    fields = {**signed(body), "content-length": str(len(body))} if headers is None else headers
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }
    asyncio.run(FunctionApp(bench.service)(scope, receive, send))
    if not sent:
        return None
    content = b"".join(message["body"] for message in sent[1:])
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert answered["content-length"] == str(len(content))
    assert sent[-1]["more_body"] is False
    return sent[0]["status"], answered, content, len(given) - len(left)


def test_a_call(bench):
    request = bench.request(CallChunk("data/a", 0, ((3, 4, 2),)), layout=LAYOUT)
    status, _, body, _ = asked(bench, request.pack())
    assert status == 200
    cells = CallReply.unpack(memoryview(body), request, 100).answers[0].data
    assert np.frombuffer(cells, "<i4").tolist() == [3, 5, 7, 9]


def test_a_long_answer_comes_in_parts(bench):
    chunks = [CallChunk("data/a", 0, ((0, 1 << 20, 1),)) for _ in range(3)]
    request = bench.request(*chunks, layout=LAYOUT)
    status, _, body, _ = asked(bench, request.pack())
    assert status == 200
    for answer in CallReply.unpack(memoryview(body), request, 20 << 20).answers:
        assert bytes(answer.data) == CELLS.tobytes()


def test_routes(bench):
    assert asked(bench, method="GET", path="/health")[0] == 200
    assert json.loads(asked(bench, method="GET", path="/health")[2]) == {"status": "ok"}
    assert asked(bench, path="/other")[0] == 404
    assert asked(bench, method="GET")[0] == 405
    assert asked(bench, b"x", headers={})[0] == 401


def test_a_body_that_comes_in_parts(bench):
    body = bench.request(CallChunk("data/a", 0, ((0, 1, 1),)), layout=LAYOUT).pack()
    parts = [{"type": "http.request", "body": body[n : n + 10], "more_body": True} for n in range(0, len(body), 10)]
    assert asked(bench, body, messages=[*parts, {"type": "http.request"}])[0] == 200


def test_a_body_is_cut_off_at_its_limit(bench):
    part = {"type": "http.request", "body": bytes(1000), "more_body": True}
    assert asked(bench, headers={"content-length": "3001"}, messages=[part] * 9)[::3] == (413, 0)
    assert asked(bench, headers={"content-length": "9" * 40}, messages=[part] * 9)[::3] == (413, 0)
    # Without a length, or with a false one, as soon as there is too much.
    assert asked(bench, headers={}, messages=[part] * 9)[::3] == (413, 4)
    assert asked(bench, headers={"content-length": "5"}, messages=[part] * 9)[::3] == (413, 1)


def test_long_bodies_arrive_one_after_the_other():
    """However many send at once, what waits in memory is bounded; short ones are not held up."""

    async def main(app):
        held = []

        def call(body):
            left = [body[:1000], body[1000:]]

            async def receive():
                if len(left) == 2:
                    held.append(len(body))
                    assert sum(held) <= app.arriving.limit_bytes
                await asyncio.sleep(0.001)
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append((message["status"], len(body)))
                    if body in longs:
                        held.remove(len(body))

            headers = [(b"content-length", str(len(body)).encode())]
            return app({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive, send)

        statuses, longs = [], [bytes(4_000_000)]
        await asyncio.gather(*[call(longs[0]) for _ in range(30)], call(b"x" * 2000))
        assert sorted(statuses) == [(401, 2000)] + [(401, 4_000_000)] * 30
        assert statuses.index((401, 2000)) < 10

    with function(memory_mb=384) as small:
        asyncio.run(main(FunctionApp(small.service)))


def test_a_caller_that_hangs_up(bench):
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    assert asked(bench, headers={}, messages=messages) is None


def test_a_caller_that_never_ends(bench, monkeypatch):
    monkeypatch.setattr("hyperslab.functions.asgi._BODY_S", 0.05)
    first = {"type": "http.request", "body": b"{", "more_body": True}
    status, _, body, _ = asked(bench, headers={}, messages=[first])
    assert (status, json.loads(body)["error"]) == (408, "slow")


def test_a_caller_that_does_not_take_its_answer(bench, monkeypatch):
    """Its memory is given back all the same."""
    monkeypatch.setattr("hyperslab.functions.asgi._SEND_S", 0.05)
    body = bench.request(CallChunk("data/a", 0, ((0, 1 << 20, 1),)), layout=LAYOUT).pack()

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(_):
        await asyncio.sleep(3600)

    headers = [(name.encode(), value.encode()) for name, value in signed(body).items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    with pytest.raises(TimeoutError):
        asyncio.run(FunctionApp(bench.service)(scope, receive, send))
    bench.service.share.take(bench.config.held_bytes)


def post(url, body, headers):
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def endless_headers(url):
    """Send a request whose headers do not end; return the status, None if the connection was cut off."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 60) as raw:
        try:
            raw.sendall(b"POST / HTTP/1.1\r\nhost: x\r\n")
            for _ in range(1000):
                raw.sendall(b"x: " + b"y" * 1000 + b"\r\n")
            answer = raw.recv(100)
            return answer.split()[1] if answer else None
        except ConnectionError:
            return None


def test_a_websocket_is_refused(bench):
    sent = []

    async def main():
        async def send(message):
            sent.append(message)

        await FunctionApp(bench.service)({"type": "websocket"}, None, send)

    asyncio.run(main())
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_a_real_server(s3, tmp_path):
    """From its start by a person to Ctrl-C: calls, damaged HTTP, a log without secrets, a clean end."""
    s3.put("served/a", CELLS.tobytes())
    request = CallRequest(f"s3://{s3.bucket}", (LAYOUT,), (CallChunk("served/a", 0, ((7, 3, 1),)),))
    body = request.pack()
    with ServedFunction(tmp_path, [s3.url("served")], s3.storage_options) as served:
        status, answer = post(served.url, body, signed(body))
        assert status == 200
        reply = CallReply.unpack(memoryview(answer), request, 100)
        assert np.frombuffer(reply.answers[0].data, "<i4").tolist() == [7, 8, 9]
        assert (reply.gets, reply.read_bytes) == (1, 12)
        assert post(served.url, body, {})[0] == 401
        assert post(served.url, bytes(5 << 20), {})[0] == 413
        with socket.create_connection((urlsplit(served.url).hostname, urlsplit(served.url).port), 60) as raw:
            raw.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            assert raw.recv(100).split()[1] == b"400"
        assert endless_headers(served.url) in (b"400", None)
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        assert post(served.url, body, {**signed(body), **upgrade})[0] in (200, 400)
        assert post(served.url, body, signed(body))[0] == 200
        served.process.send_signal(signal.SIGINT)
        assert served.stop() == 0
    log = "".join(served.log)
    assert "1 chunks, 1 gets, 12 bytes read, 12 sent" in log
    assert "Traceback" not in log
    for secret in (s3.storage_options["secret_access_key"], "000102030405060708"):
        assert secret not in log
