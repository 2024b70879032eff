import importlib
import io
import json

import pytest
from support.function_calls import Calls
from support.missing import not_installed

import hyperslab.functions.google as google


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch):
    """A client of the application that Google's framework makes of the handler, and a chunk to ask for."""
    try:
        from flask import Flask, request
    except ImportError:
        not_installed("Flask is not installed: pip install functions-framework")
    calls = Calls()
    for name, value in calls.variables.items():
        monkeypatch.setenv(name, value)
    importlib.reload(google)
    app = Flask("tests", root_path=".")
    app.add_url_rule("/", view_func=lambda: google.handle(request), methods=["GET", "POST", "PUT"])
    return app.test_client(), calls


def test_cells_come_back(client) -> None:
    client, calls = client
    body = calls.request(100_000).pack()
    answer = client.post("/", data=body, headers=calls.signed(body))
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.data)
    calls.check(answer.data, 100_000)


def test_a_changed_body_is_refused(client) -> None:
    client, calls = client
    headers = calls.signed(calls.request(1).pack())
    answer = client.post("/", data=calls.request(2).pack(), headers=headers)
    assert (answer.status_code, json.loads(answer.data)["error"]) == (401, "not-signed")


def test_other_prefixes_are_refused(client) -> None:
    client, calls = client
    body = calls.request(1, "other/c/0").pack()
    assert client.post("/", data=body, headers=calls.signed(body)).status_code == 403


def test_a_long_body_is_not_read(client) -> None:
    client, _ = client
    told = client.post("/", environ_overrides={"CONTENT_LENGTH": str(1 << 40)})
    untold = client.post(
        "/", input_stream=io.BytesIO(bytes(33 << 20)), environ_overrides={"wsgi.input_terminated": True}
    )
    assert [answer.status_code for answer in (told, untold)] == [413, 413]


def test_get_says_that_it_runs(client) -> None:
    client, _ = client
    assert json.loads(client.get("/").data) == {"status": "ok"}
    assert client.put("/").status_code == 405
