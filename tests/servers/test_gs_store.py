"""The store on a fake of Google's XML API. What Google itself does with generations is not proven by this."""

import pytest
from hypothesis import HealthCheck, given, settings
from support.conformance import Calls, Place, ReadConformance, WriteConformance, check_wire_names, hostile_names
from support.fake_gcs import FakeGcs
from support.forking import in_child
from support.s3proxy import S3Proxy
from support.store_faults import DATA, Behind, ReadFaults, WriteFaults

from hyperslab.errors import AccessError, ConflictError, StoreNotFoundError
from hyperslab.store import locate

both = pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])


@pytest.fixture
def server():
    with S3Proxy(fake=FakeGcs()) as proxy:
        yield proxy


@pytest.fixture
def fake(server):
    options = {"endpoint": server.endpoint, "token": "hush-token"}
    return Place(locate("gs://bucket", options)[0], server.fake.put)


@pytest.fixture
def proxied(server, fake):
    fake.put("a", DATA)
    return Behind(fake.store, server, ("hush-token",))


class TestReadGoogle(ReadConformance):
    @pytest.fixture
    def place(self, fake):
        return fake


class TestWriteGoogle(WriteConformance):
    @pytest.fixture
    def place(self, fake):
        return fake


class TestReadFaultsGoogle(ReadFaults):
    @pytest.fixture
    def behind(self, proxied):
        return proxied


class TestWriteFaultsGoogle(WriteFaults):
    @pytest.fixture
    def behind(self, proxied):
        return proxied


@both
def test_the_same_bytes_are_another_version(fake, call):
    first = call.put(fake.store, "a", b"x")
    second = call.put(fake.store, "a", b"x")
    assert first != second
    assert first.split("#")[0] == second.split("#")[0]
    with pytest.raises(ConflictError):
        call.put(fake.store, "a", b"y", if_match=first)
    with pytest.raises(ConflictError):
        call.get(fake.store, "a", if_match=first)


@both
def test_pages(server, fake, call):
    server.fake.page = 7
    for number in range(30):
        fake.put(f"many/{number:02}/x", b"x")
    assert call.children(fake.store, "many") == [f"{number:02}" for number in range(30)]
    assert call.keys(fake.store, "many") == [(f"many/{number:02}/x", 1) for number in range(30)]


@both
def test_reading_without_a_login(server, call):
    server.fake.put("open", b"x")
    store, _ = locate("gcs://bucket", {"endpoint": server.endpoint, "token": "anon"})
    assert bytes(call.get(store, "open").data) == b"x"
    assert store.scheme == "gs"


@both
def test_a_bucket_that_is_not_there(server, call):
    store, _ = locate("gs://nobody", {"endpoint": server.endpoint, "anonymous": True})
    for function, args in ((call.get, ["x"]), (call.put, ["x", b""]), (call.children, [""]), (call.keys, [""])):
        with pytest.raises(StoreNotFoundError, match="no bucket gs://nobody"):
            function(store, *args)


@both
def test_a_login_that_cannot_be_had(server, call, tmp_path):
    for options in ({"service_account": str(tmp_path / "none.json")}, {"service_account_key": "{hush"}):
        store, _ = locate("gs://bucket", {"endpoint": server.endpoint, **options})
        with pytest.raises(AccessError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
            call.get(store, "x")
        assert "hush" not in str(caught.value)


def test_in_a_forked_child(fake):
    """Also with the login that is handed to obstore by a function of ours."""
    first = fake.store.put("a", DATA)
    assert bytes(fake.store.get("a", (0, 3)).data) == DATA[:3]
    second = in_child(lambda: fake.store.put("a", b"child", if_match=first))
    assert fake.store.get("a").etag == second
    assert bytes(fake.store.get("a").data) == b"child"


@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(name=hostile_names)
def test_no_name_leads_elsewhere(server, fake, name):
    check_wire_names(fake.store, server.log, "/bucket/", name)
