"""Arrays of a snapshot through zarr-python."""

import asyncio

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.buffer import cpu

import hyperslab as hs
from hyperslab.execute import StoreReader
from hyperslab.formats.icechunk.source import zarr_store


@pytest.fixture
def stores(repository):
    folder, history = repository
    group = hs.open(f"{folder}@tag=v1")
    reader = StoreReader(group.session, group.store)
    return lambda name: zarr_store(reader, group.source, name), history.versions["tag=v1"]


def test_zarr_reads_every_array(stores):
    make, arrays = stores
    for name, cells in arrays.items():
        assert np.array_equal(zarr.open_array(make(name), mode="r")[...], cells), name


def test_parts_of_chunks_and_names(stores):
    make, arrays = stores
    store = make("plain")

    def get(key, part=None):
        found = asyncio.run(store.get(key, cpu.buffer_prototype, part))
        return None if found is None else found.to_bytes()

    whole = get("c/1/2")
    assert whole == np.ascontiguousarray(arrays["plain"][20:40, 22:33]).tobytes()
    assert get("c/1/2", RangeByteRequest(8, 20)) == whole[8:20]
    assert get("c/1/2", OffsetByteRequest(8)) == whole[8:]
    assert get("c/1/2", SuffixByteRequest(8)) == whole[-8:]
    for nothing in ("c/9/9", "c/1", "c/1/x", "c/-1/0", "c/1/99999999999999", "notes.txt"):
        assert get(nothing) is None
        assert not asyncio.run(store.exists(nothing))


def test_only_arrays_and_only_reading(stores):
    make, _ = stores
    assert make("deep") is None
    assert make("nothing") is None
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(make("plain"), mode="r+")[0] = 1
