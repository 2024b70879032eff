"""References on a real S3 server: to objects beside them, to another bucket, from files on disk; the wire agrees."""

import io
import json

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from support.hostile import fast, sent
from support.seaweed import options_for

import hyperslab as hs
from hyperslab.cli.command import command
from hyperslab.errors import AccessError, ConflictError

CELLS = np.random.default_rng(3).integers(0, 1 << 20, (40, 50)).astype("i4")


def hdf5(cells: np.ndarray, **how) -> tuple[bytes, list[tuple[tuple[int, ...], int, int]]]:
    """Return a file, and where the chunks of its array `a` lie in it."""
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        array = file.create_dataset("a", data=cells, **how)
        found = [array.id.get_chunk_info(n) for n in range(array.id.get_num_chunks())]
        places = [(info.chunk_offset, info.byte_offset, info.size) for info in found]
    return made.getvalue(), places


def references(url_of, *, chunks=(10, 25), zipped: bool) -> tuple[dict[str, object], bytes]:
    """Return references to the chunks of a file; `url_of(number)` is the URL of the object that chunk is in."""
    how = {"compression": "gzip", "shuffle": True} if zipped else {}
    data, places = hdf5(CELLS, chunks=chunks, **how)
    zarray = {
        "zarr_format": 2, "shape": CELLS.shape, "chunks": chunks, "dtype": "<i4", "order": "C", "fill_value": 0,
        "filters": [{"id": "shuffle", "elementsize": 4}] if zipped else None,
        "compressor": {"id": "zlib", "level": 4} if zipped else None,
    }  # fmt: skip
    refs: dict[str, object] = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(zarray)}
    for number, (corner, low, size) in enumerate(places):
        key = ".".join(str(at // n) for at, n in zip(corner, chunks, strict=True))
        refs[f"a/{key}"] = [url_of(number), low, size]
    return {"version": 1, "refs": refs}, data


@pytest.fixture(scope="module")
def other(s3):
    """Another bucket of the same server: what puts objects there."""
    botocore = pytest.importorskip("botocore.session")
    keys = options_for(s3.endpoint)
    client = botocore.get_session().create_client(
        "s3", endpoint_url=s3.endpoint, region_name="us-east-1", aws_access_key_id=keys["access_key_id"],
        aws_secret_access_key=keys["secret_access_key"],
    )  # fmt: skip
    client.create_bucket(Bucket="elsewhere")
    return lambda key, data: client.put_object(Bucket="elsewhere", Key=key, Body=data)


@pytest.mark.parametrize("zipped", [True, False])
def test_the_wire_agrees_with_the_plan(s3, s3_proxy, zipped):
    document, data = references(lambda number: s3.url("refs/data.h5"), zipped=zipped)
    s3.put("refs/data.h5", data)
    s3.put("refs/index.json", json.dumps(document).encode())
    with fast(cache_bytes=1 << 20) as session:
        array = hs.open(
            s3.url("refs/index.json/a"), storage_options=options_for(s3_proxy.endpoint), session=session
        )  # fmt: skip
        for box in (np.s_[3:15, 20:30], np.s_[:, 49], np.s_[12]):
            said, seen = array.explain[box].plan.estimate, sent(s3_proxy)
            assert np.array_equal(array[box], CELLS[box])
            requests, nbytes = (b - a for a, b in zip(seen, sent(s3_proxy), strict=True))
            assert said.exact
            assert (requests, nbytes) == (said.requests, said.fetched_bytes)


def test_references_to_another_bucket_are_followed_where_that_is_allowed(s3, other, tmp_path):
    document, data = references(lambda number: "s3://elsewhere/x/data.h5", zipped=True)
    other("x/data.h5", data)
    s3.put("refs/other.json", json.dumps(document).encode())
    with fast() as session:
        array = hs.open(s3.url("refs/other.json/a"), storage_options=s3.storage_options, session=session)
        with pytest.raises(AccessError, match="s3://elsewhere/x"):
            array[0]
        allowed = {**s3.storage_options, "targets": ["s3://elsewhere/x"]}
        array = hs.open(s3.url("refs/other.json/a"), storage_options=allowed, session=session)
        assert np.array_equal(array[7:22, ::3], CELLS[7:22, ::3])
        # The same file on this machine, with a login for the bucket alone.
        (tmp_path / "other.json").write_text(json.dumps(document))
        targets = {"targets": {"s3://elsewhere": s3.storage_options}}
        array = hs.open(tmp_path / "other.json" / "a", storage_options=targets, session=session)
        assert np.array_equal(array[...], CELLS)


@pytest.mark.parametrize("zipped", [True, False])
def test_one_array_in_two_buckets(s3, other, zipped):
    document, data = references(
        lambda number: "s3://elsewhere/half.h5" if number % 2 else "half.h5", zipped=zipped
    )  # fmt: skip
    s3.put("two/half.h5", data)
    other("half.h5", data)
    s3.put("two/index.json", json.dumps(document).encode())
    with fast() as session:
        options = {**s3.storage_options, "targets": ["s3://elsewhere"]}
        array = hs.open(s3.url("two/index.json/a"), storage_options=options, session=session)
        said, before = array.explain[...].plan.estimate, session.metrics.snapshot()
        assert np.array_equal(array[...], CELLS)
        after = session.metrics.snapshot()
        assert (after.requests - before.requests, after.bytes - before.bytes) == (said.requests, said.fetched_bytes)


def test_an_object_that_is_replaced_between_two_reads_is_read_anew(s3):
    document, data = references(lambda number: "moving.h5", zipped=False)
    s3.put("moving/moving.h5", data)
    s3.put("moving/index.json", json.dumps(document).encode())
    with fast() as session:
        array = hs.open(s3.url("moving/index.json/a"), storage_options=s3.storage_options, session=session)
        assert np.array_equal(array[0], CELLS[0])
        at = document["refs"]["a/0.0"][1]
        s3.put("moving/moving.h5", data[:at] + b"\1\0\0\0" + data[at + 4 :])
        assert array[0, 0] == 1


def test_one_read_is_of_one_version_of_its_target(s3, s3_proxy):
    document, data = references(lambda number: "torn.h5", zipped=False)
    s3.put("torn/torn.h5", data)
    s3.put("torn/index.json", json.dumps(document).encode())
    with fast(concurrency=1) as session:
        array = hs.open(s3.url("torn/index.json/a"), storage_options=s3.storage_options, session=session)
        store, puts = array.store, []
        get = store.aget

        async def changing(key, *arguments, **options):
            reply = await get(key, *arguments, **options)
            if not puts:
                puts.append(s3.put("torn/torn.h5", data + b"more"))
            return reply

        store.aget = changing
        try:
            with pytest.raises(ConflictError):
                array.read(np.s_[::11, ::30], method="fetch")
        finally:
            del store.aget


@pytest.mark.parametrize("zipped", [True, False])
def test_a_function_cuts_what_is_referred_to(s3, function, zipped):
    document, data = references(lambda number: "called.h5", zipped=zipped)
    s3.put("called/called.h5", data)
    s3.put("called/index.json", json.dumps(document).encode())
    with fast(function=function.function) as session:
        array = hs.open(s3.url("called/index.json/a"), storage_options=s3.storage_options, session=session)
        assert np.array_equal(array.read(np.s_[3:35:4, ::7], method="call"), CELLS[3:35:4, ::7])
        assert session.metrics.calls > 0


def test_the_command_line_and_xarray_follow_targets(s3, other, tmp_path):
    xr = pytest.importorskip("xarray")
    document, data = references(lambda number: "s3://elsewhere/cli.h5", zipped=True)
    other("cli.h5", data)
    s3.put("refs/cli.json", json.dumps(document).encode())
    options = {**s3.storage_options, "targets": "s3://elsewhere"}
    pairs = [word for name, value in options.items() for word in ("-S", f"{name}={value}")]
    url = s3.url("refs/cli.json")
    done = CliRunner().invoke(command, ["read", url + "/a", "7, :5", *pairs])
    assert done.exit_code == 0, done.output
    assert str(CELLS[7, 4]) in done.output
    assert "a" in CliRunner().invoke(command, ["ls", url, *pairs]).output
    refused = CliRunner().invoke(command, ["read", url + "/a", "7, :5", *pairs[:-2]])
    assert refused.exit_code != 0
    assert "s3://elsewhere" in refused.output
    found = xr.open_dataset(url, engine="hyperslab", storage_options=options)
    assert np.array_equal(found["a"][3:5], CELLS[3:5])
