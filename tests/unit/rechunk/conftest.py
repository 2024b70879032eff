"""Little memory for small arrays, so that they go the ways of large ones."""

from types import SimpleNamespace

import pytest

from hyperslab.rechunk import memory, moving


@pytest.fixture
def exact(monkeypatch):
    """Count only what is taken for cells; gives the schemes that were chosen."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)
    monkeypatch.setattr(memory, "_SPARE_BYTES", 0)
    monkeypatch.setattr(memory, "_LEAST_BYTES", 0)
    monkeypatch.setattr(moving, "_ROOMY_BYTES", 0)
    found = SimpleNamespace(schemes=[])
    choose = moving.scheme_for

    def noting(*args, **kwargs):
        found.schemes.append(choose(*args, **kwargs))
        return found.schemes[-1]

    monkeypatch.setattr(moving, "scheme_for", noting)
    return found
