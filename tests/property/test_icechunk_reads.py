"""Whatever is selected of whatever array of whatever version of an Icechunk repository: what Icechunk gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import METHODS, PROFILES, assert_same, copy_to_memory, keys, picked, pointwise, sessions, tries
from support.icechunk_repos import icechunk, opened_by_icechunk, version2, write_history

profiles = st.sampled_from(sorted(PROFILES))


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """Repositories of both versions of the format, one of them not split, by their URLs on disk and in memory."""
    folder = tmp_path_factory.mktemp("icechunk-reads")
    whole = write_history(icechunk.local_filesystem_storage(str(folder / "whole")))
    split = write_history(icechunk.local_filesystem_storage(str(folder / "split")), split=2)
    version2(folder)
    (folder / "history").rename(folder / "second")
    named = {name: cells for name, cells in split.versions.items() if not name.startswith("snapshot")}
    versions = {"whole": whole.versions, "split": split.versions, "second": named}
    for name in versions:
        copy_to_memory(folder / name, "icechunk-reads")
    return [
        (f"{root}/{name}@{revision}/{path}", cells)
        for name, found in versions.items()
        for revision, arrays in found.items()
        for path, cells in arrays.items()
        for root in (str(folder), "memory://icechunk-reads")
    ]


@pytest.fixture(scope="module")
def opened():
    with sessions() as made:
        yield made


def test_every_array_of_every_version(opened, histories):
    assert len(histories) > 150
    for url, cells in histories:
        assert_same(opened.open(url, "usual", 0)[...], cells)


def test_icechunk_reads_the_same(histories, tmp_path):
    history = write_history(icechunk.local_filesystem_storage(str(tmp_path)))
    for revision, arrays in history.versions.items():
        if arrays:
            group = opened_by_icechunk(history.storage, revision)
            for path, cells in arrays.items():
                assert_same(np.asarray(group[path][...]), cells)


@tries(200, soak=40_000)
@given(st.data(), profiles)
def test_every_method_gives_what_numpy_gives(opened, histories, data, profile):
    url, cells = data.draw(st.sampled_from(histories))
    key = data.draw(keys(cells.shape))
    array = opened.open(url, profile, data.draw(st.sampled_from([0, 1 << 20])))
    for method in METHODS:
        assert_same(array.read(key, method=method), picked(cells, key, None))


@tries(60, soak=10_000)
@given(st.data(), profiles)
def test_points_and_boxes_together(opened, histories, data, profile):
    url, cells = data.draw(st.sampled_from([each for each in histories if each[1].ndim and each[1].size]))
    array = opened.open(url, profile, 1 << 20)
    index = data.draw(pointwise(cells.shape))
    assert_same(array.points[index], cells[index])
    several = [data.draw(keys(cells.shape, lists_too=False)) for _ in range(3)]
    for found, key in zip(array.read_boxes(several), several, strict=True):
        assert_same(found, picked(cells, key, None))
