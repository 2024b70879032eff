"""The facade: what an array, a lazy view and a group look like, and what single reads give."""

import asyncio

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory

import hyperslab as hs
from hyperslab.errors import InvalidInputError, NotFoundError, SelectionError

DATA = np.arange(60, dtype="<f4").reshape(3, 4, 5)
FIELDS = np.array([(1, 2.5), (3, 4.5), (5, 6.5)], [("a", "<i4"), ("b", "<f8")])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A group with arrays and a group in it."""
    path = tmp_path_factory.mktemp("facade")
    root = zarr.open_group(str(path / "store.zarr"), mode="w", attributes={"title": "facade"})
    names = ["x", None, "z"]
    cube = root.create_array(
        "cube", shape=(3, 4, 5), dtype="f4", chunks=(2, 2, 5), fill_value=-1, dimension_names=names, compressors=None
    )
    cube[...] = DATA
    cube.attrs["unit"] = "K"
    inner = root.create_group("inner")
    inner.create_array("scalar", shape=(), dtype="i8")[...] = 7
    inner.create_array("none", shape=(0, 3), dtype="i2", chunks=(1, 1))
    np.save(path / "fields.npy", FIELDS)
    copy_to_memory(path / "store.zarr", "facade")
    copy_to_memory(path / "fields.npy", "facade")
    return path


@pytest.fixture(params=["file", "memory"])
def root(folder, request):
    """Where the stores are: on disk, and in memory."""
    return str(folder) if request.param == "file" else "memory://facade"


@pytest.fixture
def cube(root):
    return hs.open(f"{root}/store.zarr/cube")


@pytest.fixture
def fields(root):
    return hs.open(f"{root}/fields.npy")


def test_what_an_array_says_of_itself(cube, root):
    assert cube.shape == (3, 4, 5)
    assert cube.dtype == np.dtype("f4")
    assert cube.chunks == (2, 2, 5)
    assert cube.shards is None
    assert (cube.ndim, cube.size, cube.nbytes) == (3, 60, 240)
    assert dict(cube.attrs) == {"unit": "K"}
    assert cube.dims == ("x", None, "z")
    assert cube.name == "cube"
    assert cube.url == f"{root}/store.zarr/cube"
    assert cube.fill_value == -1
    assert len(cube) == 3
    assert "float32 (3, 4, 5) chunks (2, 2, 5) zarr3" in repr(cube)
    assert bool(cube)


def test_numpy_takes_arrays_and_views(cube):
    assert np.array_equal(np.asarray(cube), DATA)
    assert np.asarray(cube, dtype="f8").dtype == "f8"
    assert np.array_equal(np.asarray(cube.lazy[1:, ::-1]), DATA[1:, ::-1])
    assert float(np.sum(cube)) == DATA.sum()
    for lazily in (cube, cube.lazy[1:]):
        with pytest.raises(ValueError, match="always copies"):
            np.array(lazily, copy=False)


def test_iteration_goes_over_the_first_axis(cube):
    assert [np.array_equal(found, wanted) for found, wanted in zip(cube, DATA, strict=True)] == [True] * 3
    assert DATA[2, 1, 3] in DATA[2]


def test_scalars_are_scalars(cube, root):
    assert type(cube[1, 2, 3]) is np.float32
    assert type(cube[..., 1, 2, 3]) is np.ndarray
    assert cube[..., 1, 2, 3].shape == ()
    assert type(cube.points[1, 2, 3]) is np.float32
    assert type(cube.lazy[1][2][3].read()) is np.float32
    assert cube[1, 2, 3, None].shape == (1,)
    scalar = hs.open(f"{root}/store.zarr/inner/scalar")
    assert type(scalar[()]) is np.int64
    assert type(scalar[...]) is np.ndarray
    assert scalar[()] == scalar.points[()] == scalar.lazy[()].read() == 7
    assert scalar[None].tolist() == [7]
    assert np.asarray(scalar) == 7
    for use in (len, iter):
        with pytest.raises(TypeError, match="0-dim"):
            use(scalar)
    with pytest.raises(SelectionError):
        scalar[0]


def test_arrays_without_cells(root):
    none = hs.open(f"{root}/store.zarr/inner/none")
    assert none[...].shape == (0, 3)
    assert none[:, 1].shape == (0,)
    assert none[[], ::-1].dtype == "i2"
    assert list(none) == []
    assert (len(none), none.size, none.nbytes) == (0, 0, 0)
    with pytest.raises(SelectionError, match="out of bounds"):
        none[0]


def test_fields(fields):
    assert fields["a"].tolist() == [1, 3, 5]
    assert fields["b", 1:].tolist() == [4.5, 6.5]
    assert type(fields["b", 0]) is np.float64
    assert type(fields[0]) is np.void
    assert fields[["b", "a"]].dtype == FIELDS[["b", "a"]].dtype
    assert fields[["b"], 1] == FIELDS[["b"]][1]
    assert fields.lazy[1:]["a"].read().tolist() == [3, 5]
    assert fields.lazy["a"].dtype == "i4"
    assert fields.lazy[["a", "b"]]["b"][::-1].read().tolist() == [6.5, 4.5, 2.5]
    for wrong in ("c", ["a", "c"], ["a", "a"]):
        with pytest.raises(SelectionError):
            fields[wrong]


def test_reading_into_an_array(cube, fields):
    out = np.zeros((3, 4), "f8")
    assert cube.read(np.s_[..., 2], out=out) is out
    assert np.array_equal(out, DATA[..., 2])
    scalar = np.zeros((), "f4")
    assert cube.read((1, 2, 3), out=scalar) is scalar
    assert scalar == DATA[1, 2, 3]
    picked = np.zeros((2, 2, 5), "f4")
    assert cube.read(([1, 1], [3, 0]), out=picked) is picked
    assert np.array_equal(picked, DATA[[1, 1]][:, [3, 0]])
    column = np.zeros(3, "f8")
    assert fields.read("a", out=column) is column
    assert column.tolist() == [1, 3, 5]


def test_arrays_that_cannot_be_read_into(cube, fields):
    fixed = np.zeros((3, 4, 5), "f4")
    fixed.flags.writeable = False
    for out, message in [
        (np.zeros((3, 4), "f4"), r"out must be an array of shape \(3, 4, 5\), not shape \(3, 4\)"),
        ([0], "out must be an array of shape .* not list"),
        (fixed, "out cannot be written to"),
        (np.zeros((3, 4, 5), "i4"), "out has dtype int32, into which float32 cannot be cast"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            cube.read(out=out)
    with pytest.raises(InvalidInputError, match="into which float64 cannot be cast"):
        fields.read("b", out=np.zeros(3, "i4"))
    with pytest.raises(InvalidInputError, match="into which"):
        fields.read(out=np.zeros(3, "i4"))


def test_options_are_checked_before_anything_is_sent(cube):
    for wrong in ({"method": "guess"}, {"phi": -1}, {"phi": float("nan")}, {"deadline": 0}):
        with pytest.raises(InvalidInputError):
            cube.read(0, **wrong)
    with pytest.raises(hs.errors.BudgetError) as raised:
        cube.read(budget=hs.Budget(bytes=100))
    assert raised.value.plan is not None


def test_lazy_views(cube):
    view = cube.lazy[1:, ::-1]
    assert view.shape == (2, 4, 5)
    assert view.dtype == cube.dtype
    assert "(2, 4, 5) float32 of" in repr(view)
    assert np.array_equal(view[..., [4, 0]].read(), DATA[1:, ::-1, [4, 0]])
    assert np.array_equal(view.read(method="fetch"), DATA[1:, ::-1])
    assert str(view.explain())
    with pytest.raises(SelectionError):
        view[2]


def test_points(cube):
    assert cube.points[[0, 2], [3, 0], [4, 4]].tolist() == DATA[[0, 2], [3, 0], [4, 4]].tolist()
    assert cube.points[[[0], [2]], [3, 0], 4].shape == (2, 2)
    assert cube.points[DATA > 50].tolist() == DATA[DATA > 50].tolist()
    with pytest.raises(SelectionError, match="one index per axis"):
        cube.points[0, 0]


def test_reading_without_blocking(cube):
    async def both():
        return await asyncio.gather(cube.aread(0), cube.aread(np.s_[:, 1], method="fetch"))

    first, second = asyncio.run(both())
    assert np.array_equal(first, DATA[0])
    assert np.array_equal(second, DATA[:, 1])


def test_reading_many(cube, fields):
    found = hs.read_many([(cube, 0), (fields, "a"), (cube, (1, 2, 3))])
    assert np.array_equal(found[0], DATA[0])
    assert found[1].tolist() == [1, 3, 5]
    assert type(found[2]) is np.float32
    assert cube.read_boxes([]) == []


def test_results_are_ours(cube):
    """What is returned can be written to, and writing to it changes no later read."""
    for key in (..., 0, np.s_[:, [2, 0]], np.s_[..., ::-1]):
        found = cube[key]
        found[...] = -5
        assert np.array_equal(cube[key], np.asarray(DATA)[key])


def test_groups(root):
    group = hs.open(f"{root}/store.zarr")
    assert isinstance(group, hs.Group)
    assert dict(group.attrs) == {"title": "facade"}
    assert list(group) == ["cube", "inner"]
    assert len(group) == 2
    assert isinstance(group["inner"], hs.Group)
    assert group["inner/scalar"][()] == 7
    assert group["inner"]["scalar"].url == f"{root}/store.zarr/inner/scalar"
    assert "cube" in group
    assert "inner/none" in group
    assert "missing" not in group
    assert 3 not in group
    assert {name: type(member).__name__ for name, member in group.items()} == {"cube": "Array", "inner": "Group"}
    assert group.tree().splitlines() == [
        "cube  float32 (3, 4, 5)",
        "inner/",
        "  none  int16 (0, 3)",
        "  scalar  int64 ()",
    ]
    assert group.tree(depth=1).splitlines() == ["cube  float32 (3, 4, 5)", "inner/"]
    assert list(group.refresh()) == ["cube", "inner"]
    assert f"{root}/store.zarr" in repr(group)
    with pytest.raises(NotFoundError):
        group["missing"]
    with pytest.raises(InvalidInputError):
        group["../facade"]


def test_a_handle_is_a_snapshot(tmp_path):
    array = zarr.create_array(str(tmp_path / "a"), shape=(4,), chunks=(4,), dtype="i4", compressors=None)
    array[...] = 1
    old = hs.open(tmp_path / "a")
    array.resize((6,))
    array[...] = 2
    assert old.shape == (4,)
    assert old.refresh().shape == (6,)
    assert old.refresh()[...].tolist() == [2] * 6


def test_closed_sessions_read_nothing(folder):
    with hs.Session() as session:
        array = hs.open(folder / "store.zarr" / "cube", session=session)
    with pytest.raises(InvalidInputError, match="closed"):
        array[0]


def test_arrays_of_more_cells_than_any_memory_holds(tmp_path):
    zarr.create_array(str(tmp_path / "a"), shape=(2**60,), chunks=(64,), dtype="u1", compressors=None)[2**59] = 7
    array = hs.open(tmp_path / "a")
    assert array[2**59] == 7
    assert array[2**59 - 1 : 2**59 + 2].tolist() == [0, 7, 0]
    assert array.lazy[::2][[2**58, 3, 2**58]].read().tolist() == [7, 0, 7]
    assert array[:: 2**58].tolist() == [0, 0, 7, 0]
    assert array.points[[2**59, -1]].tolist() == [7, 0]
    for use in (array.explain.__getitem__, array.__getitem__):
        with pytest.raises((SelectionError, MemoryError)):
            use(...)
    with pytest.raises(SelectionError, match="touches more than 16,777,216 chunks; read it in parts"):
        str(array.explain[:: 2**20])


@pytest.fixture
def changing(tmp_path):
    """A compressed array in memory: a function that writes it anew, and its URL."""
    name = tmp_path.name

    def write(value: int, dtype: str = "int32") -> None:
        zarr.create_array(str(tmp_path / "a"), shape=(8,), chunks=(8,), dtype="i4", overwrite=True)[...] = value
        metadata = (tmp_path / "a" / "zarr.json").read_text()
        (tmp_path / "a" / "zarr.json").write_text(metadata.replace("int32", dtype))
        copy_to_memory(tmp_path / "a", name)

    return write, f"memory://{name}/a"


def test_old_and_new_handles_do_not_mix(changing):
    write, url = changing
    write(1)
    old = hs.open(url)
    assert old[:2].tolist() == [1, 1]
    write(2)
    new = old.refresh()
    for pairs, wanted in [([(old, 0), (new, 0)], [1, 2]), ([(old.refresh(), 0), (old, 0)], [2, 1])]:
        assert hs.read_many(pairs) == wanted


def test_chunks_are_cached_for_the_type_they_were_decoded_to(changing):
    write, url = changing
    write(2)
    numbers = hs.open(url)
    assert numbers[:2].tolist() == [2, 2]
    write(2, "float32")
    floats = numbers.refresh()
    assert floats[0] == np.array(2, "i4").view("f4")
    assert numbers[:2].tolist() == [2, 2]
    assert floats[1] == np.array(2, "i4").view("f4")
