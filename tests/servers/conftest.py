"""Servers that only these tests need."""

import pytest
from support.azurite import Azurite, find_azurite
from support.missing import not_installed


@pytest.fixture(scope="session")
def azurite():
    """A running Azurite: `endpoint`, `container`, `url(prefix)`, `storage_options`, `put(key, data)`."""
    if find_azurite() is None:
        not_installed("Azurite is not installed: it needs npm, and `make test` gets it")
    server = Azurite()
    yield server
    server.stop()
