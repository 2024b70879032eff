"""Whatever a server does, the caller gets a typed error in bounded time, and one request was sent."""

import asyncio
import pickle
import time

import pytest
from support.conformance import async_get, sync_get
from support.s3proxy import Rule

from hyperslab.errors import AccessError, ConflictError, IntegrityError, NotFoundError, StoreError, StoreNotFoundError
from hyperslab.store import locate, remote, s3

SECRETS = {
    "access_key_id": "AKIDTEST",
    "secret_access_key": "hush-hush-secret",
    "session_token": "hush-token",
}

both = pytest.mark.parametrize("get", [sync_get, async_get], ids=["get", "aget"])


@pytest.fixture
def server(fake_s3):
    fake_s3.fake.objects["bucket/a"] = bytes(range(100))
    return fake_s3


@pytest.fixture
def store(server):
    return locate("s3://bucket", {"endpoint": server.endpoint, **SECRETS})[0]


@both
@pytest.mark.parametrize(
    ("status", "code", "kind", "transient", "words"),
    [
        (500, "InternalError", StoreError, True, "500 InternalError"),
        (503, "SlowDown", StoreError, True, "503 SlowDown"),
        (429, "TooManyRequests", StoreError, True, "try again"),
        (400, "RequestTimeout", StoreError, True, "try again"),
        (400, "InvalidRequest", StoreError, False, "400 InvalidRequest"),
        (501, "NotImplemented", StoreError, False, "501"),
        (405, "MethodNotAllowed", StoreError, False, "check"),
        (409, "OperationAborted", StoreError, False, "409"),
        (403, "AccessDenied", AccessError, False, "anonymous=True"),
        (401, "Unauthorized", AccessError, False, "AWS_ACCESS_KEY_ID"),
        (400, "ExpiredToken", AccessError, False, "ExpiredToken"),
        (403, "RequestTimeTooSkewed", AccessError, False, "clock"),
        (404, "NoSuchKey", NotFoundError, None, "s3://bucket/a"),
        (404, "NoSuchBucket", StoreNotFoundError, None, "no bucket s3://bucket"),
        (412, "PreconditionFailed", ConflictError, None, "refresh"),
        (416, "InvalidRange", IntegrityError, None, "ends before"),
    ],
)
def test_refusals(server, store, get, status, code, kind, transient, words):
    server.rules.append(Rule("status", status=status, code=code))
    with pytest.raises(kind, match=words) as caught:
        get(store, "a", (0, 10))
    assert type(caught.value) is kind
    assert getattr(caught.value, "transient", None) == transient
    assert len(server.log) == 1
    assert "hush" not in str(caught.value)
    assert "AKIDTEST" not in str(caught.value)
    assert getattr(pickle.loads(pickle.dumps(caught.value)), "transient", None) == transient


@both
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule("drop"), "broke"),
        (Rule("garbage"), "broke"),
        (Rule("truncate", after_bytes=3), "broke"),
    ],
    ids=lambda value: getattr(value, "action", ""),
)
def test_broken_answers(server, store, get, rule, words):
    server.rules.append(rule)
    for span in (None, (0, 10)):
        server.log.clear()
        with pytest.raises(StoreError, match=words) as caught:
            get(store, "a", span)
        assert caught.value.transient
        assert len(server.log) == 1


@both
@pytest.mark.parametrize("rule", [Rule("stall"), Rule("stall_body", after_bytes=3)], ids=["head", "body"])
def test_a_stalled_connection_ends_in_time(server, store, get, rule):
    get(store, "a")  # what is made once does not take of the time below
    server.log.clear()
    server.rules.append(rule)
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        get(store, "a", (0, 10), timeout_s=0.8)
    assert caught.value.transient
    assert 0.75 < time.monotonic() - started < 20
    assert len(server.log) == 1
    server.rules.clear()
    assert len(get(store, "a", (0, 10), timeout_s=20).data) == 10


@both
def test_silence_ends_without_a_timeout_given(server, get, monkeypatch):
    monkeypatch.setattr(remote, "SILENT_S", 0.3)
    store, _ = locate("s3://bucket", {"endpoint": server.endpoint, "key": "silence", "secret": "s"})
    server.rules.append(Rule("stall"))
    with pytest.raises(StoreError, match="in time") as caught:
        get(store, "a")
    assert caught.value.transient


def test_a_cancelled_request_ends(server, store):
    server.rules.append(Rule("stall"))

    async def main():
        task = asyncio.create_task(store.aget("a"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < remote.SILENT_S - 5


@both
def test_a_store_that_ignores_ranges(server, store, get):
    server.rules.append(Rule("ignore_range"))
    for span in ((0, 10), -5):
        with pytest.raises(StoreError, match="ignores byte ranges") as caught:
            get(store, "a", span)
        assert not caught.value.transient


@both
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 0-19/100"},
        {"Content-Range": "bytes 5-14/100"},
        {"Content-Range": None},
        {"Content-Range": "bytes 0-9/*"},
        {"Content-Range": "bytes 0-9/5"},
        {"Content-Range": "nonsense"},
    ],
    ids=str,
)
def test_headers_that_lie(server, store, get, headers):
    server.rules.append(Rule("headers", headers=headers))
    with pytest.raises(StoreError):
        get(store, "a", (0, 10))
    assert len(server.log) == 1


@both
def test_fewer_bytes_than_the_header_says(server, store, get):
    """The Content-Length is that of the body, but the range in the header is what was asked for."""
    server.fake.objects["bucket/short"] = bytes(6)
    server.rules.append(Rule("headers", headers={"Content-Range": "bytes 0-9/100"}))
    with pytest.raises(IntegrityError, match="expected 10 bytes of an object of 100, got 6"):
        get(store, "short", (0, 10))


@both
def test_weak_and_missing_etags_are_none(server, store, get):
    for etag in ('W/"weak"', None):
        server.clear()
        server.rules.append(Rule("headers", headers={"ETag": etag}))
        assert get(store, "a").etag is None


@both
def test_a_store_that_ignores_if_match(server, store, get):
    server.rules.append(Rule("headers", headers={"ETag": '"new"'}))
    etag = '"' + "0" * 32 + '"'
    server.fake.answer_before = server.fake.answer

    def deaf(method, target, headers, body):
        return server.fake.answer_before(method, target, {k: v for k, v in headers.items() if k != "if-match"}, body)

    server.fake.answer = deaf
    with pytest.raises(ConflictError):
        get(store, "a", if_match=etag)


@both
def test_nobody_listens(get, no_aws):
    store, _ = locate("s3://bucket", {"endpoint": "http://127.0.0.1:9", **SECRETS})
    with pytest.raises(StoreError, match="cannot connect") as caught:
        get(store, "a")
    assert caught.value.transient


def test_credentials_that_a_platform_does_not_hand_out(server, no_aws, monkeypatch):
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    store, _ = locate("s3://bucket", {"endpoint": server.endpoint, "instance_metadata": True})
    with pytest.raises(AccessError, match="credentials"):
        store.get("a")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(no_aws / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x")
    store, _ = locate("s3://bucket", {"endpoint": server.endpoint})
    with pytest.raises(AccessError, match="credentials"):
        store.get("a")


def test_what_is_sent(server, no_aws, monkeypatch):
    """The options decide, not what obstore would take from the environment."""
    seen = []
    answer = server.fake.answer
    server.fake.answer = lambda *request: seen.append(request[2]) or answer(*request)
    for name, value in {
        "AWS_SESSION_TOKEN": "stray-token",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "eu-west-9",
    }.items():
        monkeypatch.setenv(name, value)
    options = {"endpoint": server.endpoint, "key": "AKIDSENT", "secret": "s", "anon": False, "region": "xx-1"}
    locate("s3://bucket", options)[0].get("a")
    assert "Credential=AKIDSENT/" in seen[0]["authorization"]
    assert "/xx-1/" in seen[0]["authorization"]
    assert "x-amz-security-token" not in seen[0]
    locate("s3://bucket", {**options, "token": "mine", "requester_pays": True})[0].get("a")
    assert seen[1]["x-amz-security-token"] == "mine"
    assert seen[1]["x-amz-request-payer"] == "requester"
    locate("s3://bucket", {"endpoint": server.endpoint, "anon": True})[0].get("a")
    assert "authorization" not in seen[2]


class TestRegion:
    """A fake of AWS that names the region of its buckets."""

    @pytest.fixture
    def aws(self, server, no_aws, monkeypatch):
        monkeypatch.setattr(s3, "AWS_URL", server.endpoint + "/{region}")
        monkeypatch.setattr(s3, "AWS_PROBE_URL", server.endpoint)
        server.fake.buckets.update(("eu-west-1", "us-east-1"))
        server.fake.objects["eu-west-1/bucket/a"] = b"0123"
        return server

    def probe(self, status=403, region="eu-west-1"):
        headers = {"x-amz-bucket-region": region} if region else {}
        return Rule("status", method="HEAD", status=status, headers=headers)

    @both
    def test_is_found_out_once(self, aws, get):
        for status in (403, 301, 200):
            aws.clear()
            aws.rules.append(self.probe(status))
            store, _ = locate("s3://bucket", {"key": f"k{status}{get.__name__}", "secret": "s"})
            assert aws.log == []
            assert bytes(get(store, "a").data) == b"0123"
            get(store, "a", timeout_s=5)
            assert [(e.method, e.path) for e in aws.log] == [
                ("HEAD", "/bucket"),
                ("GET", "/eu-west-1/bucket/a"),
                ("GET", "/eu-west-1/bucket/a"),
            ]

    def test_of_no_bucket(self, aws):
        aws.rules.append(self.probe(404, None))
        store, _ = locate("s3://bucket", {"anon": True})
        with pytest.raises(NotFoundError, match="no bucket s3://bucket"):
            store.get("a")

    def test_that_nobody_names(self, aws, monkeypatch):
        aws.rules.append(self.probe(403, None))
        store, _ = locate("s3://bucket", {"key": "unnamed", "secret": "s"})
        with pytest.raises(StoreError, match="storage_options"):
            store.get("a")
        monkeypatch.setattr(s3, "AWS_PROBE_URL", "http://127.0.0.1:9")
        with pytest.raises(StoreError, match="storage_options") as caught:
            store.get("a")
        assert caught.value.transient

    def test_is_not_asked_for_where_it_is_given(self, aws, monkeypatch):
        locate("s3://bucket", {"anon": True, "region": "eu-west-1"})[0].get("a")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        locate("s3://bucket", {"anon": True})[0].get("a")
        assert [e.method for e in aws.log] == ["GET", "GET"]

    @both
    @pytest.mark.parametrize(
        "wrong",
        [
            Rule("status", key="us-east-1", status=301, code="PermanentRedirect"),
            Rule(
                "status",
                key="us-east-1",
                status=400,
                code="AuthorizationHeaderMalformed",
                extra="<Region>eu-west-1</Region>",
            ),
        ],
        ids=["redirect", "malformed"],
    )
    def test_from_the_environment_is_corrected(self, aws, get, wrong, monkeypatch):
        aws.rules += [wrong, self.probe()]
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        store, _ = locate("s3://bucket", {"key": f"wrong{wrong.status}{get.__name__}", "secret": "s"})
        with pytest.raises(StoreError, match="not in region us-east-1") as caught:
            get(store, "a")
        assert caught.value.transient
        assert bytes(get(store, "a").data) == b"0123"

    def test_from_the_options_is_an_error(self, aws):
        aws.rules.append(
            Rule("status", status=400, code="AuthorizationHeaderMalformed", extra="<Region>eu-west-1</Region>")
        )
        store, _ = locate("s3://bucket", {"anon": True, "region": "us-east-1"})
        with pytest.raises(StoreError, match="region='eu-west-1'") as caught:
            store.get("a")
        assert not caught.value.transient


def test_stores_share_connections(server):
    options = {"endpoint": server.endpoint, **SECRETS}
    first, _ = locate("s3://bucket/x", options)
    again, _ = locate("s3://bucket/y", options)
    assert first is again
    assert locate("s3://bucket", {**options, "requester_pays": True})[0] is not first
    for _ in range(20):
        first.get("a")
        # The connection goes back into the pool a moment after the answer.
        time.sleep(0.02)
    # Where that moment was too short a few times, there are a few; unshared, there would be one for each.
    assert server.connections < 10


def test_listings_are_bounded(server, store, monkeypatch):
    server.rules.append(Rule("stall"))
    with monkeypatch.context() as hurried:
        hurried.setattr(remote, "LIST_S", 0.3)
        with pytest.raises(StoreError, match="took over"):
            store.children("")
    server.clear()
    server.fake.objects.update({f"bucket/many/{i}": b"" for i in range(10)})
    monkeypatch.setattr(remote, "CHILDREN_LIMIT", 9)
    with pytest.raises(StoreError, match="more than"):
        store.children("many")
