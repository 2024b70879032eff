"""A pytest plugin that writes down how each of xarray's tests ended, and whether it opened anything by our engine."""

import json
import os
from functools import wraps
from pathlib import Path

import pytest

from hyperslab.xarray import HyperslabDataStore

outcomes: dict[str, str] = {}
opened: set[str] = set()
running: list[str] = []


def counted(get_variables):
    @wraps(get_variables)
    def wrapper(self):
        opened.update(running)
        return get_variables(self)

    return wrapper


HyperslabDataStore.get_variables = counted(HyperslabDataStore.get_variables)


def _name(nodeid):
    return nodeid.partition("::")[2]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    running[:] = [_name(item.nodeid)]
    return (yield)


def pytest_runtest_logreport(report):
    name = _name(report.nodeid)
    if report.outcome != "passed":
        outcomes[name] = report.outcome
    elif report.when == "call":
        outcomes.setdefault(name, "passed" if name in opened else "not ours")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    Path(os.environ["XARRAY_TESTS_OUTCOMES"]).write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
