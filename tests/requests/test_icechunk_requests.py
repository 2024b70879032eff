"""The requests of opening an Icechunk repository and of reading a box: which objects are asked for, how often."""

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory, logging_store, open_logged, sent
from support.icechunk_repos import GRID, create, icechunk, version2, write_history

import hyperslab as hs

NAME = "icechunk-requests"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """The ids of snapshots of `one`, in version 1, by revision; `two` is the same in version 2."""
    folder = tmp_path_factory.mktemp("icechunk-requests")
    history = write_history(icechunk.local_filesystem_storage(str(folder / "one")), split=2)
    version2(folder)
    (folder / "history").rename(folder / "two")
    for name in ("one", "two"):
        copy_to_memory(folder / name, NAME)
    repository = icechunk.Repository.open(history.storage)
    return {"main": repository.lookup_branch("main"), "v1": repository.lookup_tag("v1")}


@pytest.fixture
def session():
    with hs.Session(profile="s3", prices="aws") as made:
        yield made


def kinds(store):
    """What was asked for: how many of each kind of object, and how many bytes-ranges among them."""
    found: dict[str, int] = {}
    for key, span, _ in sent(store):
        kind = key.split("/")[1] + ("" if span is None else " part")
        found[kind] = found.get(kind, 0) + 1
    return found


def test_opening_a_branch_asks_for_it_and_its_snapshot(session, versions):
    _, store = open_logged(f"memory://{NAME}/one@branch=main", session)
    assert sent(store) == [
        ("one/refs/branch.main/ref.json", None, False),
        ("one/repo", None, False),
        (f"one/snapshots/{versions['main']}", None, False),
    ]
    assert session.metrics.lookups == 3


def test_opening_a_tag_also_looks_whether_it_was_deleted(session, versions):
    _, store = open_logged(f"memory://{NAME}/one@tag=v1/plain", session)
    assert sent(store) == [
        ("one/refs/tag.v1/ref.json", None, False),
        ("one/refs/tag.v1/ref.json.deleted", None, False),
        ("one/repo", None, False),
        (f"one/snapshots/{versions['v1']}", None, False),
    ]


def test_opening_a_snapshot_is_one_request(session, versions):
    _, store = open_logged(f"memory://{NAME}/one@snapshot={versions['v1']}/plain", session)
    assert sent(store) == [(f"one/snapshots/{versions['v1']}", None, False)]


def test_version_2_takes_two(session, versions):
    _, store = open_logged(f"memory://{NAME}/two@branch=main/plain", session)
    assert kinds(store) == {"repo": 1, "snapshots": 1}


def test_a_repository_is_found_where_nothing_else_is(session, versions):
    group, store = open_logged(f"memory://{NAME}/one", session)
    asked = sent(store)
    assert [key for key, _, _ in asked if key.startswith(("one/re", "one/sn"))] == [
        "one/refs/branch.main/ref.json", "one/repo", f"one/snapshots/{versions['main']}",
    ]  # fmt: skip
    assert len(asked) == 10  # the others are what it might be besides
    assert [group["plain"].shape, group["deep/er/cube"].shape, list(group["deep"])] == [(70, 44), (2, 3, 100), ["er"]]
    assert sent(store) == []


def test_what_is_at_hand_is_not_asked_for_again(session, versions):
    with logging_store() as made:
        for _ in range(2):
            hs.open(f"memory://{NAME}/one@snapshot={versions['v1']}/plain", session=session)[:3, :3]
    assert [kinds(store) for store in made] == [{"snapshots": 1, "manifests": 1, "chunks part": 1}, {"chunks part": 1}]


@pytest.mark.parametrize("repository", ["one", "two"])
def test_a_box_takes_one_manifest_and_the_ranges_of_its_rows(session, versions, repository):
    array, store = open_logged(f"memory://{NAME}/{repository}@tag=v1/plain", session)
    sent(store)
    assert np.array_equal(array.read(np.s_[21:23, 2:5], method="fetch"), GRID[21:23, 2:5])
    (chunk, *_), (other, *_), manifest = sent(store)
    assert (chunk, manifest[1:]) == (other, (None, False))
    assert np.array_equal(array.read(np.s_[23:24, 2:5], method="fetch"), GRID[23:24, 2:5])
    assert kinds(store) == {"chunks part": 1}  # its manifest is there
    assert np.array_equal(array[45:46, 2:5], GRID[45:46, 2:5])
    assert kinds(store) == {"manifests": 1, "chunks part": 1}


@pytest.mark.parametrize("repository", ["one", "two"])
def test_explain_says_what_a_read_then_sends(session, versions, repository):
    array, store = open_logged(f"memory://{NAME}/{repository}@tag=v1/packed", session)
    said = array.explain[10:30, :20].plan.estimate
    assert {each.split("/")[1] for each, _, _ in sent(store)} == {"snapshots", "manifests", "repo"} | (
        {"refs"} if repository == "one" else set()
    )
    array[10:30, :20]
    asked = sent(store)
    assert (len(asked), said.exact) == (said.requests, True)
    assert sum(span[1] - span[0] for _, span, _ in asked) == said.fetched_bytes


def test_inline_chunks_and_those_not_stored_take_no_request(session, versions):
    tiny, store = open_logged(f"memory://{NAME}/one@tag=v1/tiny", session)
    sent(store)
    assert tiny[...].tolist() == list(range(10))
    assert kinds(store) == {"manifests": 2}
    unwritten, store = open_logged(f"memory://{NAME}/one@tag=v1/unwritten", session)
    sent(store)
    assert (unwritten[...] == 1.5).all()
    assert sent(store) == []


def test_of_a_shard_its_index_then_its_chunk(session, versions):
    array, store = open_logged(f"memory://{NAME}/one@tag=v1/sharded", session)
    sent(store)
    assert np.array_equal(array[21:23, 2:5], GRID[21:23, 2:5])
    asked = [(span[1] - span[0]) for key, span, _ in sent(store) if "chunks" in key]
    assert len(asked) == 2
    assert 16 * 8 + 4 in asked  # 8 chunks in a shard, and the index's checksum
    assert np.array_equal(array[26:28, 2:5], GRID[26:28, 2:5])
    assert kinds(store) == {"chunks part": 1}  # the index is there


def test_of_many_shards_each_index_once(session, versions):
    array, store = open_logged(f"memory://{NAME}/one@tag=v1/sharded", session)
    sent(store)
    assert np.array_equal(array[...], GRID)
    indexes = [key for key, span, _ in sent(store) if span is not None and span[1] - span[0] == 16 * 8 + 4]
    assert len(indexes) == len(set(indexes)) == 6
    assert np.array_equal(array[::7], GRID[::7])
    assert not [span for _, span, _ in sent(store) if span[1] - span[0] == 16 * 8 + 4]


def test_manifests_are_fetched_together(session, versions, tmp_path):
    repository = create(icechunk.local_filesystem_storage(str(tmp_path / "many")), split=1)
    writing = repository.writable_session("main")
    zarr.create_array(writing.store, name="a", data=GRID, chunks=(6, 44), compressors=None)
    writing.commit("ten manifests")
    copy_to_memory(tmp_path / "many", NAME)
    array, store = open_logged(f"memory://{NAME}/many@branch=main/a", session)
    sent(store)
    assert np.array_equal(array[...], GRID)
    assert kinds(store) == {"manifests": 10, "chunks part": 10}
