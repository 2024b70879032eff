"""From what a person writes to a store and a path within it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.store import LocalStore, locate, memory


@pytest.fixture
def tree(tmp_path, monkeypatch):
    (tmp_path / "my array.zarr" / "inner").mkdir(parents=True)
    (tmp_path / "x.npy").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("written", "root", "path"),
    [
        ("my array.zarr", "my array.zarr", ""),
        ("./my array.zarr/", "my array.zarr", ""),
        ("my array.zarr/inner", "my array.zarr/inner", ""),
        ("my array.zarr/../x.npy", ".", "x.npy"),
        ("~/x.npy", ".", "x.npy"),
        ("file://{}/my%20array.zarr", "my array.zarr", ""),
        ("file://localhost{}/x.npy", ".", "x.npy"),
        ("file:{}/x.npy", ".", "x.npy"),
        ("FILE://{}/x.npy", ".", "x.npy"),
        ("{}/x.npy", ".", "x.npy"),
        (".", ".", ""),
    ],
)
def test_local(tree, written, root, path):
    store, inside = locate(written.format(tree))
    assert isinstance(store, LocalStore)
    assert store.root == os.path.abspath(tree / root)
    assert inside == path


def test_a_path_object(tree):
    store, inside = locate(tree / "x.npy")
    assert (store.root, inside) == (str(tree), "x.npy")
    with pytest.raises(InvalidInputError):
        locate(os.fsencode(tree))
    (tree / "s3:" / "bucket").mkdir(parents=True)
    assert locate(Path("s3:/bucket"))[0].root == str(tree / "s3:" / "bucket")


def test_what_is_not_there_is_named(tree):
    with pytest.raises(NotFoundError, match="/nothing/here"):
        locate("nothing/here")
    with pytest.raises(NotFoundError, match="my array"):
        locate(f"file://{tree}/my%20array")


def test_memory_is_shared_by_name():
    memory("url-test").put("a/b", b"0123")
    store, path = locate("memory://url-test/a/b")
    assert path == "a/b"
    assert bytes(store.get(path).data) == b"0123"
    assert store.address == "memory://url-test"
    assert locate("memory://url-test")[0] is store


def test_s3(no_aws):
    store, path = locate("s3://bucket/some/array.zarr/", {"anon": True, "endpoint": "http://localhost:1"})
    assert (store.scheme, store.address, path) == (
        "s3",
        "s3://bucket?endpoint=localhost:1",
        "some/array.zarr",
    )
    assert locate("S3://bucket", {"anon": True})[0].address == "s3://bucket"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "empty"),
        ("a\x00b", "NUL"),
        ("file:///a%00b", "NUL"),
        ("file://host/x", "absolute"),
        ("file://x.npy", "absolute"),
        ("ftp://host/x", "file://, memory://, s3://, az://, gs://, https://"),
        ("s3:/bucket/x", "s3://"),
        ("s3://", "s3://bucket/path"),
        ("s3:///x", "s3://bucket/path"),
        ("s3://key:hush@bucket/x", "storage_options"),
        ("s3://bucket/a/../b", "'..'"),
        ("s3://bucket/a//b", "empty"),
        ("s3://bucket/a/./b", "'.'"),
        ("memory://", "memory://name"),
        ("memory://n/../x", "'..'"),
        ("memory://a b/x", "memory://name"),
    ],
)
def test_refused(tree, no_aws, url, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        locate(url, {"anon": True} if url.startswith("s3") else None)
    assert "hush" not in str(caught.value)


def test_options_where_none_are_taken(tree):
    for url in ("x.npy", f"file://{tree}", "memory://m"):
        with pytest.raises(InvalidInputError, match="'anon'"):
            locate(url, {"anon": True})
        locate(url, {})


def test_obstore_is_not_imported_for_files(tree):
    script = (
        "import sys; from hyperslab.store import locate; s, k = locate('x.npy'); s.map(k); s.get(k); "
        "assert not {'obstore', 'asyncio', 'urllib.request'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_names_that_no_file_can_have_are_not_found():
    with pytest.raises(NotFoundError):
        locate("/no/such/\ud800")
