"""The store on plain web servers: one with ranges, and those that lack them, versions, or good manners."""

import functools
import http.server
import io
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.conformance import Calls, Place, ReadConformance, check_wire_names, hostile_names
from support.forking import in_child
from support.s3proxy import Rule, S3Proxy
from support.store_faults import DATA, Behind, ReadFaults
from support.web import Web

import hyperslab as hs
from hyperslab.errors import AccessError, IntegrityError, InvalidInputError, NotFoundError, StoreError
from hyperslab.store import locate

both = pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])


@pytest.fixture
def server():
    with S3Proxy(fake=Web()) as proxy:
        yield proxy


@pytest.fixture
def web(server):
    return Place(locate(server.endpoint)[0], server.fake.put)


class TestReadHttp(ReadConformance):
    @pytest.fixture
    def place(self, web):
        return web


class TestReadFaultsHttp(ReadFaults):
    @pytest.fixture
    def behind(self, server):
        server.fake.put("a", DATA)
        server.fake.query = "signature=hush"
        return Behind(locate(server.endpoint + "/a?signature=hush")[0], server, ("hush",))


@both
def test_a_url_is_a_server_and_a_path(server, call):
    server.fake.put("deep er/file.nc", DATA)
    store, path = locate(f"{server.endpoint}/deep%20er/file.nc")
    assert path == "deep er/file.nc"
    assert store.address == server.endpoint
    assert store.scheme == "http"
    assert bytes(call.get(store, path, (5, 9)).data) == DATA[5:9]
    assert [entry.path for entry in server.log] == ["/deep%20er/file.nc"]


@both
@pytest.mark.parametrize("etags", ["weak", "none"])
def test_without_versions(server, web, call, etags):
    server.fake.etags = etags
    web.put("a", DATA)
    reply = call.get(web.store, "a", (0, 5))
    assert reply.etag is None
    assert call.head(web.store, "a") == (100, None)


@both
def test_ranges_that_are_ignored(server, web, call):
    server.fake.ranges = False
    web.put("large", bytes(16 << 20))
    for span in ((0, 10), -10):
        with pytest.raises(StoreError, match="ignores byte ranges") as caught:
            call.get(web.store, "large", span)
        assert not caught.value.transient
    with pytest.raises(IntegrityError, match="at most 1,000"):
        call.get(web.store, "large", limit_bytes=1000)
    assert call.get(web.store, "large").object_nbytes == 16 << 20


@pytest.fixture
def plain(tmp_path):
    """The web server that comes with Python: no ranges, no ETags."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(DATA)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@both
def test_the_server_that_comes_with_python(plain, call):
    store, path = locate(f"{plain}/folder/file")
    assert bytes(call.get(store, path).data) == DATA
    assert call.head(store, path) == (100, None)
    with pytest.raises(StoreError, match="ignores byte ranges"):
        call.get(store, path, (0, 5))
    with pytest.raises(NotFoundError):
        call.get(store, "folder/none")


@both
def test_nothing_is_listed_or_written(server, web, call):
    web.put("a/b", DATA)
    for name, args in (("children", ["a"]), ("keys", ["a"])):
        with pytest.raises(StoreError, match=r"cannot list.*by their path"):
            getattr(call, name)(web.store, *args)
    for name, args in (("put", ["a/c", b"x"]), ("delete", ["a/b"])):
        with pytest.raises(StoreError, match="only be read"):
            getattr(call, name)(web.store, *args)
    assert server.log == []


@both
@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"token": "hush"}, {"authorization": "Bearer hush"}),
        ({"username": "me", "password": "hush"}, {"authorization": "Basic bWU6aHVzaA=="}),
        ({"headers": {"X-Key": "hush"}}, {"x-key": "hush"}),
    ],
    ids=["token", "password", "headers"],
)
def test_logins(server, call, options, headers):
    server.fake.put("a", DATA)
    server.fake.headers = headers
    store, path = locate(f"{server.endpoint}/a", options)
    assert bytes(call.get(store, path, (0, 3)).data) == DATA[:3]
    assert "hush" not in repr(store) + store.address + repr(store._backend.settings)
    other, _ = locate(f"{server.endpoint}/a")
    assert other is not store
    with pytest.raises(AccessError, match="storage_options"):
        call.get(other, path)


def test_what_is_told_of_an_array_has_no_signature(server):
    data = io.BytesIO()
    np.save(data, np.arange(12).reshape(3, 4))
    server.fake.put("bucket/a.npy", data.getvalue())
    server.fake.query = "signature=hush"
    array = hs.open(f"{server.endpoint}/bucket/a.npy?signature=hush")
    assert array[1, 2] == 6
    assert array.name == "a.npy"
    assert "hush" not in "".join([repr(array), array.url, str(array.explain[1]), str(array.explain[1].to_dict())])


@both
def test_a_signed_url(server, call):
    server.fake.put("bucket/file.nc", DATA)
    server.fake.query = "X-Amz-Signature=hush%2Fhush&X-Amz-Expires=60"
    url = f"{server.endpoint}/bucket/file.nc?{server.fake.query}"
    store, path = locate(url)
    assert bytes(call.get(store, path, (10, 20)).data) == DATA[10:20]
    assert bytes(call.get(store, path, -5).data) == DATA[-5:]
    assert {entry.query for entry in server.log} == {server.fake.query}
    assert "hush" not in store.address + repr(store)
    with pytest.raises(NotFoundError) as caught:
        call.get(store, "bucket/none")
    assert "hush" not in str(caught.value)
    other, _ = locate(url.replace("Expires=60", "Expires=61"))
    assert other.address != store.address
    with pytest.raises(AccessError) as caught:
        call.get(other, path)
    assert "hush" not in str(caught.value)


@both
def test_redirects(server, web, call):
    web.put("there", DATA)
    server.fake.redirects = {"here": "/there", "loop": "/loop", "away": "ftp://elsewhere/x"}
    assert bytes(call.get(web.store, "here", (2, 6)).data) == DATA[2:6]
    for key in ("loop", "away"):
        with pytest.raises(StoreError) as caught:
            call.get(web.store, key)
        assert not caught.value.transient


@both
def test_a_body_that_is_packed(server, web, call):
    web.put("a", DATA)
    server.rules.append(Rule("headers", headers={"Content-Encoding": "gzip"}))
    for span in (None, (0, 5)):
        with pytest.raises(StoreError, match="packed"):
            call.get(web.store, "a", span)
    server.rules.clear()
    server.rules.append(Rule("headers", headers={"Content-Encoding": "aws-chunked"}))
    assert bytes(call.get(web.store, "a").data) == DATA


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/a/%2e%2e/b", "part"),
        ("/a/../b", "part"),
        ("/a%2fb", "slash"),
        ("/a%5cb", "slash"),
        ("/a\\..\\b", "web URL"),
        ("/a%00b", "NUL"),
        ("/%ff", "UTF-8"),
        ("/a//b", "part"),
    ],
)
def test_paths_that_could_lead_elsewhere(server, path, words):
    with pytest.raises(InvalidInputError, match=words):
        locate(server.endpoint + path)
    assert server.log == []


@both
def test_backslashes(server, web, call):
    with pytest.raises(InvalidInputError, match="backslash"):
        call.get(web.store, "a\\b")
    assert server.log == []


@both
def test_a_login_does_not_follow_to_another_host(server, call):
    with S3Proxy(fake=Web(headers={"authorization": "Bearer hush"})) as other:
        other.fake.put("there", DATA)
        server.fake.redirects = {"here": f"{other.endpoint}/there"}
        store, _ = locate(server.endpoint, {"token": "hush"})
        with pytest.raises(AccessError):
            call.get(store, "here")
        assert [entry.status for entry in other.log] == [403]


def test_in_a_forked_child(server, web):
    web.put("a", DATA)
    assert bytes(web.store.get("a", (0, 3)).data) == DATA[:3]
    assert in_child(lambda: bytes(web.store.get("a", (3, 6)).data)) == DATA[3:6]


@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(name=hostile_names)
def test_no_name_leads_elsewhere(server, web, name):
    check_wire_names(web.store, server.log, "/", name)
