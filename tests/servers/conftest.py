"""Servers that only these tests need."""

from importlib.util import find_spec

import pytest
from support.azurite import Azurite, find_azurite
from support.function import FunctionServer
from support.missing import not_installed


@pytest.fixture(scope="session")
def azurite():
    """A running Azurite: `endpoint`, `container`, `url(prefix)`, `storage_options`, `put(key, data)`."""
    if find_azurite() is None:
        not_installed("Azurite is not installed: it needs npm, and `make test` gets it")
    server = Azurite()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def function(s3):
    """`hyperslab serve-function` in a process of its own, beside SeaweedFS: `function`, `host`."""
    if not (find_spec("aiohttp") and find_spec("uvicorn")):
        not_installed("functions need aiohttp and uvicorn: pip install 'hyperslab[function]'")
    server = FunctionServer(s3.url(), s3.storage_options)
    yield server
    server.stop()
