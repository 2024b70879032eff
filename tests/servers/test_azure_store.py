"""The store on Azurite, the emulator of Azure's blobs, and on that server behind a proxy that misbehaves."""

import base64
import hashlib
import hmac
import time
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from support.conformance import Calls, Place, ReadConformance, WriteConformance, check_wire_names, hostile_names
from support.forking import in_child
from support.s3proxy import S3Proxy
from support.store_faults import DATA, Behind, ReadFaults, WriteFaults

from hyperslab.errors import AccessError, InvalidInputError, NotFoundError, StoreNotFoundError
from hyperslab.store import locate
from hyperslab.store.azure import EMULATOR_ACCOUNT, EMULATOR_KEY

both = pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])


@pytest.fixture
def emptied(azurite):
    client = azurite.client()
    for key in [entry["path"] for page in client.list() for entry in page]:
        client.delete(key)
    return Place(locate(azurite.url(), azurite.storage_options)[0], client.put)


@pytest.fixture
def proxied(azurite, emptied):
    emptied.put("a", DATA)
    with S3Proxy(azurite.host, whole=azurite.read) as proxy:
        store, _ = locate(azurite.url(), {"emulator": True, "endpoint": proxy.endpoint})
        yield Behind(store, proxy, (EMULATOR_KEY,))


class TestReadAzure(ReadConformance):
    @pytest.fixture
    def place(self, emptied):
        return emptied


class TestWriteAzure(WriteConformance):
    @pytest.fixture
    def place(self, emptied):
        return emptied


class TestReadFaultsAzure(ReadFaults):
    @pytest.fixture
    def behind(self, proxied):
        return proxied


class TestWriteFaultsAzure(WriteFaults):
    @pytest.fixture
    def behind(self, proxied):
        return proxied


@both
def test_the_last_bytes_take_two_requests(proxied, call):
    store, log = proxied.store, proxied.proxy.log
    assert not store.has_suffix
    reply = call.get(store, "a", -10)
    assert bytes(reply.data) == DATA[-10:]
    assert reply.requests == 2
    assert [(entry.method, entry.range) for entry in log] == [("HEAD", None), ("GET", "bytes=90-99")]
    assert log[1].if_match == reply.etag
    log.clear()
    assert call.get(store, "a", (90, 100)).requests == 1
    assert len(log) == 1
    with pytest.raises(NotFoundError):
        call.get(store, "nothing", -10)


@both
def test_wrong_credentials(azurite, call):
    azurite.put("mine", b"x")
    wrong = base64.b64encode(b"wrong" * 8).decode()
    options = {"account": EMULATOR_ACCOUNT, "endpoint": azurite.endpoint}
    for login in ({"account_key": wrong}, {"sas_token": "sv=2021-12-02&sig=" + quote(wrong)}, {"anonymous": True}):
        store, _ = locate(azurite.url(), {**options, **login})
        with pytest.raises(AccessError, match="AZURE_STORAGE_ACCOUNT_KEY") as caught:
            call.get(store, "mine")
        assert wrong not in str(caught.value)
        assert quote(wrong) not in str(caught.value)
    store, _ = locate(azurite.url(), {**options, "account_key": "not base64!"})
    with pytest.raises((AccessError, InvalidInputError)) as caught:
        call.get(store, "mine")
    assert "not base64!" not in str(caught.value)


def _sas(container: str) -> str:
    """Sign for this container what Azure's manual calls a service SAS: read, write and list, for an hour."""
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    version = "2020-12-06"
    # In the manual's order: permissions, start, expiry, resource, identifier, ip, protocol, version, kind, no more.
    lines = ["rwdl", "", expiry, f"/blob/{EMULATOR_ACCOUNT}/{container}", "", "", "", version, "c", *[""] * 7]
    digest = hmac.new(base64.b64decode(EMULATOR_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest).decode(), safe="")
    return f"sv={version}&sr=c&sp=rwdl&se={quote(expiry, safe='')}&sig={signature}"


@both
def test_all_ways_to_log_in(azurite, call, monkeypatch):
    azurite.put("mine", b"x")
    endpoint = azurite.endpoint
    text = f"AccountName={EMULATOR_ACCOUNT};AccountKey={EMULATOR_KEY};BlobEndpoint={endpoint};"
    options = {"account": EMULATOR_ACCOUNT, "endpoint": endpoint}
    for login in (
        {**options, "account_key": EMULATOR_KEY},
        {**options, "sas_token": "?" + _sas(azurite.container)},
        {"connection_string": text},
        {"connection_string": text.replace(f"AccountKey={EMULATOR_KEY}", f"SharedAccessSignature={_sas('bench')}")},
    ):
        store, _ = locate(azurite.url(), login)
        assert bytes(call.get(store, "mine").data) == b"x"
        call.put(store, "put", b"x")
        assert "mine" in call.children(store, "")
        assert EMULATOR_KEY not in repr(store) + store.address
        assert "sig=" not in repr(store) + store.address
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    store, _ = locate(azurite.url())
    assert bytes(call.get(store, "mine").data) == b"x"
    # What the options say goes before what the environment says.
    store, _ = locate(azurite.url(), {**options, "account_key": base64.b64encode(b"wrong" * 8).decode()})
    with pytest.raises(AccessError):
        call.get(store, "mine")
    store, _ = locate(azurite.url(), {**options, "anonymous": True})
    with pytest.raises(AccessError):
        call.get(store, "mine")


@both
def test_public_data(azurite, call):
    azurite.client("public").put("p/q", b"open")
    options = {"account": EMULATOR_ACCOUNT, "endpoint": azurite.endpoint, "anon": True}
    store, path = locate("azure://public/p/q", options)
    assert bytes(call.get(store, path).data) == b"open"
    assert call.children(store, "p") == ["q"]
    assert store.scheme == "az"


@both
def test_a_container_that_is_not_there(azurite, call):
    store, _ = locate("az://no-such-container/x", azurite.storage_options)
    for function, args in ((call.get, ["x"]), (call.put, ["x", b""]), (call.children, [""]), (call.keys, [""])):
        with pytest.raises(StoreNotFoundError, match="no container az://no-such-container"):
            function(store, *args)


def test_in_a_forked_child(emptied):
    """Also with the login that is handed to obstore by a function of ours."""
    first = emptied.store.put("a", DATA)
    assert bytes(emptied.store.get("a", (0, 3)).data) == DATA[:3]
    second = in_child(lambda: emptied.store.put("a", b"child", if_match=first))
    assert emptied.store.get("a").etag == second
    assert bytes(emptied.store.get("a").data) == b"child"


@settings(
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture], max_examples=25
)
@given(name=hostile_names)
def test_no_name_leads_elsewhere(proxied, name):
    check_wire_names(proxied.store, proxied.proxy.log, f"/{EMULATOR_ACCOUNT}/bench/", name)
