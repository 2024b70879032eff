"""Repositories that Icechunk wrote, once for all of these tests."""

import pytest

icechunk = pytest.importorskip("icechunk")

from support.icechunk_repos import SPEC_VERSIONS, write_history


@pytest.fixture(scope="session", params=SPEC_VERSIONS, ids=lambda spec: f"v{spec}")
def repository(request, tmp_path_factory):
    """A directory with a repository, and its history."""
    folder = tmp_path_factory.mktemp("icechunk") / "repo"
    return folder, write_history(icechunk.local_filesystem_storage(str(folder)), request.param, split=2)
