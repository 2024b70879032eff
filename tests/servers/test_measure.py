"""Measuring a real S3 server, with a real function beside it: within its limits, nothing left behind, found again."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.serving import KEY, ServedFunction

import hyperslab as hs
from hyperslab.cli.command import command
from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.execute.profiles import find_known
from hyperslab.measure import measure
from hyperslab.measure.result import Measurement
from hyperslab.measure.target import NAME
from hyperslab.store import locate
from hyperslab.store.callee import Function

MEGABYTES, SECONDS = 12.0, 5.0


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path / "home"))


def leftovers(s3, prefix: str) -> list[str]:
    store, path = locate(s3.url(prefix), s3.storage_options)
    return [key for key, _ in store.keys(path) if NAME in key]


def quick(s3, url: str, **settings) -> Measurement:
    limits = {"seconds": SECONDS, "megabytes": MEGABYTES}
    return measure(url, storage_options=s3.storage_options, **(limits | settings))


@pytest.fixture(scope="module")
def objects(s3):
    """An object and an array, to be measured without writing."""
    s3.put("measured/object", np.random.default_rng(1).bytes(3_000_000))
    hs.save(
        s3.url("measured/a.zarr"), np.random.default_rng(1).random((200, 1000)), layout="plain",
        storage_options=s3.storage_options,
    )  # fmt: skip
    return s3


def test_it_keeps_to_its_limits_and_leaves_nothing(s3_proxy, s3):
    options = {**s3.storage_options, "endpoint": s3_proxy.endpoint}
    steps = []
    found = measure(
        s3.url("probed"), storage_options=options, seconds=SECONDS, megabytes=MEGABYTES,
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    gets = [entry for entry in s3_proxy.log if entry.method == "GET" and NAME in entry.path]
    received = sum(entry.body_bytes for entry in gets)
    # Of an answer that was cut off, when time ran out, the bytes cannot be known.
    assert received <= (MEGABYTES * 1e6 if found.notes else found.moved_bytes)
    assert found.moved_bytes <= MEGABYTES * 1e6
    assert found.moved_bytes > 1e6
    assert all(entry.range for entry in gets)
    assert {entry.method for entry in s3_proxy.log} == {"GET", "PUT", "POST"}  # S3 deletes by POST
    assert leftovers(s3, "probed") == []
    assert steps[-1][0] <= steps[-1][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_a_session_finds_the_profile_by_the_address(objects, s3):
    found = quick(s3, s3.url("found"))
    with hs.Session() as session:
        array = hs.open(s3.url("measured/a.zarr"), storage_options=s3.storage_options, session=session)
        assert session.model(array.store).profile == found.profile
        assert np.isfinite(array[3:5, 10:20]).all()
    other = locate("s3://elsewhere/x", s3.storage_options)[0]
    assert find_known(other.address) is None
    known = find_known(found.address)
    assert known is not None
    assert known.points == found.points


def test_without_saving_nothing_is_kept(s3, tmp_path):
    quick(s3, s3.url("unsaved"), save=False, megabytes=3.0, seconds=4.0)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("url", "key", "read"),
    [
        ("measured/object", None, "measured/object"),
        ("measured/a.zarr", None, "measured/a.zarr/c/"),
        ("", "measured/object", "measured/object"),
    ],
    ids=["an object", "an array", "a key"],
)
def test_what_is_stored_is_read_and_nothing_written(objects, s3, s3_proxy, url, key, read):
    options = {**s3.storage_options, "endpoint": s3_proxy.endpoint}
    found = measure(s3.url(url), storage_options=options, object=key, megabytes=8.0, seconds=3.0, save=False)
    assert {entry.method for entry in s3_proxy.log} == {"GET"}
    data = [entry for entry in s3_proxy.log if entry.key.startswith(read)]
    assert len(data) > 100
    assert max(found.profile.bandwidth) > 0


def test_what_is_not_there_or_too_small_is_refused(objects, s3):
    s3.put("measured/small", b"x" * 1000)
    with pytest.raises(NotFoundError, match="no object 'measured/none'"):
        quick(s3, s3.url(), object="measured/none")
    with pytest.raises(InvalidInputError, match="too few"):
        quick(s3, s3.url("measured/small"))


def test_a_function_is_measured_cold_warm_and_at_once(s3, tmp_path):
    with ServedFunction(tmp_path, [s3.url()], s3.storage_options) as served:
        found = quick(s3, s3.url("called"), function=Function(served.url, key=KEY), seconds=30.0, megabytes=20.0)
    function = found.profile.function
    assert function is not None
    assert function.start_s + function.chunk_s > 0
    assert 0 <= function.byte_s < 1e-6
    assert 1 <= function.at_once <= 64
    kinds = {each.kind for each in found.calls}
    assert kinds == {"cold", "warm", "work", "at once"}
    assert 0 <= function.cut_s < 0.01
    assert 0 <= function.decoded_byte_s < 1e-6
    assert function.work_at_once is None or 1 <= function.work_at_once <= 16
    # Encoded chunks were there, and were decoded: one by one, and many by one request.
    decoded = [each for each in found.calls if each.decoded_bytes]
    assert {(each.calls, each.gets, each.chunks) for each in decoded if each.calls > 1} == {(4, 32, 32), (16, 8, 8)}
    assert all(each.gets == 1 and each.chunks > 32 for each in decoded if each.calls == 1)
    # The function read what it was told to, and sent next to nothing.
    assert {each.read_bytes for each in found.calls if each.gets == 16} == {16 << 16}
    assert leftovers(s3, "called") == []
    known = find_known(found.address)
    assert known is not None
    assert known.profile.function == function


def test_a_function_that_is_not_there_leaves_the_stores_profile(s3):
    found = quick(s3, s3.url("uncalled"), function="http://127.0.0.1:9/", megabytes=4.0, seconds=4.0)
    assert found.profile.function is None
    assert any("the function was not measured" in note for note in found.notes)


def test_a_picture_that_cannot_be_kept_is_refused_before_measuring(tmp_path):
    for name, words in (("curves.doc", "ends in one of"), ("missing/curves.png", "no folder")):
        done = CliRunner().invoke(command, ["measure", "s3://nowhere", "--plot", str(tmp_path / name)])
        assert done.exit_code == 1
        assert words in done.output


def test_the_command_measures_draws_shows(s3, tmp_path):
    flags = [word for name, value in s3.storage_options.items() for word in ("-S", f"{name}={value}")]
    picture = tmp_path / "curves.png"
    url = s3.url("commanded")
    args = ["measure", url, "--seconds", "4", "--megabytes", "6", "--plot", str(picture), *flags]
    done = CliRunner().invoke(command, args)
    assert done.exit_code == 0, done.output
    assert "requests in flight" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = CliRunner().invoke(command, ["measure", "--show"])
    assert "0 minutes ago" in shown.output
    assert "nothing read since" in shown.output
    as_json = CliRunner().invoke(command, ["measure", "--show", url, "--json", *flags])
    assert json.loads(as_json.output)[0]["drift"] is None
    assert leftovers(s3, "commanded") == []
