"""Repositories that Icechunk wrote, once for all of these tests."""

import pytest


@pytest.fixture(scope="session", params=["v1", "v2"])
def repository(request, tmp_path_factory):
    """A directory with a repository, and its history."""
    from support.icechunk_repos import icechunk, version2, write_history

    folder = tmp_path_factory.mktemp("icechunk") / "repo"
    history = write_history(icechunk.local_filesystem_storage(str(folder)), split=2)
    if request.param == "v1":
        return folder, history
    # The cells are the same, the ids of snapshots are not.
    history.versions = {name: cells for name, cells in history.versions.items() if not name.startswith("snapshot")}
    return version2(folder.with_name("packed")) / "history", history
