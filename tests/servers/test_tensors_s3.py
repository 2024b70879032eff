"""Tensor tables on a real S3 server: what the wire sees, and replies that are lost on it."""

import uuid

import numpy as np
import pytest
from support.s3proxy import Rule, S3Proxy
from support.seaweed import options_for

import hyperslab as hs
from hyperslab.errors import ConflictError
from hyperslab.tensors import Coo, tensor_table

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 255, (40, 3, 128, 128)).astype("u1")
COORDS = np.array([RNG.integers(0, n, 500) for n in (50, 60, 70)])
SPARSE = Coo.of((50, 60, 70), COORDS, RNG.integers(1, 4, 500).astype("f4"))


@pytest.fixture
def url(s3):
    return s3.url(f"tensors/{uuid.uuid4().hex}")


@pytest.fixture
def proxied(s3_proxy):
    return options_for(s3_proxy.endpoint)


def test_everything_once(s3, url):
    with hs.Session() as session:
        table = tensor_table(url, storage_options=s3.storage_options, session=session)
        table.put(IMAGES, id="images", layout="ftsf", chunk_dims=3, rows=1, metadata={"city": "Rome"})
        table.put(SPARSE, id="sparse", layout="bsgs")
        table.put_many({f"small {n}": np.arange(n + 1) for n in range(5)})
        table.put(IMAGES[:3], id="small 3", overwrite=True)
        table.delete("small 0")
        table.optimize()
    with hs.Session() as session:
        table = tensor_table(url, "r", storage_options=s3.storage_options, session=session)
        assert list(table) == ["images", "small 1", "small 2", "small 3", "small 4", "sparse"]
        assert (table["images"][7:9, 1] == IMAGES[7:9, 1]).all()
        assert (table.get("sparse", "numpy") == SPARSE.to_dense()).all()
        assert (table.get("small 3") == IMAGES[:3]).all()
        assert table.list({"city": "Rome"}).column("id").to_pylist() == ["images"]
        assert list(table.at(version=1)) == ["images"]
        assert len(tensor_table(url, storage_options=s3.storage_options, session=session).vacuum(0)) > 5
        assert (table.get("images") == IMAGES).all()


def test_one_image_is_its_bytes_one_footer_and_the_log(s3, s3_proxy, proxied, url):
    with hs.Session() as session:
        made = tensor_table(url, storage_options=s3.storage_options, session=session)
        made.put(IMAGES, id="images", layout="ftsf", chunk_dims=3, rows=1)
    one = IMAGES[0].nbytes
    with hs.Session() as session:
        table = tensor_table(url, storage_options=proxied, session=session)
        log = [each for each in s3_proxy.log if "_delta_log" in each.path or "list-type" in each.query]
        assert len(log) == len(s3_proxy.log)
        s3_proxy.clear()
        assert (table["images"][33] == IMAGES[33]).all()
        assert [each.method for each in s3_proxy.log] == ["GET", "GET"]
        footer, rows = s3_proxy.log
        assert footer.body_bytes < 0.5 * one
        assert rows.body_bytes <= 1.05 * one
        s3_proxy.clear()
        assert (table["images"][32] == IMAGES[32]).all()
        assert [each.body_bytes <= 1.05 * one for each in s3_proxy.log] == [True]
        seen = session.metrics.bytes
        assert seen >= footer.body_bytes + rows.body_bytes + one


@pytest.mark.parametrize("change", ["put", "overwrite", "delete"])
def test_lost_replies(s3, s3_proxy, proxied, url, change):
    """The commit lands and its answer does not arrive: there is one version, and it is reported as done."""
    with hs.Session() as session:
        table = tensor_table(url, storage_options=proxied, session=session)
        table.put(np.arange(3), id="a")
        s3_proxy.rules.append(Rule("drop", key="_delta_log/", method="PUT", times=1))
        if change == "put":
            table.put(np.arange(4), id="b")
        elif change == "overwrite":
            table.put(np.arange(5), id="a", overwrite=True)
        else:
            table.delete("a")
        assert table.version == 2
        assert table.delta_calls.failures == 1
    with hs.Session() as session:
        found = tensor_table(url, storage_options=s3.storage_options, session=session)
        assert found.version == 2
        assert list(found) == {"put": ["a", "b"], "overwrite": ["a"], "delete": []}[change]
        if change == "overwrite":
            assert found.get("a").tolist() == [0, 1, 2, 3, 4]


def test_lost_replies_of_everything(s3, s3_proxy, proxied, url):
    """Answers to the making of the table, to data files and to the log's listing are lost as well."""
    with hs.Session() as session:
        for method, key in (("PUT", "_delta_log/"), ("PUT", "data/"), ("PUT", "tensors/"), ("GET", "_delta_log/")):
            s3_proxy.rules.append(Rule("drop", key=key, method=method, times=1))
        table = tensor_table(url, storage_options=proxied, session=session)
        table.put(IMAGES[:2], id="a")
        table.put(IMAGES[2:4], id="b")
        assert (table["b"][1] == IMAGES[3]).all()
    with hs.Session() as session:
        found = tensor_table(url, storage_options=s3.storage_options, session=session)
        assert list(found) == ["a", "b"]
        assert found.version == 2


def test_commits_that_are_refused(s3, url):
    with S3Proxy(s3.host, whole=s3.read) as proxy, hs.Session(retries=1) as session:
        table = tensor_table(url, storage_options=options_for(proxy.endpoint), session=session)
        table.put(np.arange(3), id="a")
        proxy.rules.append(Rule("status", key="_delta_log/", method="PUT", status=503, code="SlowDown"))
        with pytest.raises(OSError, match="committing"):
            table.put(np.arange(4), id="b")
        proxy.clear()
        assert list(table.refresh()) == ["a"]
        with pytest.raises(ConflictError):
            table.put(np.arange(4), id="a")
