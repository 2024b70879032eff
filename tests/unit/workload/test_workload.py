"""Workloads: every kind of selection comes back as it was read, from logs and from Parquet."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyperslab as hs
from hyperslab.errors import FormatError, InvalidInputError, NotFoundError
from hyperslab.execute import light
from hyperslab.selection import Points, Selection, parse, parse_points

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)


class Opened:
    """As much of an array as a workload asks for."""

    def __init__(self, shape, url="memory://x/a", dtype="i4"):
        self.shape, self.url, self.dtype, self.chunks, self.shards = shape, url, np.dtype(dtype), shape, None


@st.composite
def arrays_and_keys(draw):
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=0, max_size=4)))

    def item(size):
        slices = st.slices(size)
        if not size:
            return slices
        lists = st.lists(st.integers(-size, size - 1), min_size=0, max_size=6)
        return st.one_of(slices, st.integers(-size, size - 1), lists)

    keys = st.tuples(*map(item, shape))
    if shape and min(shape) > 0:
        count = draw(st.integers(1, 5))
        points = st.tuples(*(st.lists(st.integers(0, n - 1), min_size=count, max_size=count) for n in shape))
        keys = st.one_of(keys, points.map(lambda key: parse_points(key, shape)))
    return shape, draw(st.lists(keys, min_size=1, max_size=5))


def cells_of(selection):
    """The coordinates of all cells of a selection."""
    if isinstance(selection, Points):
        return list(zip(*(c.tolist() for c in selection.coords), strict=True)) if selection.coords else [()]
    grid = np.meshgrid(*(axis.indices() for axis in selection.axes), indexing="ij")
    return list(zip(*(g.reshape(-1).tolist() for g in grid), strict=True)) if grid else [()]


@given(arrays_and_keys())
@quick
def test_every_selection_comes_back_from_a_log_and_from_parquet(tmp_path_factory, made):
    shape, keys = made
    folder = tmp_path_factory.mktemp("w")
    data = np.zeros(shape, "i2")
    np.save(folder / "a.npy", data)
    array = hs.open(folder / "a.npy")
    with hs.record(folder / "w.hslog"):
        for key in keys:
            array.read(key)
    asked = [key if isinstance(key, Points) else parse(key, shape) for key in keys]
    loaded = hs.Workload.load(folder / "w.hslog")
    loaded.to_parquet(folder / "w.parquet")
    again = hs.Workload.load(folder / "w.parquet")
    for found in (loaded, again, hs.Workload.from_keys(array, keys)):
        assert [cells_of(each) for each in found.selections()] == [cells_of(each) for each in asked]
        assert [type(each) for each in found.selections()] == [type(each) for each in asked]
        check_boxes(found, asked)
    check_same(loaded, again)


def check_boxes(found, asked):
    starts, counts = found.boxes()
    assert starts.shape == counts.shape == (len(asked), len(found.array.shape))
    assert starts.dtype == counts.dtype == np.int64
    for start, count, selection in zip(starts, counts, asked, strict=True):
        found_cells = cells_of(selection)
        cells = np.array(found_cells, np.int64).reshape(len(found_cells), len(start))
        if len(cells):
            assert start.tolist() == cells.min(axis=0).tolist()
            assert (start + count).tolist() == (cells.max(axis=0) + 1).tolist()
        else:
            assert not count.any()


def check_same(one, two):
    a, b = one.records, two.records
    assert len(a) == len(b)
    for name in a.fixed:
        table = {"array": "arrays", "process": "processes", "method": "methods", "error": "errors"}.get(name)
        values = [[getattr(r, table)[i] for i in r.fixed[name]] if table else r.fixed[name].tolist() for r in (a, b)]
        assert values[0] == values[1]
    for name in ("bounds", "start", "count", "step", "cells"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert (one.skipped_frames, one.skipped_bytes) == (two.skipped_frames, two.skipped_bytes)


def test_long_lists_are_thinned_and_marked(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((400_000, 2), "u1"))
    array = hs.open(tmp_path / "a.npy")
    rows = np.flatnonzero(np.random.default_rng(0).integers(0, 2, 400_000))
    with hs.record(tmp_path / "w.hslog"):
        array[rows]
        array.points[rows, rows % 2]
        array[rows[:1000]]
    found = hs.Workload.load(tmp_path / "w.hslog")
    assert found.thinned.tolist() == [True, True, False]
    every = -(-len(rows) // light.MOST_INDICES)
    by_rows, by_points, short = found.selections()
    assert np.array_equal(by_rows.axes[0].cells, rows[::every])
    assert np.array_equal(by_points.coords[0], rows[::every])
    assert np.array_equal(short.axes[0].cells, rows[:1000])
    assert found.records.fixed["needed_bytes"].tolist() == [2 * len(rows), len(rows), 2000]
    assert found.summary().arrays[0].thinned == 2


def test_selections_are_cut_to_the_shape_that_the_array_has_now(tmp_path):
    array = hs.save(tmp_path / "a.zarr", np.zeros((20, 6), "i4"))
    array = hs.open(tmp_path / "a.zarr", "r+")
    with hs.record(tmp_path / "w.hslog"):
        array[5:20:3], array[[1, 2, 15]], array.points[[2, 19], [0, 5]], array[18:]
        array.resize((10, 6))
        array[0]
    found = hs.Workload.load(tmp_path / "w.hslog")
    assert found.array.shape == (10, 6)
    assert [each.shape for each in found.selections()] == [(10, 6)] * 5
    assert [sorted({cell[0] for cell in cells_of(each)}) for each in found.selections()] == [
        [5, 8],
        [1, 2],
        [2],
        [],
        [0],
    ]
    assert found.boxes()[1][:, 0].tolist() == [4, 2, 1, 0, 1]


def test_the_reads_of_one_array(tmp_path):
    made = {name: hs.save(tmp_path / name, np.zeros(shape)) for name, shape in [("a", 5), ("b", 6), ("c", 6)]}
    with hs.record(tmp_path / "w.hslog"):
        made["a"][1], made["b"][2:4], made["c"][3]
    found = hs.Workload.load(tmp_path / "w.hslog")
    assert list(found.arrays) == [str(tmp_path / name) for name in "abc"]
    assert found.of(tmp_path / "b").boxes()[0].tolist() == [[2]]
    assert found.of(f"file://{tmp_path}/b").boxes()[0].tolist() == [[2]]
    assert found.of(Opened((5,))).boxes()[0].tolist() == [[1]]  # moved: the only one of that shape
    for wrong in (Opened((6,)), Opened((7,)), "memory://x/a"):
        with pytest.raises(NotFoundError, match=str(tmp_path / "c")):
            found.of(wrong)
    with pytest.raises(InvalidInputError, match="choose one"):
        found.boxes()


def test_a_split_is_always_the_same_and_loses_nothing():
    keys = [np.s_[i % 50, i % 7 : i % 7 + 3] for i in range(1000)]
    workload = hs.Workload.from_keys(Opened((50, 10)), keys)
    train, held = workload.split()
    assert (len(train), len(held)) == (800, 200)
    reads = [part.records.fixed["read"].tolist() for part in (train, held)]
    assert sorted(reads[0] + reads[1]) == list(range(1000))
    assert [part.records.fixed["read"].tolist() for part in workload.split()] == reads
    # Blocks, not single reads; and not all of them at one end.
    borders = np.count_nonzero(np.diff(reads[1]) != 1)
    assert 3 <= borders <= 10
    assert max(reads[1]) - min(reads[1]) > 400
    assert [len(part) for part in hs.Workload.from_keys(Opened((50, 10)), keys[:2]).split(0.99)] == [1, 1]
    for share in (0, 1, -1, float("nan")):
        with pytest.raises(InvalidInputError):
            workload.split(share)
    with pytest.raises(InvalidInputError):
        hs.Workload.from_keys(Opened((50, 10)), keys[:1]).split()


def test_a_summary(tmp_path):
    workload = hs.Workload.from_keys(Opened((64, 64)), [np.s_[:32, 3]] * 6 + [np.s_[40]] * 2)
    told = workload.summary()
    (one,) = told.arrays
    assert [(each.shape, each.reads, each.share) for each in one.shapes] == [((32, 1), 6, 0.75), ((1, 64), 2, 0.25)]
    assert one.regions[0] == (0.75,) * 16 + (0,) * 4 + (0.25,) + (0,) * 11
    assert one.regions[1][:3] == (0.25, 1.0, 0.25)
    assert one.needed_bytes == 6 * 32 * 4 + 2 * 64 * 4
    text = str(told)
    assert all(word in text for word in ("32×1", "75.0%", "axis 0"))
    assert told.to_dict()["arrays"][0]["reads"] == 8
    assert str(hs.Workload.from_keys(Opened((3,)), []).summary()) == "no read was recorded"


def test_parquet_that_is_something_else(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no PAR1")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(FormatError):
            hs.Workload.load(tmp_path / name)
    with pytest.raises(NotFoundError):
        hs.Workload.load(tmp_path / "none.parquet")
    hs.Workload.from_keys(Opened((9,)), [np.s_[1:4]]).to_parquet(tmp_path / "w.parquet")
    table = pq.read_table(tmp_path / "w.parquet")
    for name, values in {"start": [[-1]], "step": [[0]], "seconds": [float("nan")], "shape": [[9, 9]]}.items():
        place = table.schema.get_field_index(name)
        bad = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
        pq.write_table(bad, tmp_path / "bad.parquet")
        with pytest.raises(FormatError):
            hs.Workload.load(tmp_path / "bad.parquet")


def test_an_array_of_many_axes_and_none():
    for shape in ((), (2,) * 20):
        found = hs.Workload.from_keys(Opened(shape), [...])
        assert found.boxes()[1].tolist() == [list(shape)]
        assert isinstance(found.selections()[0], Selection)


def test_an_array_that_got_another_number_of_axes(tmp_path):
    with hs.record(tmp_path / "w.hslog"):
        flat = hs.save(tmp_path / "a.zarr", np.zeros((20, 30), "i4"))
        flat[3], flat[:, 4]
        deep = hs.save(tmp_path / "a.zarr", np.zeros((20, 5, 6), "i4"), overwrite=True)
        deep[7]
    found = hs.Workload.load(tmp_path / "w.hslog")
    assert found.of(tmp_path / "a.zarr").boxes()[1].tolist() == [[1, 5, 6]]
    assert found.of(deep).boxes()[1].tolist() == [[1, 5, 6]]
    assert found.of(Opened((20, 30), url=str(tmp_path / "a.zarr"))).boxes()[1].tolist() == [[1, 30], [20, 1]]
    assert found.summary().arrays[0].reads == 1
    for use in (found.boxes, found.selections):
        with pytest.raises(InvalidInputError, match="choose the last ones by `of`"):
            use()
    with pytest.raises(InvalidInputError, match="record its reads anew"):
        found.of(deep).selections((20, 30))
    found.plot()


def test_selections_are_cut_to_another_shape():
    found = hs.Workload.from_keys(Opened((20, 30)), [np.s_[5:15, ::4], np.s_[[1, 9], 3], np.s_[19]])
    cut = found.selections((10, 6))
    assert [sorted({cell[0] for cell in cells_of(each)}) for each in cut] == [[5, 6, 7, 8, 9], [1, 9], []]
    assert {each.shape for each in cut} == {(10, 6)}


def test_what_names_no_array_is_refused():
    found = hs.Workload.from_keys(Opened((9,)), [3])
    for wrong in (5, None, object()):
        with pytest.raises(InvalidInputError, match="named by its url"):
            found.of(wrong)
    with pytest.raises(InvalidInputError, match="as a list"):
        hs.Workload.from_keys(Opened((9,)), 3)


def test_parquet_under_any_name_takes_the_place_of_a_file_when_it_is_whole(tmp_path, monkeypatch):
    found = hs.Workload.from_keys(Opened((9,)), [3, np.s_[2:5]])
    found.to_parquet(tmp_path / "w.bin")
    assert len(hs.Workload.load(tmp_path / "w.bin")) == 2
    before = (tmp_path / "w.bin").read_bytes()

    def torn(table, path, **_):
        with open(path, "wb") as file:
            file.write(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", torn)
    with pytest.raises(InvalidInputError, match="No space left"):
        found.to_parquet(tmp_path / "w.bin")
    assert (tmp_path / "w.bin").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["w.bin"]


def test_parquet_columns_of_other_types_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    hs.Workload.from_keys(Opened((9, 4)), [np.s_[1:4], [2, 5]]).to_parquet(tmp_path / "w.parquet")
    table = pq.read_table(tmp_path / "w.parquet")
    columns = [pa.array([1, 2]), pa.array(["x", "y"]), pa.array([None, None]), pa.array([[1], [2]]),
               pa.array([["x"], ["y"]]), pa.array([True, False]), pa.array([1.5, 2.5]), pa.array([{"a": 1}] * 2),
               pa.array([b"\xff", b"x"]), pa.array([2**64 - 1] * 2, pa.uint64()), pa.array([1, 2], pa.timestamp("ns")),
               pa.array(["x", "y"]).dictionary_encode(), pa.array([[[1]], [[2]]])]  # fmt: skip
    for name in table.schema.names:
        for column in columns:
            if column.type == table.schema.field(name).type:
                continue
            place = table.schema.get_field_index(name)
            pq.write_table(table.set_column(place, name, column), tmp_path / "bad.parquet")
            with pytest.raises(FormatError):
                hs.Workload.load(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    "told", [b"[" * 100_000, b"{}", b"5", b'{"version": 2, "skipped_frames": 0, "skipped_bytes": 0}',
             b'{"version": 1, "skipped_frames": -1, "skipped_bytes": 0}']
)  # fmt: skip
def test_parquet_with_another_head_is_refused(tmp_path, told):
    import pyarrow.parquet as pq

    hs.Workload.from_keys(Opened((9,)), [3]).to_parquet(tmp_path / "w.parquet")
    table = pq.read_table(tmp_path / "w.parquet").replace_schema_metadata({b"hyperslab.workload": told})
    pq.write_table(table, tmp_path / "w.parquet")
    with pytest.raises(FormatError):
        hs.Workload.load(tmp_path / "w.parquet")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (50,), (4, 5), (8, 3, 50, 721, 1440)])
def test_pictures_of_all_kinds_of_arrays(tmp_path, shape):
    pytest.importorskip("matplotlib")
    name = "temperature_" * 30
    whole, none = ..., tuple(slice(0, 0) for _ in shape)
    figure = hs.Workload.from_keys(Opened(shape, url=f"memory://x/{name}"), [whole, none] if shape else [whole]).plot()
    figure.savefig(tmp_path / "w.png")
    # Nothing is cut off: the title ends within the picture.
    assert figure._suptitle.get_window_extent().x1 <= figure.bbox.x1
