"""Commits are applied exactly once and reported truly, whatever the store reports of them."""

import json
import os
import threading

import numpy as np
import pytest
from deltalake import DeltaTable

import hyperslab as hs
from hyperslab.errors import ConflictError, MetadataError, NotFoundError, StoreError, UnsupportedError
from hyperslab.store import local
from hyperslab.tensors import commits, log, tensor_table
from hyperslab.tensors.delta import delta_options
from hyperslab.tensors.log import read_log, read_version
from hyperslab.tensors.place import locate_table


@pytest.fixture
def session():
    with hs.Session(retries=2) as made:
        yield made


@pytest.fixture
def table(tmp_path, session):
    return tensor_table(tmp_path / "t", session=session)


def cells(table, *ids):
    return [table.get(id).tolist() for id in ids]


def lose_replies(monkeypatch, times=1):
    """Let commits land and then be reported as failed, so many times."""
    real, left = DeltaTable.create_write_transaction, [times]

    def commit(self, *args, **kwargs):
        real(self, *args, **kwargs)
        if left[0]:
            left[0] -= 1
            raise OSError("connection closed before message completed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


def refuse(monkeypatch, times=None, before=None):
    """Let commits fail without effect."""
    real, left = DeltaTable.create_write_transaction, [times]

    def commit(self, *args, **kwargs):
        if left[0] is None or left[0]:
            if left[0]:
                left[0] -= 1
            if before is not None:
                before()
            raise OSError("503 SlowDown")
        real(self, *args, **kwargs)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


def test_every_change_is_one_commit(table):
    first = table.put(np.arange(3))
    assert table.version == 1  # the table itself was version 0
    table.put_many({"a": np.arange(4), "b": np.arange(5)})
    assert table.version == 2
    table.put(np.arange(6), id="a", overwrite=True)
    assert table.version == 3
    table.delete(["b", first])
    assert table.version == 4
    assert list(table) == ["a"]
    assert cells(table, "a") == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("change", ["put", "overwrite", "delete"])
def test_lost_reply_is_one_version(table, monkeypatch, change):
    table.put(np.arange(3), id="a")
    lose_replies(monkeypatch)
    if change == "put":
        table.put(np.arange(4), id="b")
    elif change == "overwrite":
        table.put(np.arange(4), id="a", overwrite=True)
    else:
        table.delete("a")
    assert table.version == 2
    assert table.delta_calls.failures == 1
    fresh = table.refresh()
    assert fresh.version == 2
    assert list(fresh) == {"put": ["a", "b"], "overwrite": ["a"], "delete": []}[change]


def test_lost_reply_and_other_commits_after_it(table, monkeypatch, tmp_path):
    """The commit is found, though it is not the latest any more, and a checkpoint was made since."""
    table.put(np.arange(3), id="a")
    real = DeltaTable.create_write_transaction

    def commit(self, *args, **kwargs):
        real(self, *args, **kwargs)
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        with hs.Session() as session:
            other = tensor_table(tmp_path / "t", session=session)
            for number in range(3):
                other.put(np.arange(number + 1), id=f"other {number}")
        DeltaTable(str(tmp_path / "t")).create_checkpoint()
        raise OSError("connection reset by peer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    table.put(np.arange(9), id="b")
    assert table.version == 5
    assert list(table.refresh()) == ["a", "b", "other 0", "other 1", "other 2"]


def test_failures_are_tried_again(table, monkeypatch):
    table.put(np.arange(3), id="a")
    refuse(monkeypatch, times=2)
    table.put(np.arange(4), id="b")
    assert table.version == 2
    assert list(table.refresh()) == ["a", "b"]


def test_commit_that_fails_is_not_there(table, monkeypatch):
    table.put(np.arange(3), id="a")
    refuse(monkeypatch)
    with pytest.raises(StoreError, match="503"):
        table.put(np.arange(4), id="b")
    with pytest.raises(StoreError, match="503"):
        table.delete("a")
    assert list(table.refresh()) == ["a"]


def test_conflicts_end_at_the_deadline(tmp_path, session, monkeypatch):
    table = tensor_table(tmp_path / "t", session=session, patience_s=0.3)
    table.put(np.arange(3), id="a")
    real = commits.Committer._write

    def others_first(self, version, change, token):
        table_of_delta = DeltaTable(str(tmp_path / "t"))
        table_of_delta.alter.set_table_properties({"hyperslab.test": os.urandom(4).hex()}, raise_if_not_exists=False)
        real(self, version, change, token)

    monkeypatch.setattr(commits.Committer, "_write", others_first)
    with pytest.raises(ConflictError, match="not applied"):
        table.put(np.arange(4), id="b")
    assert list(table.refresh()) == ["a"]


def test_what_is_not_known_is_said(tmp_path, session, monkeypatch):
    """The commit's reply is lost and the log cannot be read: the report names the token to look for."""
    table = tensor_table(tmp_path / "t", session=session, patience_s=0.2)
    table.put(np.arange(3), id="a")
    real = DeltaTable.create_write_transaction

    def commit(self, *args, **kwargs):
        real(self, *args, **kwargs)

        def no_listing(*args, **kwargs):
            error = StoreError("503 SlowDown")
            error.transient = True
            raise error

        monkeypatch.setattr(local.LocalStore, "listing", no_listing)
        raise OSError("connection reset by peer")

    with monkeypatch.context():
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        with pytest.raises(StoreError, match="not known") as raised:
            table.put(np.arange(4), id="b")
    monkeypatch.undo()
    token = table.refresh()._version.tokens
    assert any(each in str(raised.value) for each in token)


def test_threads_with_handles_of_their_own(tmp_path):
    """Commits of several writers at once: none is lost, none is there twice."""
    made, failed = [], []

    def work(writer):
        try:
            with hs.Session() as session:
                table = tensor_table(tmp_path / "t", session=session)
                made.extend(table.put(np.full(3, writer * 10 + number)) for number in range(1, 5))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    table = tensor_table(tmp_path / "t")
    assert sorted(table) == sorted(made)
    assert len(set(made)) == 16 == len(DeltaTable(str(tmp_path / "t")).file_uris()) // 2
    assert sorted(int(table.get(id)[0]) for id in made) == sorted(w * 10 + n for w in range(4) for n in range(1, 5))


def test_threads_that_share_a_handle(table):
    table.put(np.arange(3), id="first")
    failed = []

    def work(n):
        try:
            table.put(np.full(3, n), id=f"{n}")
            if n % 2:
                table.delete(f"{n}")
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert list(table.refresh()) == ["2", "4", "6", "first"]
    assert table.refresh().version == 10


def test_decided_anew_after_a_conflict(table, tmp_path, monkeypatch):
    """A tensor that another writer deleted meanwhile cannot be deleted again; a replaced one is replaced again."""
    table.put_many({"a": np.arange(3), "b": np.arange(3)})
    with hs.Session() as session:
        other = tensor_table(tmp_path / "t", session=session)
        other.delete("a")
        other.put(np.arange(5), id="b", overwrite=True)
    with pytest.raises(NotFoundError, match="'a'"):
        table.delete("a")
    with pytest.raises(ConflictError, match="already"):
        table.put(np.arange(7), id="b")
    table.put(np.arange(7), id="b", overwrite=True)
    assert cells(table, "b") == [list(range(7))]
    assert list(table) == ["b"]


def test_columns_that_two_writers_add(tmp_path, session):
    table = tensor_table(tmp_path / "t", session=session)
    other = tensor_table(tmp_path / "t", session=session)
    table.put(np.arange(3), id="a", metadata={"city": "Rome", "n": 1})
    other.put(np.arange(3), id="b", metadata={"city": "Oslo", "ratio": 0.5})
    listed = table.refresh().list(columns=["id", "city", "n", "ratio"]).to_pylist()
    assert listed == [
        {"id": "a", "city": "Rome", "n": 1, "ratio": None},
        {"id": "b", "city": "Oslo", "n": None, "ratio": 0.5},
    ]


def test_log_says_what_delta_says(tmp_path, session):
    """Every version, before and after checkpoints, has the files that delta-rs finds in it."""
    table = tensor_table(tmp_path / "t", session=session)
    for number in range(24):
        table.put(np.arange(number), id=f"{number % 5}", overwrite=True, metadata={"n": number})
        if number % 7 == 3:
            table.delete(f"{number % 5}")
        if number == 15:
            table.optimize()
    names = os.listdir(tmp_path / "t" / "_delta_log")
    assert sum(name.endswith("checkpoint.parquet") for name in names) == 1
    place = locate_table(tmp_path / "t", None, session)
    found = read_log(place)
    assert found.latest == table.version
    for number in range(found.latest + 1):
        version = read_version(place, found, number)
        expected = DeltaTable(str(tmp_path / "t"), version=number)
        root = str(tmp_path / "t") + "/"
        uris = [uri.removeprefix("file://").removeprefix(root) for uri in expected.file_uris()]
        assert sorted(version.files) == sorted(uris)
        by_delta = log._by_delta(place, number)
        assert set(by_delta.files) == set(version.files)
        assert by_delta.columns == version.columns
        for path, file in by_delta.files.items():
            mine, theirs = json.loads(version.files[path].stats), json.loads(file.stats)
            assert file.nbytes == version.files[path].nbytes
            assert {name: theirs["minValues"][name] for name in mine["minValues"]} == mine["minValues"]


def test_delta_is_asked_where_the_log_has_gaps(tmp_path, session):
    """Commits before a checkpoint of a kind that is not read here are gone: delta-rs reads it."""
    table = tensor_table(tmp_path / "t", session=session)
    for number in range(3):
        table.put(np.arange(number + 1), id=f"{number}")
    folder = tmp_path / "t" / "_delta_log"
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    table.put(np.arange(9), id="last")
    place = locate_table(tmp_path / "t", None, session)
    found = read_log(place)
    for number in range(3):
        os.remove(folder / f"{number:020}.json")
    gaps = log.Log({number: each for number, each in found.commits.items() if number > 2}, {})
    version = read_version(place, gaps, 4)
    assert sorted(version.files) == sorted(table._version.files)
    assert sorted(tensor_table(tmp_path / "t", session=session)) == ["0", "1", "2", "last"]


def test_tables_that_are_not_read(tmp_path, session):
    table = tensor_table(tmp_path / "t", session=session)
    table.put(np.arange(3), id="a")
    commit = tmp_path / "t" / "_delta_log" / f"{2:020}.json"
    for action in (
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["futureThing"]}},
        {"add": {"path": "s3://elsewhere/x.parquet", "size": 1, "modificationTime": 1, "partitionValues": {}}},
        {"add": {"path": "x", "size": 1, "modificationTime": 1, "deletionVector": {"storageType": "u"}}},
    ):
        commit.write_text(json.dumps(action) + "\n")
        with pytest.raises(UnsupportedError):
            tensor_table(tmp_path / "t", session=session)


@pytest.mark.parametrize("more", [b"{", b"7", b"{}, {}", b'"', b"]", b"\xff"])
def test_log_that_is_none_is_an_error(tmp_path, table, more):
    table.put(np.arange(3), id="a")
    last = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    last.write_bytes(last.read_bytes() + b"\n" + more)
    with pytest.raises(MetadataError, match=r"no part of a Delta table's log"):
        tensor_table(tmp_path / "t", "r").get("a")


def test_a_log_may_begin_with_a_byte_order_mark(tmp_path, table):
    table.put(np.arange(3), id="a")
    last = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    last.write_bytes(b"\xef\xbb\xbf" + last.read_bytes())
    assert np.array_equal(tensor_table(tmp_path / "t", "r").get("a"), np.arange(3))


def test_options_of_delta(tmp_path, session, no_aws):
    given = {"key": "k", "secret": "s", "endpoint": "http://127.0.0.1:1", "region": "eu-west-1"}
    options = delta_options(locate_table("s3://bucket/t", given, session))
    assert options["AWS_ACCESS_KEY_ID"] == "k"
    assert options["AWS_SECRET_ACCESS_KEY"] == "s"
    assert options["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert options["AWS_REGION"] == "eu-west-1"
    assert options["AWS_ALLOW_HTTP"] == "true"
    account = {"account": "abc", "account_key": "a2V5", "endpoint": "http://127.0.0.1:2/abc"}
    assert delta_options(locate_table("az://c/t", account, session))["account_key"] == "a2V5"
    service = {"service_account_key": "{}"}
    assert delta_options(locate_table("gs://b/t", service, session))["service_account_key"] == "{}"
    with pytest.raises(UnsupportedError, match="memory"):
        tensor_table("memory://some", session=session).put(np.arange(3))
