"""The tier on a real Redis: what all tiers do, logins, TLS, counts that agree with the server's own."""

import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.forking import Child
from support.keyvalue import TierConformance, some_items
from support.redis_server import RedisServer, find_redis
from support.server import free_ports

from hyperslab.errors import AccessError, InvalidInputError, StoreError
from hyperslab.store.keyvalue import open_tier as open_any
from hyperslab.store.keyvalue.redis_tier import RedisTier

pytest.importorskip("redis")


def need_redis():
    if find_redis() is None:
        pytest.skip("redis-server is not installed: Debian has it as redis-server")


@pytest.fixture(scope="module")
def server():
    need_redis()
    running = RedisServer()
    yield running
    running.stop()


@pytest.fixture
def open_tier(server):
    server.ask("FLUSHALL")
    tiers = []

    def opened(capacity_bytes, **options):
        # Long enough for a machine that has other things to do.
        tiers.append(RedisTier(server.url, capacity_bytes=capacity_bytes, **{"timeout_s": 60.0, **options}))
        return tiers[-1]

    yield opened
    for tier in tiers:
        tier.close()


class TestRedisTier(TierConformance):
    @pytest.fixture
    def open_tier(self, open_tier):
        return open_tier


def test_one_request_for_many_keys(server, open_tier):
    tier = open_tier(64 << 20, keys_at_once=100)
    items = some_items(250, 50)
    tier.put_many(items)
    server.ask("CONFIG", "RESETSTAT")
    assert tier.get_many(list(items)) == list(items.values())
    with server.client() as client:
        assert client.info("commandstats")["cmdstat_mget"]["calls"] == 3


@pytest.mark.parametrize("nbytes", [50, 1000, 8416, 40_000, 1 << 20])
def test_bytes_are_counted_as_the_server_does(server, open_tier, nbytes):
    tier = open_tier(256 << 20)
    items = some_items(40, nbytes)
    tier.put_many(items)
    with server.client() as client:
        counted = sum(client.memory_usage(key) for key in client.scan_iter("hs:default:k:*"))
    assert tier.used_bytes() == counted == tier.recount()
    tier.put_many({key: value[: nbytes // 2] for key, value in items.items()})
    assert tier.used_bytes() == tier.recount() < counted
    tier.delete_many(items)
    assert tier.used_bytes() == tier.recount() == 0


def test_the_count_is_found_again(server, open_tier):
    tier = open_tier(64 << 20)
    tier.put_many(some_items(100, 3000))
    used = tier.used_bytes()
    server.ask("DEL", "hs:default:used")
    assert tier.used_bytes() == used
    server.ask("DEL", "hs:default:used")
    tier.put_many(some_items(1, 3000, b"more"))
    assert tier.used_bytes() == tier.recount() > used
    server.ask("FLUSHALL")
    assert tier.used_bytes() == 0
    server.ask("SET", "hs:default:used", "poison")
    with pytest.raises(StoreError, match="something else than a tier"):
        tier.put_many({b"a": b"1"})


def test_namespaces_do_not_meet(open_tier):
    one, other = open_tier(1 << 20, namespace="one"), open_tier(1 << 20, namespace="other")
    one.put_many({b"a": b"1"})
    assert other.get_many([b"a"]) == [None]
    assert other.used_bytes() == 0
    assert list(other.keys()) == []


def test_databases_do_not_meet(server, open_tier):
    open_tier(1 << 20).put_many({b"a": b"1"})
    other = RedisTier(server.url + "/3", capacity_bytes=1 << 20)
    assert other.get_many([b"a"]) == [None]
    other.close()


def test_an_idle_connection_that_the_server_closed(server, open_tier):
    tier = open_tier(1 << 20)
    tier.put_many({b"a": b"1"})
    for _ in range(3):
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert tier.get_many([b"a"]) == [b"1"]


def test_a_server_that_may_not_hold_more(open_tier, server):
    server.ask("CONFIG", "SET", "maxmemory", "2mb")
    try:
        with pytest.raises(StoreError, match="maxmemory"):
            open_tier(64 << 20).put_many(some_items(1000, 8000))
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


def test_a_paused_server_is_waited_for_no_longer_than_said(server, open_tier):
    tier = open_tier(1 << 20)
    tier.put_many({b"a": b"1"})
    hasty = open_tier(1 << 20, timeout_s=0.5)
    pid = server.pause()
    try:
        for asked, timeout_s in ((hasty, None), (tier, 0.5)):
            started = time.monotonic()
            with pytest.raises(StoreError) as caught:
                asked.get_many([b"a"], timeout_s=timeout_s)
            assert 0.4 < time.monotonic() - started < 20
            assert caught.value.transient
    finally:
        server.resume(pid)
    assert tier.get_many([b"a"]) == [b"1"]


@pytest.fixture(scope="module")
def locked():
    need_redis()
    running = RedisServer(password="hush-hush")
    yield running
    running.stop()


class TestPassword:
    def test_the_ways_to_give_it(self, locked, monkeypatch):
        monkeypatch.delenv("REDISCLI_AUTH", raising=False)
        for tier in (
            RedisTier(locked.url, capacity_bytes=1 << 20, password="hush-hush"),
            RedisTier(f"redis://:hush%2Dhush@{locked.host}", capacity_bytes=1 << 20),
            open_any(f"valkey://default:hush-hush@{locked.host}", capacity_bytes=1 << 20),
        ):
            assert tier.put_many({b"a": b"1"}) == [b"a"]
            assert pickle.loads(pickle.dumps(tier)).get_many([b"a"]) == [b"1"]
            tier.close()

    def test_from_the_environment_it_is_in_no_pickle(self, locked, monkeypatch):
        monkeypatch.setenv("REDISCLI_AUTH", "hush-hush")
        tier = RedisTier(locked.url, capacity_bytes=1 << 20)
        assert tier.put_many({b"a": b"1"}) == [b"a"]
        data = pickle.dumps(tier)
        assert b"hush" not in data
        assert pickle.loads(data).get_many([b"a"]) == [b"1"]
        tier.close()

    @pytest.mark.parametrize("password", [None, "wrong-secret"])
    def test_it_is_shown_nowhere(self, locked, monkeypatch, caplog, password):
        monkeypatch.delenv("REDISCLI_AUTH", raising=False)
        caplog.set_level(logging.DEBUG)
        tier = RedisTier(locked.url, capacity_bytes=1 << 20, password=password)
        with pytest.raises(AccessError, match="refuses the login") as caught:
            tier.get_many([b"a"])
        right = RedisTier(locked.url, capacity_bytes=1 << 20, password="hush-hush")
        right.put_many({b"a": b"1"})
        shown = f"{caught.value!r} {caught.value} {tier!r} {tier.address} {right!r} {right._settings!r} {caplog.text}"
        assert "secret" not in shown
        assert "hush" not in shown
        right.close()


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    need_redis()
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (port,) = free_ports(1)
    running = RedisServer(
        "--tls-port", str(port), "--tls-cert-file", str(folder / "cert.pem"), "--tls-key-file",
        str(folder / "key.pem"), "--tls-ca-cert-file", str(folder / "cert.pem"), "--tls-auth-clients", "no",
    )  # fmt: skip
    yield f"rediss://127.0.0.1:{port}", str(folder / "cert.pem")
    running.stop()


class TestTls:
    def test_a_server_that_is_trusted(self, secure):
        url, ca_file = secure
        tier = RedisTier(url, capacity_bytes=64 << 20, ca_file=ca_file)
        items = some_items(100, 9000)
        assert tier.put_many(items) == list(items)
        assert tier.get_many(list(items)) == list(items.values())
        tier.close()

    def test_one_that_is_not(self, secure):
        with pytest.raises(StoreError, match=r"(?i)certificate"):
            RedisTier(secure[0], capacity_bytes=1 << 20).get_many([b"a"])


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://host:port",
        "redis://host/name",
        "redis://h/0?ssl_cert_reqs=none",
        "redis://h#x",
        "redis://h:99999",
    ],
)
def test_wrong_urls(url):
    with pytest.raises(InvalidInputError, match="a server's URL"):
        RedisTier(url, capacity_bytes=1)


@pytest.mark.parametrize(
    "options", [{"namespace": "a*"}, {"namespace": ""}, {"timeout_s": 0}, {"keys_at_once": 0}, {"password": ""}]
)
def test_wrong_options(options):
    with pytest.raises(InvalidInputError):
        RedisTier("redis://h", capacity_bytes=1, **options)


def test_without_redis_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidInputError, match=r"hyperslab\[collections\]"):
        RedisTier("redis://h", capacity_bytes=1).get_many([b"a"])


class Odd:
    """A server that answers each connection with what it is told to, at its own pace."""

    def __init__(self, parts, pause_s=0.0):
        self.parts, self.pause_s, self.sent = parts, pause_s, 0
        self.ended = threading.Event()
        self.line = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.line.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.ended.is_set():
            try:
                connection, _ = self.line.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            try:
                asked = connection.recv(1 << 16)
                while asked and b"mget" not in asked.lower():  # the greetings of redis-py
                    connection.sendall(b"+OK\r\n" * asked.count(b"*"))
                    asked = connection.recv(1 << 16)
                for part in self.parts():
                    connection.sendall(part)
                    self.sent += len(part)
                    if self.ended.wait(self.pause_s):
                        return
            except OSError:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.line.shutdown(socket.SHUT_RDWR)  # wakes who waits for the next connection
        self.line.close()
        self.thread.join(5)


def forever(part):
    while True:
        yield part


def test_a_server_that_sends_a_byte_now_and_then():
    with Odd(lambda: iter([b"*1\r\n$1000000\r\n", *[b"x"] * 1000]), pause_s=0.02) as odd:
        started = time.monotonic()
        with pytest.raises(StoreError, match=r"(?i)time"):
            RedisTier(odd.url, capacity_bytes=1, timeout_s=0.4).get_many([b"a"])
        assert time.monotonic() - started < 15  # all would take 20 s


def test_a_server_that_sends_without_end():
    with Odd(lambda: forever(bytes(1 << 16))) as odd:
        with pytest.raises(StoreError):
            RedisTier(odd.url, capacity_bytes=1, timeout_s=20).get_many([b"a"], limit_bytes=4 << 20)
        assert odd.sent < 32 << 20


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"$-5\r\n", b"*x\r\n", b"+OK\r\n",
        b":7\r\n", b"*1\r\n:7\r\n", b"*1\r\n*1\r\n$1\r\na\r\n", b"-ERR unknown command\r\n", b"-LOADING dataset\r\n",
        b"", b"*99999999999999\r\n", b"*1\r\n$99999999999999999999\r\n", b"\xff\xfe\r\n", b"-MOVED 1 h:1\r\n",
        b"*-1\r\n",
    ],
)  # fmt: skip
def test_answers_that_are_none(answer):
    with Odd(lambda: iter([answer])) as odd, pytest.raises(StoreError):
        RedisTier(odd.url, capacity_bytes=1, timeout_s=1).get_many([b"a"], limit_bytes=1 << 20)


def test_readers_in_many_processes(open_tier):
    tier = open_tier(64 << 20)
    items = some_items(200, 4000)
    tier.put_many(items)

    def read():
        return all(tier.get_many(list(items)) == list(items.values()) for _ in range(10))

    children = [Child(read) for _ in range(4)]
    assert tier.get_many(list(items)) == list(items.values())
    assert all(child.result(60) for child in children)
    assert os.getpid() == tier._pid
