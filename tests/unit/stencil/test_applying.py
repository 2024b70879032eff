"""`hs.apply`: what goes in and out, what is refused, reaches that are found while it runs, going on where it was."""

import numpy as np
import pytest
from support.killing import killed

import hyperslab as hs
from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.rechunk import memory
from hyperslab.stencil import flow, job

CELLS = np.random.default_rng(5).random((40, 36)).astype("f4")


def laplace(s):
    return 4 * s(0, 0) - s(-1, 0) - s(1, 0) - s(0, -1) - s(0, 1)


def expected(cells=CELLS):
    wide = np.pad(cells, 1, mode="edge")
    return 4 * cells - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]


@pytest.fixture
def source(tmp_path):
    return hs.save(tmp_path / "in", CELLS, chunks=(8, 8), shards=(16, 16), dims=("y", "x"))


SMALL = {"chunks": (4, 4), "shards": (8, 12)}


@pytest.fixture
def exact(monkeypatch):
    """Count only what is taken for cells."""
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)
    monkeypatch.setattr(job, "_SPARE_BYTES", 0)


def test_the_last_argument_is_where_it_goes(source, tmp_path):
    told = []
    made = hs.apply(laplace, source, tmp_path / "out", progress=lambda *each: told.append(each), output=SMALL)
    assert np.array_equal(made[...], expected())
    assert made.dims == ("y", "x")
    assert made.source.layout.complete
    assert hs.open(tmp_path / "out").chunks == (4, 4)
    assert told[-1] == (CELLS.nbytes, CELLS.nbytes)


def test_everything_that_holds_cells_is_an_input(source, tmp_path):
    np.save(tmp_path / "in.npy", CELLS)
    urls = [str(tmp_path / "in"), tmp_path / "in.npy", source, CELLS, np.load(tmp_path / "in.npy", mmap_mode="r")]
    for each in (*urls, CELLS.tolist()):
        assert np.allclose(hs.apply(laplace, each), expected(), atol=1e-6)
    big = hs.apply(laplace, CELLS.astype(">f4"))
    assert np.array_equal(big, expected())
    assert big.dtype == np.dtype("f4")


def test_into_arrays_in_memory(source):
    out = np.zeros(CELLS.shape, "f8")
    assert hs.apply(laplace, source, out) is out
    assert np.array_equal(out, expected().astype("f8"))
    with pytest.raises(InvalidInputError, match="shape"):
        hs.apply(laplace, source, np.zeros((3, 3), "f4"))
    with pytest.raises(InvalidInputError, match="float32"):
        hs.apply(laplace, source, np.zeros(CELLS.shape, "i4"))


def test_into_an_array_that_is_there(source, tmp_path):
    target = hs.create(tmp_path / "out", CELLS.shape, "f8", chunks=(7, 9), shards=(14, 18))
    assert hs.apply(laplace, source, target) is target
    assert np.array_equal(target[...], expected().astype("f8"))
    assert hs.open(tmp_path / "out").source.layout.complete
    assert np.array_equal(hs.apply(laplace, CELLS + 1, target)[...], expected(CELLS + 1).astype("f8"))
    with pytest.raises(InvalidInputError, match="shape"):
        hs.apply(laplace, source, hs.create(tmp_path / "small", (3, 3), "f4"))
    with pytest.raises(InvalidInputError, match="mode='r\\+'"):
        hs.apply(laplace, source, hs.open(tmp_path / "out"))
    with pytest.raises(InvalidInputError, match="where an input is"):
        hs.apply(laplace, hs.open(tmp_path / "out"), target)


def test_inputs_are_not_deleted(source, tmp_path):
    with pytest.raises(InvalidInputError, match="where an input is"):
        hs.apply(laplace, source, tmp_path / "in", overwrite=True)
    with pytest.raises(InvalidInputError, match="one place"):
        hs.apply(lambda s: (s(0, 0), s(0, 1)), source, out=(tmp_path / "a", tmp_path / "a"))
    assert np.array_equal(source[...], CELLS)


def test_vectors_of_cells(source, tmp_path):
    def tile(s):
        return s.block((0, 2), (0, 3))

    made = hs.apply(tile, source, tmp_path / "out", stride=(2, 3), chunks=(4, 4), memory_bytes="2GB")
    held = hs.apply(tile, CELLS, stride=(2, 3))
    assert np.array_equal(made[...], held)
    assert np.array_equal(held.reshape(20, 12, 2, 3), CELLS.reshape(20, 2, 12, 3).swapaxes(1, 2))
    assert np.array_equal(hs.apply(tile, source, f"{tmp_path}/out.h5", stride=(2, 3))[...], held)
    assert hs.apply(tile, source, stride=(2, 3), reduce="max") == CELLS.max()


def test_several_inputs_and_outputs(source, tmp_path):
    other = hs.save(tmp_path / "other", CELLS[::-1].copy(), chunks=(40, 5))

    def both(u, v):
        return u(0, 1) - v(0, 0), v(1, 0) > u(0, 0)

    one, two = hs.apply(both, source, other, out=(tmp_path / "1", tmp_path / "2"), chunks=(8, 8))
    wide = np.pad(CELLS, 1, mode="edge")
    assert np.array_equal(one[...], wide[1:-1, 2:] - CELLS[::-1])
    assert two.dtype == np.dtype(bool)
    down = np.pad(CELLS[::-1], 1, mode="edge")[2:, 1:-1]
    assert np.array_equal(two[...], down > CELLS)
    assert one.chunks == two.chunks
    with pytest.raises(InvalidInputError, match="2 outputs"):
        hs.apply(both, source, other, out=tmp_path / "3")


def test_hdf5_appears_when_it_is_whole(source, tmp_path):
    made = hs.apply(laplace, source, f"{tmp_path}/out.h5/deep/field", output={"chunks": (7, 9)})
    assert np.array_equal(made[...], expected())
    assert made.chunks == (7, 9)
    assert [each.name for each in tmp_path.glob("out.h5*")] == ["out.h5"]
    with pytest.raises(InvalidInputError, match="overwrite=True"):
        hs.apply(laplace, source, f"{tmp_path}/out.h5")

    def breaks(s):
        return s(0, 0).no_such_thing

    with pytest.raises(StencilError):
        hs.apply(breaks, source, f"{tmp_path}/other.h5")
    assert not list(tmp_path.glob("other.h5*"))


def far(s):
    # Reaches further only where a cell is very large.
    return s(0, int(s(0, 0) > 50) * 9)


def test_what_reaches_further_is_done_again(tmp_path, monkeypatch):
    cells = CELLS.copy()
    cells[33, 3] = 99
    source = hs.save(tmp_path / "in", cells, chunks=(8, 8), shards=(8, 8))
    boxes = []
    again = flow.Computing._compute_alone

    def noting(self, box, outs, reach):
        boxes.append(box)
        return again(self, box, outs, reach)

    monkeypatch.setattr(flow.Computing, "_compute_alone", noting)
    made = hs.apply(far, source, tmp_path / "out", chunks=(8, 8), output={"chunks": (8, 8), "shards": (8, 8)})
    right = cells.copy()
    right[33, 3] = cells[33, 12]
    assert np.array_equal(made[...], right)
    assert boxes
    assert all(box.start[0] <= 33 < box.stop[0] and box.start[1] == 0 for box in boxes)
    monkeypatch.setattr(flow, "_AGAIN_BYTES", 200)
    made = hs.apply(far, source, tmp_path / "parts", output={"chunks": (8, 8), "shards": (8, 8)})
    assert np.array_equal(made[...], right)


def test_a_reach_that_changes_the_shape_is_said(tmp_path):
    cells = CELLS.copy()
    cells[33, 3] = 99
    source = hs.save(tmp_path / "in", cells)
    with pytest.raises(StencilError, match=r"halo=\[\(0, 0\), \(0, 9\)\]"):
        hs.apply(far, source, tmp_path / "out", boundary="shrink")
    made = hs.apply(far, source, tmp_path / "out2", boundary="shrink", halo=[(0, 0), (0, 9)])
    assert made.shape == (40, 27)


def test_a_halo_that_is_too_small_is_an_error_with_the_cell(source, tmp_path):
    with pytest.raises(StencilError, match="halo"):
        hs.apply(laplace, source, tmp_path / "out", halo=0)


def test_memory_is_kept_or_refused_with_the_reason(source, tmp_path, exact):
    with pytest.raises(InvalidInputError, match="memory_bytes is 1,000 B"):
        hs.apply(laplace, source, tmp_path / "out", output=SMALL, memory_bytes=1000)
    with pytest.raises(InvalidInputError, match="one stored object, 8×12 output cells"):
        hs.apply(laplace, source, tmp_path / "out", output=SMALL, memory_bytes=2000)
    assert not (tmp_path / "out").exists()
    plan = hs.apply(laplace, source, tmp_path / "out2", output=SMALL, memory_bytes=6000, explain=True)
    assert plan.memory_bytes <= 6000
    assert np.array_equal(
        hs.apply(laplace, source, tmp_path / "out2", output=SMALL, memory_bytes=6000)[...], expected()
    )
    with pytest.raises(InvalidInputError, match="out= a URL"):
        hs.apply(laplace, source, memory_bytes=4000)


def test_a_plan_says_what_it_chose(source, tmp_path, exact):
    plan = hs.apply(laplace, source, tmp_path / "out", output=SMALL, memory_bytes=20_000, explain=True)
    text = str(plan)
    for word in ("reach", "halo cells", "read twice", "reading takes", "memory", plan.strategy):
        assert word in text
    assert plan.chunks[0] % 8 == 0
    assert not (tmp_path / "out").exists()
    given = hs.apply(laplace, source, tmp_path / "out", output=SMALL, chunks=(9, 13), explain=True)
    assert (given.strategy, given.chunks) == ("given", (16, 24))


def test_tall_chunks_are_read_by_columns(tmp_path, exact):
    hs.save(tmp_path / "tall", np.zeros((64, 64), "f4"), chunks=(64, 4), shards=(64, 4))
    hs.save(tmp_path / "wide", np.zeros((64, 64), "f4"), chunks=(4, 64), shards=(4, 64))
    plans = {
        name: hs.apply(
            laplace,
            tmp_path / name,
            tmp_path / "out",
            output={"chunks": (4, 4), "layout": "plain"},
            memory_bytes=18_000,
            explain=True,
        )
        for name in ("tall", "wide")
    }
    assert plans["wide"].strategy == "layout-aware"
    assert plans["wide"].planned.split.reading.twice_bytes == 0
    tall = {each.strategy: each.reading.nbytes for each in plans["tall"].planned.splits}
    assert plans["tall"].planned.split.reading.nbytes == min(tall.values())
    assert plans["tall"].planned.split.rows == 64


def test_killed_at_any_moment_goes_on(source, tmp_path):
    hs.apply(laplace, source)  # compiled once, for all children
    whole = tmp_path / "out"

    def work():
        hs.apply(laplace, hs.open(tmp_path / "in"), whole, output=SMALL)

    at, kills = 20, 0
    while killed(work, at):
        kills += 1
        at += 25
        assert kills < 20
    assert kills
    assert np.array_equal(hs.open(whole)[...], expected())
    assert hs.open(whole).source.layout.complete
    with pytest.raises(InvalidInputError, match="stored already"):
        work()


def test_what_was_begun_by_something_else_is_refused(source, tmp_path, monkeypatch):
    stored, left = [], 5

    def fails(self, item):
        if len(stored) == left:
            raise OSError("the disk is gone")
        stored.append(item)
        return work(self, item)

    work = flow.Computing.work
    monkeypatch.setattr(flow.Computing, "work", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        hs.apply(laplace, source, tmp_path / "out", output=SMALL)
    with pytest.raises(InvalidInputError, match="not of this function"):
        hs.apply(lambda s: s(0, 0), source, tmp_path / "out", output=SMALL)
    left, told = -1, []
    made = hs.apply(laplace, source, tmp_path / "out", output=SMALL, progress=lambda *each: told.append(each))
    assert np.array_equal(made[...], expected())
    assert told[0][0] >= 4 * 8 * 12 * 4  # what was there is told of first
    assert np.array_equal(
        hs.apply(lambda s: s(0, 0), source, tmp_path / "out", output=SMALL, overwrite=True)[...], CELLS
    )


def test_reductions(source):
    made = expected()
    assert hs.apply(laplace, source, reduce="min") == made.min()
    pair = (lambda cells: (float(cells.max()), cells.size), lambda a, b: (max(a[0], b[0]), a[1] + b[1]))
    assert hs.apply(laplace, source, reduce=pair) == (float(made.max()), made.size)
    low, high = hs.apply(lambda s: (s(0, 0), s(0, 1)), source, reduce=["min", "max"])
    assert (low, high) == (CELLS.min(), CELLS.max())
    with pytest.raises(InvalidInputError, match="histogram"):
        hs.apply(laplace, source, reduce="mean")
    with pytest.raises(InvalidInputError, match="edges"):
        hs.apply(laplace, source, reduce=("histogram", [1, 0]))


def test_what_does_not_go_together(source, tmp_path):
    wrong = [
        ({"out": tmp_path / "a", "reduce": "sum"}, "reduction"),
        ({"rank": 0}, "rank and size"),
        ({"rank": 2, "size": 2, "out": tmp_path / "a"}, "below size"),
        ({"rank": 0, "size": 2}, "memory"),
        ({"stride": 0}, "stride"),
        ({"chunks": (0, 1)}, "chunks"),
        ({"boundary": "around"}, "boundary"),
        ({"scheduler": "threads", "out": tmp_path / "a"}, "Client"),
    ]
    for options, word in wrong:
        with pytest.raises(InvalidInputError, match=word):
            hs.apply(laplace, source, **options)
    with pytest.raises(InvalidInputError, match="alike"):
        hs.apply(lambda u, v: u(0, 0) + v(0, 0), source, CELLS[:3])
    with pytest.raises(InvalidInputError, match="takes 1"):
        hs.apply(laplace)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_write_their_shares_in_any_order(source, tmp_path, size):
    for rank in reversed(range(size)):
        made = hs.apply(laplace, source, tmp_path / "out", output=SMALL, rank=rank, size=size)
        assert made.source.layout.complete == (rank == 0)
    assert np.array_equal(hs.open(tmp_path / "out")[...], expected())
