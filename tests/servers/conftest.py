"""Servers that only these tests need."""

import os

import pytest
from support.azurite import Azurite, find_azurite


@pytest.fixture(scope="session")
def azurite():
    """A running Azurite: `endpoint`, `container`, `url(prefix)`, `storage_options`, `put(key, data)`."""
    if find_azurite() is None:
        message = "Azurite is not installed: it needs npm, and `make test` gets it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    server = Azurite()
    yield server
    server.stop()
