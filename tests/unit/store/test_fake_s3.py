"""The suites for all stores on the small S3 that other tests break: it must be like the real one, where whole."""

import signal
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from support.conformance import Calls, Place, ReadConformance, WriteConformance, check_wire_names, hostile_names
from support.hostile import wait_until
from support.s3proxy import Rule
from support.store_faults import DATA, Behind, ReadFaults, WriteFaults

from hyperslab.errors import StoreError
from hyperslab.store import locate

SECRETS = {"access_key_id": "AKIDTEST", "secret_access_key": "hush-secret", "session_token": "hush-token"}


@pytest.fixture
def place(fake_s3):
    store, _ = locate("s3://bucket", {"endpoint": fake_s3.endpoint, **SECRETS})

    def put(key, data):
        fake_s3.fake.objects[f"bucket/{key}"] = data

    return Place(store, put)


class TestRead(ReadConformance):
    @pytest.fixture
    def place(self, place):
        return place


class TestWrite(WriteConformance):
    @pytest.fixture
    def place(self, place):
        return place


@pytest.fixture
def behind(fake_s3, place):
    place.put("a", DATA)
    return Behind(place.store, fake_s3, tuple(SECRETS.values()))


class TestReadFaults(ReadFaults):
    @pytest.fixture
    def behind(self, behind):
        return behind


class TestWriteFaults(WriteFaults):
    @pytest.fixture
    def behind(self, behind):
        return behind


@pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])
def test_pages(fake_s3, place, call):
    fake_s3.fake.page = 7
    for number in range(30):
        place.put(f"many/{number:02}/x", b"x")
    assert call.children(place.store, "many") == [f"{number:02}" for number in range(30)]
    assert call.keys(place.store, "many") == [(f"many/{number:02}/x", 1) for number in range(30)]
    assert len(fake_s3.log) == 10


@pytest.mark.parametrize("name", ["children", "keys"])
def test_an_interrupt_ends_a_listing_that_stalls(fake_s3, place, name):
    fake_s3.rules.append(Rule("stall"))

    def interrupt():
        if wait_until(lambda: fake_s3.log, 60):  # so the main thread is in the listing
            time.sleep(0.1)
            interrupted.append(time.monotonic())
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before, interrupted = signal.signal(signal.SIGINT, signal.default_int_handler), []
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            getattr(place.store, name)("")
        ended = time.monotonic()
    finally:
        interrupter.join()
        signal.signal(signal.SIGINT, before)
    assert ended - interrupted[0] < 20


@pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])
def test_odd_names_that_others_stored(place, call):
    place.put("dir/", b"")
    place.put("dir/x", b"1")
    assert call.keys(place.store, "") == [("dir/x", 1)]
    assert call.children(place.store, "") == ["dir"]
    place.put("a//b", b"1")
    with pytest.raises(StoreError, match="no path can name"):
        call.keys(place.store, "")
    place.put("../x", b"1")
    with pytest.raises(StoreError, match="no path can name"):
        call.children(place.store, "")
    assert call.keys(place.store, "dir") == [("dir/x", 1)]


@settings(suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture])
@given(name=hostile_names)
def test_no_name_leads_elsewhere(fake_s3, place, name):
    check_wire_names(place.store, fake_s3.log, "/bucket/", name)
