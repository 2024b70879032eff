"""What every store on a network must do when its server misbehaves: a typed error, in time, after one request."""

import time
from dataclasses import dataclass

import pytest

from hyperslab.errors import AccessError, ConflictError, HyperslabError, IntegrityError, NotFoundError, StoreError
from hyperslab.store import Store
from support.conformance import Calls
from support.hostile import wait_until
from support.s3proxy import Rule, S3Proxy

DATA = bytes(range(100))


@dataclass
class Behind:
    """A store whose server is reached through a proxy, with the object "a" of 100 bytes in it."""

    store: Store
    proxy: S3Proxy
    secrets: tuple[str, ...] = ()

    def fails(self, kind: type[Exception], function, *args, **kwargs) -> HyperslabError:
        """Return the error that the call raises, after one request, and without telling a secret."""
        self.proxy.log.clear()
        with pytest.raises(kind) as caught:
            function(self.store, *args, **kwargs)
        # A server that is slow to read may hear of the request after its sender has given up.
        assert wait_until(lambda: self.proxy.log)
        assert len(self.proxy.log) == 1
        assert isinstance(caught.value, HyperslabError)
        assert not [secret for secret in self.secrets if secret in str(caught.value)]
        return caught.value


@pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])
class ReadFaults:
    @pytest.fixture
    def behind(self) -> Behind:
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("status", "kind", "transient"),
        [
            (500, StoreError, True),
            (503, StoreError, True),
            (429, StoreError, True),
            (400, StoreError, False),
            (401, AccessError, False),
            (403, AccessError, False),
            (404, NotFoundError, None),
            (412, ConflictError, None),
            (416, IntegrityError, None),
        ],
    )
    def test_refusals(self, behind, call, status, kind, transient):
        behind.proxy.rules.append(Rule("status", status=status, code="SomeCode"))
        error = behind.fails(kind, call.get, "a", (0, 10))
        assert type(error) is kind
        assert getattr(error, "transient", None) == transient

    @pytest.mark.parametrize("action", ["drop", "garbage", "truncate"])
    @pytest.mark.parametrize("span", [None, (0, 10)], ids=["whole", "range"])
    def test_broken_answers(self, behind, call, action, span):
        behind.proxy.rules.append(Rule(action, after_bytes=3, times=1))
        assert behind.fails(StoreError, call.get, "a", span).transient
        assert bytes(call.get(behind.store, "a", (0, 10)).data) == DATA[:10]

    @pytest.mark.parametrize("action", ["stall", "stall_body"])
    def test_silence(self, behind, call, action):
        behind.proxy.rules.append(Rule(action, after_bytes=3))
        started = time.monotonic()
        assert behind.fails(StoreError, call.get, "a", (0, 10), timeout_s=1.0).transient
        assert time.monotonic() - started < 30

    @pytest.mark.parametrize(
        "header", ["bytes 0-9/100", "bytes 1-10/100", "bytes 0-8/100", "bytes 0-9/5", "nonsense", None]
    )
    def test_other_bytes_than_asked_for(self, behind, call, header):
        """A wrong Content-Range is an error; for the right one, the bytes come."""
        behind.proxy.rules.append(Rule("headers", headers={"Content-Range": header, "content-range": None}))
        if header == "bytes 0-9/100":
            assert bytes(call.get(behind.store, "a", (0, 10)).data) == DATA[:10]
        else:
            behind.fails(HyperslabError, call.get, "a", (0, 10))

    def test_a_range_that_is_ignored(self, behind, call):
        behind.proxy.whole = lambda key: DATA
        behind.proxy.rules.append(Rule("ignore_range"))
        error = behind.fails(StoreError, call.get, "a", (0, 10))
        assert "ignores byte ranges" in str(error)
        assert not error.transient

    def test_nobody_there(self, behind, call):
        behind.proxy.close_server()
        with pytest.raises(StoreError, match=r"connect|broke") as caught:
            call.get(behind.store, "a")
        assert caught.value.transient


@pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])
class WriteFaults:
    @pytest.fixture
    def behind(self) -> Behind:
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("status", "conditions", "kind", "transient"),
        [
            (500, {}, StoreError, True),
            (503, {}, StoreError, True),
            (507, {}, StoreError, True),
            (400, {}, StoreError, False),
            (413, {}, StoreError, False),
            (403, {}, AccessError, False),
            (404, {}, NotFoundError, None),
            (409, {"if_absent": True}, ConflictError, None),
            (412, {"if_absent": True}, ConflictError, None),
            (412, {"if_match": '"1"#1'}, ConflictError, None),
            (409, {"if_match": '"1"#1'}, ConflictError, None),
            (404, {"if_match": '"1"#1'}, ConflictError, None),
            (503, {"if_match": '"1"#1'}, StoreError, True),
            (503, {"if_absent": True}, StoreError, True),
            (403, {"if_absent": True}, AccessError, False),
        ],
    )
    def test_refusals(self, behind, call, status, conditions, kind, transient):
        behind.proxy.rules.append(Rule("status", method="PUT", status=status, code="SomeCode"))
        error = behind.fails(kind, call.put, "new/one", DATA, **conditions)
        assert isinstance(error, kind)
        assert "new/one" in str(error) or status == 404
        assert getattr(error, "transient", None) == transient
        behind.proxy.rules.clear()
        assert behind.store.keys("new") == []

    def test_an_answer_that_is_lost(self, behind, call):
        """The bytes are there, and who puts them again on condition that they were not is told so."""
        behind.proxy.rules.append(Rule("drop", method="PUT", times=1))
        assert behind.fails(StoreError, call.put, "lost", DATA, if_absent=True).transient
        assert bytes(behind.store.get("lost").data) == DATA
        behind.fails(ConflictError, call.put, "lost", DATA, if_absent=True)

    @pytest.mark.parametrize("action", ["garbage", "stall"])
    def test_no_answer(self, behind, call, action):
        behind.proxy.rules.append(Rule(action, method="PUT", times=1))
        started = time.monotonic()
        assert behind.fails(StoreError, call.put, "new", DATA, timeout_s=1.0).transient
        assert time.monotonic() - started < 30

    def test_a_put_sends_all_its_bytes_once(self, behind, call):
        data = bytes(3 << 20)
        behind.proxy.log.clear()
        call.put(behind.store, "large", data)
        call.put(behind.store, "large", data, if_match=behind.store.get("large").etag)
        assert [entry.method for entry in behind.proxy.log] == ["PUT", "GET", "PUT"]
        assert behind.store.head("large")[0] == 3 << 20

    def test_a_put_may_take_longer_than_silence(self, behind, call, monkeypatch):
        from hyperslab.store import remote

        monkeypatch.setattr(remote, "SILENT_S", 0.2)
        behind.proxy.rules.append(Rule("run", method="PUT", run=lambda: time.sleep(0.5)))
        assert call.put(behind.store, "slow", DATA)

    @pytest.mark.parametrize("status", [500, 503])
    def test_delete(self, behind, call, status):
        for method in ("DELETE", "POST"):
            behind.proxy.rules.append(Rule("status", method=method, status=status, code="SomeCode"))
        assert behind.fails(StoreError, call.delete, "a").transient
        behind.proxy.rules.clear()
        assert bytes(behind.store.get("a").data) == DATA

    @pytest.mark.parametrize("name", ["children", "keys"])
    def test_a_listing_that_stalls(self, behind, call, name):
        behind.proxy.rules.append(Rule("stall"))
        started = time.monotonic()
        assert behind.fails(StoreError, getattr(call, name), "", timeout_s=1.0).transient
        assert time.monotonic() - started < 30

    @pytest.mark.parametrize("name", ["children", "keys"])
    def test_a_listing_that_is_cut_off(self, behind, call, name):
        behind.proxy.rules.append(Rule("truncate", after_bytes=30))
        assert behind.fails(StoreError, getattr(call, name), "").transient
