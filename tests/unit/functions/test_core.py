"""The core: how much is read, what it takes, and HDF5's filters with their masks."""

import tracemalloc

import h5py
import numpy as np
import pytest
from support.calling import encoded, expected, function

import hyperslab as hs
from hyperslab.errors import ChunkSizeError
from hyperslab.functions.core import cells_of, work_of
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.compressors import Zstd
from hyperslab.layout.filters import Retype
from hyperslab.layout.wire import travels
from hyperslab.store.call import CallChunk, CallLayout, CallLimits, CallRequest, CallTooLargeError, Points

PLAIN = CallLayout((100, 10), np.dtype("<i4"), (0, 1))


def work(layout, select, **limits):
    request = CallRequest("s3://b", (layout,), (CallChunk("a", 0, select),))
    return work_of(request, CallLimits(**limits))[0]


@pytest.mark.parametrize(
    ("order", "select", "low", "high"),
    [
        ((0, 1), ((0, 100, 1), (0, 10, 1)), 0, 4000),
        ((0, 1), ((5, 3, 1), (0, 10, 1)), 200, 320),
        ((0, 1), ((5, 2, 40), (9, 1, 1)), 236, 1840),
        ((1, 0), ((5, 2, 40), (9, 1, 1)), 3620, 3784),
        ((0, 1), (np.array([7, 3]), (2, 1, 1)), 128, 292),
        ((0, 1), Points((np.array([2, 1]), np.array([0, 9]))), 76, 84),
        ((1, 0), Points((np.array([2, 1]), np.array([0, 9]))), 8, 3608),
    ],
)
def test_only_what_is_needed_of_a_plain_chunk_is_read(order, select, low, high):
    layout = CallLayout((100, 10), np.dtype("<i4"), order)
    found = work(layout, select)
    assert (found.low, found.high) == (low, high)
    whole = np.arange(1000, dtype="<i4").reshape(100, 10)
    stored = memoryview(np.ascontiguousarray(whole.transpose(order)).tobytes())
    chunk = CallChunk("a", 0, select)
    assert bytes(cells_of(layout, chunk, stored[low:high], low)) == expected(whole, chunk)
    with pytest.raises((ValueError, TypeError, IndexError)):
        cells_of(layout, chunk, stored[low : high - 4], low)


def test_the_part_that_is_read_is_limited():
    select = ((0, 2, 99), (0, 1, 1))
    assert work(PLAIN, select, chunk_bytes=4000).read_bytes == 3964
    with pytest.raises(CallTooLargeError):
        work(PLAIN, select, chunk_bytes=3963)
    with pytest.raises(CallTooLargeError):
        work(PLAIN, select, read_bytes=3963)


def test_memory_is_foreseen():
    select = ((0, 1, 1), (0, 1, 1))
    zstd = work(CallLayout((100, 10), np.dtype("<i4"), (0, 1), (Zstd(),)), select)
    assert zstd.memory_bytes >= zstd.read_bytes + 2 * 4000
    scaled = Retype("fixedscaleoffset", np.dtype("u1"), np.dtype("u1"), (("offset", 0), ("scale", 1)))
    assert work(CallLayout((1000,), np.dtype("u1"), (0,), (scaled,)), ((0, 1, 1),)).memory_bytes >= 16_000


def test_indices_on_one_axis_need_none_on_the_others():
    """What is selected takes a few times its own size, however long the other axes are."""
    layout = CallLayout((8 << 20, 2), np.dtype("u1"), (1, 0))
    chunk = CallChunk("a", 0, ((0, 8 << 20, 1), np.array([1])))
    stored = memoryview(np.repeat(np.array([1, 2], "u1"), 8 << 20))
    tracemalloc.start()
    try:
        found = cells_of(layout, chunk, stored)
        assert tracemalloc.get_traced_memory()[1] < 2 * (8 << 20) + (1 << 20)
    finally:
        tracemalloc.stop()
    assert len(found) == 8 << 20
    assert set(found[:: 1 << 20]) == {2}


def test_small_cells_do_not_keep_a_large_chunk():
    stored = memoryview(bytes(4000))
    found = cells_of(PLAIN, CallChunk("a", 0, ((0, 1, 1), (0, 10, 1))), stored)
    assert np.frombuffer(found, np.uint8).base is not None
    assert not np.shares_memory(np.frombuffer(found, np.uint8), np.frombuffer(stored, np.uint8))


def kept_bytes(cells):
    """Return the size of what stays in memory for the sake of some cells."""
    held = cells.obj
    while isinstance(held, np.ndarray) and held.base is not None:
        held = held.base
    return memoryview(held).nbytes


@pytest.mark.parametrize("count", [1, 1000, 99_999, 100_000])
@pytest.mark.parametrize("codecs", [(), (Zstd(),), (Checksum("crc32"),)], ids=repr)
def test_cells_keep_nothing_larger_than_themselves(codecs, count):
    """Neither a decoded chunk, however small it was before, nor what was read for other chunks as well."""
    layout = CallLayout((100_000,), np.dtype("u1"), (0,), codecs)
    stored = encoded(np.zeros(100_000, "u1"), layout)
    chunk = CallChunk("a", 0, ((0, count, 1),))
    read = memoryview(stored + bytes(300_000))
    alone = cells_of(layout, chunk, read[: len(stored)])
    shared = cells_of(layout, chunk, read[: len(stored)], 0, len(read))
    assert bytes(alone) == bytes(shared) == bytes(count)
    assert kept_bytes(shared) == count
    if count < 100_000:
        assert kept_bytes(alone) == count


def test_a_chunk_of_the_wrong_size_is_refused():
    for nbytes in (4001, 4004):
        with pytest.raises(ChunkSizeError):
            cells_of(PLAIN, CallChunk("a", 0, ((0, 1, 1), (0, 1, 1))), memoryview(bytes(nbytes)))


FILTERS = {
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "scaled": {"scaleoffset": 0, "compression": "gzip"},
    "checked": {"fletcher32": True},
}


def plugin_filters():
    try:
        import hdf5plugin as plugin
    except ImportError:
        return {}
    return {
        "lz4": dict(plugin.LZ4()),
        "bits": dict(plugin.Bitshuffle(cname="none")),
        "bits-lz4": dict(plugin.Bitshuffle(cname="lz4")),
        "bits-zstd": dict(plugin.Bitshuffle(cname="zstd")),
        "zstd": dict(plugin.Zstd()),
        "blosc": dict(plugin.Blosc()),
        "bz2": dict(plugin.BZip2()),
    }


@pytest.mark.parametrize("name", [*FILTERS, *plugin_filters()])
def test_filters_of_hdf5(name, tmp_path):
    """Chunks as h5py wrote them, some without some filters, cell for cell."""
    options = {**FILTERS, **plugin_filters()}[name]
    whole = np.random.default_rng(3).integers(0, 1000, (64, 32), "<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("a", data=whole, chunks=(32, 32), **options)
        filters = dataset.id.get_create_plist().get_nfilters()
        # One that was stored as it is.
        dataset.id.write_direct_chunk((32, 0), whole[32:].tobytes(), filter_mask=(1 << filters) - 1)
    array = hs.open(tmp_path / "a.h5")["a"]
    np.testing.assert_array_equal(array[...], whole)
    layout = array.source.layout
    assert travels(layout) is None
    with h5py.File(tmp_path / "a.h5") as file, function() as bench:
        for row in range(2):
            mask, stored = file["a"].id.read_direct_chunk((32 * row, 0))
            bench.put("data/a", stored)
            form = CallLayout((32, 32), layout.stored, (0, 1), layout.decoder.codecs_of(mask))
            assert len(form.codecs) == (0 if row else filters)
            chunk = CallChunk("data/a", 0, ((1, 9, 3), np.array([30, 2])))
            answer = bench.call(bench.request(chunk, layout=form)).answers[0]
            assert bytes(answer.data) == expected(whole[32 * row : 32 * row + 32], chunk)
