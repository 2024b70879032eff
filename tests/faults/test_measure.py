"""Measuring that is interrupted, refused, or meets a failing store: nothing is left behind, and it says why."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support.s3proxy import Rule

from hyperslab.errors import AccessError, ConflictError, InvalidInputError, StoreError
from hyperslab.execute.profiles import all_profiles
from hyperslab.measure import measure
from hyperslab.measure.target import NAME
from hyperslab.store import locate, memory

_MEASURE = """
import json, sys
from hyperslab.measure import measure
url, options = json.loads(sys.argv[1])
measure(url, storage_options=options, seconds=40, megabytes=200, progress=lambda *_: print("step", flush=True))
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path / "home"))


def fake_options(proxy) -> dict[str, str]:
    return {"endpoint": proxy.endpoint, "access_key_id": "a", "secret_access_key": "b"}


def started(url: str, options: dict[str, str]) -> subprocess.Popen:
    arguments = [sys.executable, "-c", _MEASURE, json.dumps([url, options])]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("steps", [1, 12], ids=["at its start", "in its middle"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_measurement_leaves_nothing(s3, number, steps):
    prefix = f"interrupted-{number}-{steps}"
    process = started(s3.url(prefix), s3.storage_options)
    for _ in range(steps):
        assert process.stdout.readline() == "step\n"
    process.send_signal(number)
    began = time.monotonic()
    _, trace = process.communicate(timeout=60)
    assert time.monotonic() - began < 30  # and not when its time is over
    assert process.returncode in (-number, 128 + number, 1), trace
    assert process.returncode != 0
    store, path = locate(s3.url(prefix), s3.storage_options)
    assert store.keys(path) == []
    assert all_profiles() == []


def test_two_interrupts_in_a_row_leave_nothing(s3):
    process = started(s3.url("twice"), s3.storage_options)
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    store, path = locate(s3.url("twice"), s3.storage_options)
    assert store.keys(path) == []


def test_an_upload_whose_answer_is_lost_is_removed_all_the_same(fake_s3):
    fake_s3.rules.append(Rule("drop", method="PUT"))
    with pytest.raises(StoreError):
        measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=6, megabytes=10)
    assert [key for key in fake_s3.fake.objects if NAME in key] == []


def test_a_store_that_may_not_be_written_to_says_how_to_measure_it(fake_s3):
    fake_s3.rules.append(Rule("status", method="PUT", status=403, code="AccessDenied"))
    with pytest.raises(AccessError, match="object="):
        measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=6, megabytes=10)
    assert all_profiles() == []


def test_a_store_that_refuses_to_delete_as_well_says_first_why_nothing_could_be_written(fake_s3):
    for method in ("PUT", "POST", "DELETE"):
        fake_s3.rules.append(Rule("status", method=method, status=403, code="AccessDenied"))
    with pytest.raises(AccessError, match="object="):
        measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=6, megabytes=10)


def test_what_could_not_be_removed_is_named(fake_s3):
    fake_s3.rules.append(Rule("status", method="POST", status=403, code="AccessDenied"))
    with pytest.raises(StoreError, match=f"'x/{NAME}[0-9a-f]+' could not be removed .* by hand"):
        measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=4, megabytes=2)


def test_a_few_failures_are_left_out_and_told(fake_s3):
    fake_s3.rules.append(Rule("status", status=503, code="SlowDown", key=NAME, skip=30, times=3))
    found = measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=6, megabytes=6)
    assert any("failed and were left out" in note for note in found.notes)
    assert [key for key in fake_s3.fake.objects if NAME in key] == []


def test_a_store_that_keeps_failing_is_not_measured(fake_s3):
    fake_s3.rules.append(Rule("status", status=503, code="SlowDown", key=NAME, skip=10))
    with pytest.raises(StoreError):
        measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=6, megabytes=6)
    assert all_profiles() == []
    assert [key for key in fake_s3.fake.objects if NAME in key] == []


def test_an_object_that_changes_meanwhile_is_not_measured(fake_s3):
    fake_s3.fake.objects["bucket/o"] = os.urandom(1 << 20)

    def rewrite() -> None:
        fake_s3.fake.objects["bucket/o"] = os.urandom(1 << 20)

    fake_s3.rules.append(Rule("run", key="o", skip=20, times=1, run=rewrite))
    with pytest.raises(ConflictError):
        measure("s3://bucket/o", storage_options=fake_options(fake_s3), seconds=6, megabytes=6)
    assert all_profiles() == []


def test_time_holds_on_a_store_that_stalls(fake_s3):
    fake_s3.rules.append(Rule("stall", key=NAME, skip=300))
    began = time.monotonic()
    found = measure("s3://bucket/x", storage_options=fake_options(fake_s3), seconds=4, megabytes=6)
    assert time.monotonic() - began < 30  # a request may take 30 s, and is sent again
    assert found.notes


def test_limits_that_suffice_for_nothing_are_refused():
    for name, value in (("seconds", 0), ("megabytes", 0.5), ("seconds", float("nan")), ("megabytes", "many")):
        with pytest.raises(InvalidInputError, match=name):
            measure("memory://limits/x", **{name: value})
    with pytest.raises(InvalidInputError, match="progress"):
        measure("memory://limits/x", progress=3)


def test_local_files_are_not_measured(tmp_path):
    with pytest.raises(InvalidInputError, match="local files"):
        measure(str(tmp_path))


def test_a_store_in_memory_is_measured_in_no_time():
    found = measure("memory://measured/x", seconds=10, megabytes=30)
    assert found.seconds < 10
    assert found.moved_bytes <= 30_000_000
    assert found.profile.latency_s < 0.05
    assert list(memory("measured").list()) == []
    assert [known.address for known in all_profiles()] == ["memory://measured"]
