"""The requests of reads from HDF5 files on a remote store: what is looked up, what is kept, what is grouped."""

import h5py
import numpy as np
import pytest
from support.arrays import copy_to_memory, open_logged, sent

import hyperslab as hs
from hyperslab.errors import ConflictError
from hyperslab.store import memory

NAME = "hdf5-requests"
DATA = np.arange(200 * 160, dtype="<i4").reshape(200, 160)
HEAD = 64 << 10


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    """`small.h5`: two datasets of 16 chunks; `long.h5`: 8,000 chunks, whose index takes 141 blocks in three levels."""
    folder = tmp_path_factory.mktemp("hdf5-requests")
    with h5py.File(folder / "small.h5", "w") as file:
        file.create_dataset("front", data=np.zeros(HEAD, "u1"))
        file.create_dataset("a", data=DATA, chunks=(50, 40))
        file.create_dataset("z", data=DATA, chunks=(50, 40), compression="gzip")
    with h5py.File(folder / "long.h5", "w") as file:
        file.create_dataset("a", data=DATA, chunks=(4, 1))
    for path in folder.iterdir():
        copy_to_memory(path, NAME)
    return folder


@pytest.fixture
def session():
    with hs.Session(profile="s3", prices="aws") as made:
        yield made


def places(folder, name, dataset):
    with h5py.File(folder / name) as file:
        found = file[dataset]
        return {
            info.chunk_offset: (info.byte_offset, info.size)
            for info in map(found.id.get_chunk_info, range(found.id.get_num_chunks()))
        }


def test_opening_takes_one_request_and_a_box_the_ranges_of_its_rows(session, files):
    array, store = open_logged(f"memory://{NAME}/small.h5/a", session)
    opened = sent(store)
    assert [request[1] for request in opened][:1] == [(0, HEAD)]
    assert len(opened) <= 3
    offset, _ = places(files, "small.h5", "a")[50, 40]
    assert array.read(np.s_[51:53, 45:47], method="fetch").tolist() == DATA[51:53, 45:47].tolist()
    first = offset + 4 * (1 * 40 + 5)
    rows = [(key, span) for key, span, _ in sent(store) if span[1] - span[0] == 8]
    assert sorted(rows) == [("small.h5", (first, first + 8)), ("small.h5", (first + 160, first + 168))]


def test_neighbouring_chunks_are_one_request(session, files):
    array, store = open_logged(f"memory://{NAME}/small.h5/z", session)
    array[0, 0]
    sent(store)
    found = places(files, "small.h5", "z")
    offsets = [found[y, x][0] for y in (50, 100) for x in range(0, 160, 40)]
    assert np.array_equal(array[50:150], DATA[50:150])
    assert sent(store) == [("small.h5", (offsets[0], sum(found[100, 120])), True)]


def test_a_second_handle_looks_nothing_up_again(session):
    hs.open(f"memory://{NAME}/small.h5/z", session=session)[0, 0]
    array, store = open_logged(f"memory://{NAME}/small.h5/z", session)
    array[0, 0]
    # Whether the file is still the same, and nothing else: the index, and the chunk, are at hand.
    assert sent(store) == [("small.h5", (0, HEAD), False)]


def test_few_chunks_of_a_long_index_are_looked_up_alone_and_then_all(session):
    array, _ = open_logged(f"memory://{NAME}/long.h5/a", session)
    counts = []
    for row in range(0, 200, 20):
        before = session.metrics.lookups
        assert array[row, 7] == DATA[row, 7]
        counts.append(session.metrics.lookups - before)
    # At most one block for each of the three levels, while there are eight lookups; then the rest of the index.
    assert max(counts[:8]) <= 3
    assert counts[9] == 0
    assert array.source.chunks is None
    assert np.array_equal(array[...], DATA)


def test_a_file_that_was_replaced_is_a_conflict_and_refresh_reads_the_new_one(session, files):
    memory(NAME).put("moving.h5", (files / "small.h5").read_bytes())
    array = hs.open(f"memory://{NAME}/moving.h5/a", session=session)
    assert array[3, 3] == DATA[3, 3]
    with h5py.File(files / "other.h5", "w") as file:
        file.create_dataset("front", data=np.zeros(7, "u1"))
        file.create_dataset("a", data=DATA + 1, chunks=(50, 40))
    memory(NAME).put("moving.h5", (files / "other.h5").read_bytes())
    with pytest.raises(ConflictError, match="refresh"):
        array[3, 3]
    assert array.refresh()[3, 3] == DATA[3, 3] + 1
