"""Requests of the form that Azure documents; not run in Azure's own host."""

import importlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from support.function_calls import Calls
from support.missing import not_installed

import hyperslab.functions.azure as azure
from hyperslab.functions.build import build_bundle


@pytest.fixture
def func() -> Any:
    try:
        return importlib.import_module("azure.functions")
    except ImportError:
        not_installed("Azure's package is not installed: pip install azure-functions")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    for name, value in calls.variables.items():
        monkeypatch.setenv(name, value)
    importlib.reload(azure)
    return calls


def test_cells_come_back(func: Any, calls: Calls) -> None:
    body = calls.request().pack()
    url = "https://lab.azurewebsites.net/api/call"
    answer = azure.main(func.HttpRequest("POST", url, headers=calls.signed(body), body=body))
    assert isinstance(answer, func.HttpResponse)
    assert (answer.status_code, answer.mimetype) == (200, "application/octet-stream")
    calls.check(answer.get_body())


def test_errors_come_back(func: Any, calls: Calls) -> None:
    answer = azure.main(func.HttpRequest("POST", "https://host/api/call", body=calls.request().pack()))
    assert (answer.status_code, answer.mimetype) == (401, "application/json")
    assert json.loads(answer.get_body())["error"] == "not-signed"
    answer = azure.main(func.HttpRequest("PUT", "https://host/api/call", body=b""))
    assert answer.status_code == 405


def test_the_bundle_declares_one_route(func: Any, calls: Calls, tmp_path: Path) -> None:
    """What Azure's worker does at a start: it runs `function_app.py` and asks the app for its functions."""
    build_bundle("azure", tmp_path / "bundle")
    app = runpy.run_path(str(tmp_path / "bundle/function/function_app.py"))["app"]
    (declared,) = app.get_functions()
    trigger = declared.get_trigger()
    assert (trigger.route, trigger.auth_level.name) == ("call", "FUNCTION")
    body = calls.request().pack()
    request = func.HttpRequest("POST", "https://host/api/call", headers=calls.signed(body), body=body)
    calls.check(declared.get_user_function()(request).get_body())
