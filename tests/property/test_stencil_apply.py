"""Whatever the chunks, the memory, the boundaries and the output: a function gives what it gives on NumPy's slices."""

import shutil
from itertools import count

import h5py
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.arrays import assert_same, folder, tries

import hyperslab as hs
from hyperslab.execute import write
from hyperslab.rechunk import memory, reading
from hyperslab.stencil import flow, job, splitting
from hyperslab.stencil.ranks import share_of, shares_of

numbers = count()
PLACES = ["zarr", "memory", "hdf5", "numpy", "ranks"]
MODES = {"nearest": "edge", "reflect": "symmetric", "periodic": "wrap"}


def line(s):
    return s(-2) + 3 * s(1) - s(0)


def cross(s):
    return 4 * s(0, 0) - s(-1, 0) - s(1, 0) - s(0, -1) - s(0, 1)


def lopsided(u, v):
    return u(3, 0) - v(0, -2), u(0, 0) + v(0, 0)


def corner(s):
    return s(1, 1, 2) + s(0, -1, 0)


FUNCTIONS = [(line, 1, 1), (cross, 2, 1), (lopsided, 2, 2), (corner, 3, 1)]


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Count only what is taken for cells, so that small arrays go the ways of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "resident_bytes", lambda: 0)
        patch.setattr(job, "_SPARE_BYTES", 0)
        patch.setattr(splitting, "_ROOMY_BYTES", 256)
        patch.setattr(write, "_LOCAL_LANES", 3)
        patch.setattr(reading, "_LOCAL_RUN_BYTES", 16)
        patch.setattr(reading, "_MAPPED_BYTES", 64)
        yield


@pytest.fixture(scope="module")
def session():
    with hs.Session(cache_bytes=0, retries=0) as made:
        yield made


def padded(cells, sides):
    """Add 4 cells at each side that does not shrink, one side after the other; return where the array begins, too."""
    for axis, pair in enumerate(sides):
        for end, kind in enumerate(pair):
            width = [(0, 0)] * cells.ndim
            width[axis] = (0, 4) if end else (4, 0)
            length = cells.shape[axis] - (4 if end and pair[0] != "shrink" else 0)
            if kind == "shrink":
                continue
            if isinstance(kind, str):
                cells = _padded_side(cells, axis, end, length, MODES[kind])
            else:
                cells = np.pad(cells, width, constant_values=kind)
    return cells, tuple(0 if pair[0] == "shrink" else 4 for pair in sides)


def _padded_side(cells, axis, end, length, mode):
    """Pad one side by what NumPy makes of the array alone, without what was added at its other side."""
    begin = cells.shape[axis] - length
    inner = np.take(cells, range(begin, begin + length), axis)
    width = [(0, 0)] * cells.ndim
    width[axis] = (0, 4) if end else (4, 0)
    more = np.take(np.pad(inner, width, mode=mode), range(length, length + 4) if end else range(4), axis)
    return np.concatenate([cells, more] if end else [more, cells], axis)


def expected(function, arrays, sides, stride):
    """Return what NumPy gives, by shifted slices of padded arrays."""
    pads = [padded(cells, sides) for cells in arrays]
    origin, shape = pads[0][1], arrays[0].shape
    seen = []
    function(*[lambda *offsets: (seen.append(offsets), 0)[1] for _ in arrays])
    low = [-min(0, *[each[axis] for each in seen]) for axis in range(len(shape))]
    high = [max(0, *[each[axis] for each in seen]) for axis in range(len(shape))]
    first = [low[axis] if pair[0] == "shrink" else 0 for axis, pair in enumerate(sides)]
    last = [n - (high[axis] if sides[axis][1] == "shrink" else 0) for axis, n in enumerate(shape)]

    def at(cells, *offsets):
        places = zip(origin, first, last, offsets, stride, strict=True)
        return cells[tuple(slice(o + a + d, max(o + a + d, o + b + d), step) for o, a, b, d, step in places)]

    made = function(*[lambda *offsets, cells=cells: at(cells, *offsets) for cells, _ in pads])
    return made if isinstance(made, tuple) else (made,)


kinds = st.sampled_from(["nearest", "reflect", "periodic", "shrink", 7])


@st.composite
def cases(draw):
    function, ndim, count = draw(st.sampled_from(FUNCTIONS))
    shape = tuple(draw(st.integers(5, 24 if ndim < 3 else 9)) for _ in range(ndim))
    sides = [draw(st.tuples(kinds, kinds)) for _ in shape]
    stride = tuple(2 if axis % 2 else 3 for axis in range(ndim)) if draw(st.booleans()) else (1,) * ndim
    return function, count, shape, sides, stride


@st.composite
def sizes(draw, shape):
    chunks = tuple(draw(st.integers(-(-n // 4), n + 1)) for n in shape)
    layout = draw(st.sampled_from(["default", "plain"]))
    shards = tuple(n * draw(st.integers(1, 3)) for n in chunks) if layout == "default" and draw(st.booleans()) else None
    return {"chunks": chunks, "shards": shards, "layout": layout}


def stored(data, home, number, cells, session):
    """Store an input, as Zarr or in an HDF5 file; return its URL."""
    wanted = data.draw(sizes(cells.shape))
    if data.draw(st.booleans()):
        hs.save(home / f"in-{number}", cells, **wanted, session=session)
        return f"{home}/in-{number}"
    home.mkdir(exist_ok=True)
    chunks = tuple(min(n, length) for n, length in zip(wanted["chunks"], cells.shape, strict=True))
    with h5py.File(home / f"in-{number}.h5", "w") as file:
        compression = "gzip" if wanted["layout"] == "default" else None
        file.create_dataset("cells", data=cells, chunks=chunks, compression=compression)
    return f"{home}/in-{number}.h5/cells"


@tries(45)
@given(data=st.data(), case=cases(), memory_bytes=st.integers(300, 40_000), place=st.sampled_from(PLACES))
def test_any_split_gives_the_same(session, data, case, memory_bytes, place):
    function, count, shape, sides, stride = case
    rng = np.random.default_rng(len(shape))
    # Each type and stride is compiled anew.
    dtype = "f4" if max(stride) > 1 or count > 1 else data.draw(st.sampled_from(["f4", "i2"]))
    arrays = [(rng.random(shape) * 100).astype(dtype) for _ in range(count)]
    home = folder() / f"apply-{next(numbers)}"
    inputs = [stored(data, home, number, cells, session) for number, cells in enumerate(arrays)]
    settings = data.draw(sizes(shape))
    names = [f"{home}/out-{n}" for n in range(count)]  # as many outputs as inputs, it happens
    if place == "memory":
        names = [f"memory://apply-{home.name}/{n}" for n in range(count)]
    elif place == "hdf5":
        names, settings = [f"{home}/out.h5/{n}" for n in range(count)], {"chunks": settings["chunks"]}
    options = {
        "out": None if place == "numpy" else tuple(names), "output": None if place == "numpy" else settings,
        "boundary": [tuple(pair) for pair in sides], "stride": stride, "memory_bytes": memory_bytes,
        "chunks": data.draw(st.none() | st.tuples(*[st.integers(3, 30)] * len(shape))), "session": session,
    }  # fmt: skip
    ranks = data.draw(st.permutations(range(3))) if place == "ranks" else [None]
    try:
        for rank in ranks:
            made = hs.apply(function, *inputs, rank=rank, size=None if rank is None else len(ranks), **options)
    except hs.errors.InvalidInputError as error:
        assume("memory_bytes" not in str(error))
        raise
    found = made if isinstance(made, tuple) else (made,)
    for one, other in zip(found, expected(function, arrays, sides, stride), strict=True):
        assert_same(np.asarray(one[...]), other)
    shutil.rmtree(home, ignore_errors=True)


@tries(20)
@given(memory_bytes=st.integers(4_000, 40_000), chunks=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_reductions_do_not_depend_on_the_split(session, memory_bytes, chunks):
    cells = np.random.default_rng(1).normal(size=(23, 17)).astype("f4")
    home = folder() / f"reduced-{next(numbers)}"
    source = hs.save(home, cells, chunks=chunks, session=session)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hyperslab.stencil.reducing._BLOCK_BYTES", 128)
        options = {"memory_bytes": memory_bytes, "session": session}
        total = hs.apply(cross, source, reduce="sum", **options)
        assert total == hs.apply(cross, cells, reduce="sum", session=session)
        made = expected(cross, [cells], [("nearest", "nearest")] * 2, (1, 1))[0]
        assert np.isclose(total, made.sum(), atol=1e-3)
        assert hs.apply(cross, source, reduce="max", **options) == made.max()
        counts = hs.apply(cross, source, reduce=("histogram", [-9, -1, 0, 2, 9]), **options)
        assert counts.tolist() == np.histogram(made, [-9, -1, 0, 2, 9])[0].tolist()
    shutil.rmtree(home)


class Counting:
    """Counts what is read of an array in whole units."""

    def __init__(self, cells, unit):
        self.cells, self.unit, self.shape, self.sparse, self.read_cells = cells, unit, cells.shape, False, 0

    def reserve(self, memory_bytes):
        return 0

    def read_into(self, box, out):
        out[...] = self.cells[box.slices]
        sides = zip(box.start, box.stop, self.unit, self.shape, strict=True)
        self.read_cells += int(np.prod([min(-(-b // u) * u, n) - a // u * u for a, b, u, n in sides]))


class Times:
    def seconds(self, requests, nbytes):
        return requests * 1e-3 + nbytes * 1e-6

    def decode_seconds(self, chunks, nbytes):
        return 0.0


@tries(150)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)), unit=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    objects=st.tuples(st.integers(1, 12), st.integers(1, 12)), room=st.integers(50, 8000),
    low=st.tuples(st.integers(0, 3), st.integers(0, 3)), high=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)  # fmt: skip
def test_what_is_predicted_is_what_is_read(shape, unit, objects, room, low, high):
    from hyperslab.selection import Box
    from hyperslab.stencil import Boundaries, Reach
    from hyperslab.stencil.geometry import Geometry

    geometry = Geometry(shape, shape, (0, 0), (1, 1), Reach(low, high))
    problem = splitting.Problem(
        geometry, Box((0, 0), shape), (splitting.Input(unit, 4, encoded=True),), objects, 4
    )  # fmt: skip
    try:
        splits = splitting.choose_split(problem, room, Times())
    except hs.errors.InvalidInputError:
        # Then not even a single object fits.
        least = [min(n, o) for n, o in zip(shape, objects, strict=True)]
        width = least[1] + low[1] + high[1]
        assert 4 * least[0] * least[1] + 4 * (3 * (low[0] + high[0]) + 1) * width > room
        return
    assert splits[0].reading.seconds == min(split.reading.seconds for split in splits)
    cells = np.arange(shape[0] * shape[1], dtype="f4").reshape(shape)
    for split in splits:
        assert split.buffer_bytes <= room
        assert all(n % o == 0 or n == whole for n, o, whole in zip(split.part, objects, shape, strict=True))
        source = Counting(cells, unit)
        inputs = flow.Inputs([source], [cells.dtype], Boundaries.of("nearest", 2))
        streaks = list(flow.streaks_of(problem.domain, split, lambda box: True))
        seen = np.zeros(shape, int)
        reader = flow.BlockReader(inputs, geometry, split, streaks)
        for streak in streaks:
            for box in streak:
                seen[box.slices] += 1
            wanted = geometry.padded(Box(streak[0].start, streak[-1].stop))
            row = wanted.start[0]
            while row < wanted.stop[0]:
                block = reader.next()
                row = block.stop
                reader.free(block)
        reader.close()
        assert (seen == 1).all()
        assert source.read_cells * 4 == split.reading.nbytes


@given(
    domain=st.tuples(st.integers(1, 40), st.integers(1, 40)), objects=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    units=st.tuples(st.integers(1, 40), st.integers(1, 40)), size=st.integers(1, 9),
)  # fmt: skip
def test_ranks_share_all_cells(domain, objects, units, size):
    from hyperslab.selection import Box

    whole, seen = Box((0, 0), domain), np.zeros(domain, int)
    for rank in range(size):
        for box in share_of(whole, objects, units, rank, size):
            seen[box.slices] += 1
            assert all(low % n == 0 for low, n in zip(box.start, objects, strict=True))
    assert (seen == 1).all()
    shares = shares_of(whole, objects, units, size)
    assert len(shares) <= 2 * size
    pieces = -(-domain[0] // objects[0]) * -(-domain[1] // objects[1])
    assert len(shares) >= min(size, pieces) / 2


def test_the_oracle_pads_as_written_out():
    cells = np.arange(3)
    rows = {"nearest": [0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2], "reflect": [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]}
    rows["periodic"] = [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    for name, row in rows.items():
        assert padded(cells, [(name, name)])[0].tolist() == row
