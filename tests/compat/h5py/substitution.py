"""A pytest plugin that has h5py's own tests run against `hyperslab.h5`, and writes down how each ended.

h5py's test modules are imported as they are. Before they run, the names in them that stand for h5py, its files, groups,
datasets and attributes are given to ours. One thing is asked less of us: `assertNumpyBehavior` reads a second time
through a private part of h5py's datasets, `_fast_reader`, which ours do not have.
"""

import json
import os
from functools import partialmethod
from pathlib import Path

import h5py
import pytest
from h5py.tests import common, conftest

import hyperslab.h5

OURS = {
    getattr(h5py, name): getattr(hyperslab.h5, name)
    for name in ("File", "Group", "Dataset", "Datatype", "AttributeManager")
}
outcomes: dict[str, str] = {}


def substitute(module):
    for name, value in list(vars(module).items()):
        if value is h5py:
            setattr(module, name, hyperslab.h5)
        elif isinstance(value, type) and value in OURS:
            setattr(module, name, OURS[value])


def pytest_collection_modifyitems(items):
    for module in {common, conftest, *(item.module for item in items)}:
        substitute(module)
    plain = common.TestCase.assertNumpyBehavior
    common.TestCase.assertNumpyBehavior = partialmethod(without_fast_reader, plain)


def without_fast_reader(self, plain, dset, arr, key, skip_fast_reader=True):
    plain(self, dset, arr, key, skip_fast_reader=True)


def pytest_runtest_logreport(report):
    name = report.nodeid.rpartition("/")[2]
    if report.outcome != "passed":
        outcomes[name] = report.outcome
    elif report.when == "call":
        outcomes.setdefault(name, "passed")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    Path(os.environ["H5PY_TESTS_OUTCOMES"]).write_text(json.dumps(outcomes, indent=1), encoding="utf-8")
