"""Every read leaves a record and is counted, whatever becomes of it; a sink cannot spoil one."""

import asyncio
import os
import time

import numpy as np
import pytest
from support.hostile import array_at, encode, fast, put, sent
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import BudgetError, InvalidInputError, StoreError
from hyperslab.execute import Ledger, Metrics, ReadRecord

DATA = np.arange(1024, dtype="i4").reshape(32, 32)
CHUNKS = (8, 8)


def on_disk(folder, layout="plain"):
    for key, value in encode(DATA, CHUNKS, layout).items():
        path = folder / "a" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return folder / "a"


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards"])
def test_a_record_of_a_remote_read(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    records: list[ReadRecord] = []
    with fast(sink=records.append) as session:
        array = array_at(fake_s3, "a", session)
        assert not records
        said = array.explain(np.s_[3:20:2, [1, 2, 30]]).plan.estimate
        started = time.time()
        array[3:20:2, [1, 2, 30]]
        (record,) = records
        assert record.url == "s3://bucket/a"
        assert record.axes[0] == (3, 9, 2)
        assert list(record.axes[1]) == [1, 2, 30]
        assert record.shape == (32, 32)
        assert record.method is None
        assert record.chunks == 6
        assert record.predicted == said
        assert record.error is None
        assert record.process == os.getpid()
        assert started - 1 < record.started_at <= time.time()
        ledger = record.ledger
        assert (ledger.requests + ledger.lookups, ledger.bytes) == sent(fake_s3)
        assert ledger.needed_bytes == 9 * 3 * 4
        assert ledger.reads == 1
        assert 0 < ledger.seconds < 10
        prices = hs.Prices.named("aws")
        assert ledger.usd == pytest.approx(sent(fake_s3)[0] * prices.request_usd + ledger.bytes * prices.byte_usd)


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards-zstd"])
def test_a_record_of_a_local_read(tmp_path, layout):
    records = []
    with fast(sink=records.append) as session:
        array = hs.open(on_disk(tmp_path, layout), session=session)
        array[0:8, 0:8]
        array.points[[1, 2], [3, 4]]
        array.read_boxes([np.s_[0], np.s_[5:9]])
        asyncio.run(array.aread(np.s_[1]))
        assert [record.axes and record.axes[0] for record in records] == [
            (0, 8, 1), None, (0, 1, 1), (5, 4, 1), (1, 1, 1),
        ]  # fmt: skip
        assert records[0].chunks == 1
        assert records[0].ledger.needed_bytes == 256
        assert all(record.predicted is not None for record in records)
        assert session.metrics.reads == 4


def test_a_read_that_fails_is_recorded(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    records = []
    with fast(sink=records.append, retries=1) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=500))
        with pytest.raises(StoreError):
            array[0, 0]
        (record,) = records
        assert record.error == "StoreError"
        assert (record.ledger.requests, record.ledger.retries, record.ledger.bytes) == (2, 1, 0)
        with pytest.raises(BudgetError):
            array.read(budget=hs.Budget(requests=0))
        assert len(records) == 1  # nothing was read, nothing was sent


class Broken(Exception):
    pass


def _break(record):
    raise Broken("the log is full")


@pytest.mark.parametrize("where", ["file", "file-zstd", "s3"])
def test_a_sink_that_raises(fake_s3, tmp_path, where):
    """Its error reaches the reader; the cells are in place, the accounts settled, the session good."""
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(sink=_break, budget=hs.Budget(requests=1000)) as session:
        if where == "s3":
            array = array_at(fake_s3, "a", session)
        else:
            array = hs.open(on_disk(tmp_path, "zstd" if "zstd" in where else "plain"), session=session)
        out = np.zeros_like(DATA)
        with pytest.raises(Broken):
            array.read(out=out)
        assert np.array_equal(out, DATA)
        used = session.metrics.requests
        assert session.account.left().requests == 1000 - used
        with pytest.raises(Broken):
            asyncio.run(array.aread())
        session.sink = None
        assert np.array_equal(array[...], DATA)


def test_a_sink_that_raises_does_not_hide_the_error(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(sink=_break, retries=0) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=500))
        with pytest.raises(StoreError) as caught:
            array[0, 0]
        assert "the log is full" in caught.value.__notes__[0]


def test_a_sink_may_read(fake_s3):
    """It is called by the reader, not on the loop that it would wait for."""
    put(fake_s3, "a", DATA, CHUNKS)
    seen = []

    def look(record):
        session.sink = None
        seen.append(array[0, 1])
        session.sink = look

    with fast(sink=look) as session:
        array = array_at(fake_s3, "a", session)
        array[...]
        asyncio.run(array.aread())
        assert seen == [1, 1]


def test_metrics_add_up():
    metrics = Metrics()
    metrics.add(Ledger(reads=1, requests=2, lookups=3, bytes=4, needed_bytes=5, retries=6, cache_hits=7, usd=0.5))
    metrics.add(Ledger(reads=1, seconds=1.5, usd=0.25))
    assert metrics.snapshot() == Ledger(2, 2, 3, 4, 5, 6, 7, 1.5, 0.75)
    assert metrics.usd == 0.75
    assert repr(metrics).startswith("Metrics(reads=2, requests=2")
    with pytest.raises(AttributeError):
        metrics.nonsense
    assert set(metrics.snapshot().to_dict()) == set(Ledger.__slots__)


def test_a_session_is_closed_once_and_for_all(tmp_path):
    session = hs.Session()
    array = hs.open(on_disk(tmp_path), session=session)
    with session:
        array[0]
    for use in (lambda: array[0], lambda: hs.open(tmp_path / "a", session=session), lambda: array.explain[0]):
        with pytest.raises(InvalidInputError, match="session is closed; open a new one"):
            use()
    with pytest.raises(InvalidInputError, match="session is closed"):
        asyncio.run(array.aread())
