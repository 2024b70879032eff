"""Writers that are killed -9 at every storage call: each object is whole, old or new; the array opens."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.killing import killed

import hyperslab as hs

OLD, NEW = 1, 2


def kill_everywhere(work: Callable[[], None], check: Callable[[], None], least: int) -> int:
    """Kill the work at its first call, its second, and so on until it gets through; check what each leaves."""
    at = 0
    while killed(work, at):
        check()
        at += 1
        assert at < 2000
    check()
    assert at >= least
    return at


def chunk_values(array: hs.Array) -> set[tuple[int, ...]]:
    """Return the different values in each chunk."""
    cells, (rows, columns) = array[...], array.chunks
    boxes = [cells[i : i + rows, j : j + columns] for i in range(0, 8, rows) for j in range(0, 8, columns)]
    return {tuple(np.unique(box).tolist()) for box in boxes}


@pytest.fixture(params=["default", "plain"])
def layout(request):
    return request.param


def saved(path: Path, layout: str) -> hs.Array:
    shards = {"shards": (4, 8)} if layout == "default" else {}
    return hs.save(path, np.full((8, 8), OLD, "i4"), chunks=(4, 4), layout=layout, overwrite=True, **shards)


def test_overwriting_chunks(tmp_path, layout):
    array = saved(tmp_path / "a", layout)
    state = {"value": NEW}

    def work() -> None:
        hs.open(tmp_path / "a", mode="r+")[:, :4] = state["value"]

    def check() -> None:
        found = hs.open(tmp_path / "a")
        assert chunk_values(found) <= {(n,) for n in range(1, state["value"] + 1)}
        assert (found[:, 4:] == OLD).all()
        state["value"] += 1

    kills = kill_everywhere(work, check, least=10)
    assert (array.refresh()[:, :4] == state["value"] - 1).all()
    assert kills < 100


def test_overwriting_parts_of_chunks(tmp_path, layout):
    saved(tmp_path / "a", layout)
    state = {"value": NEW}

    def work() -> None:
        hs.open(tmp_path / "a", mode="r+")[1:7, 1:7] = state["value"]

    def check() -> None:
        found = hs.open(tmp_path / "a")[...]
        edge = np.ones((8, 8), bool)
        edge[1:7, 1:7] = False
        assert (found[edge] == OLD).all()
        for rows in (slice(1, 4), slice(4, 7)):
            for columns in (slice(1, 4), slice(4, 7)):
                assert len(np.unique(found[rows, columns])) == 1
        state["value"] += 1

    kill_everywhere(work, check, least=10)


def test_appending(tmp_path, layout):
    model = [np.full((8, 8), OLD, "i4")]
    saved(tmp_path / "a", layout)
    more = np.arange(6 * 8, dtype="i4").reshape(6, 8) + 100

    def work() -> None:
        hs.open(tmp_path / "a", mode="r+").append(more)

    def check() -> None:
        found = hs.open(tmp_path / "a")
        assert found.source.layout.complete
        cells = found[...]
        grown = np.concatenate([model[0], more])
        wanted = model[0] if cells.shape == model[0].shape else grown
        assert (cells == wanted).all()
        model[0] = cells

    kills = kill_everywhere(work, check, least=30)
    assert model[0].shape[0] > 8
    assert kills < 400


def test_shrinking_and_growing_again(tmp_path, layout):
    """Cells that were cut off never come back, wherever the writer was killed."""
    saved(tmp_path / "a", layout)

    def work() -> None:
        array = hs.open(tmp_path / "a", mode="r+")
        array.resize((3, 5))
        array.resize((8, 8))

    def check() -> None:
        found = hs.open(tmp_path / "a")
        cells = found[...]
        assert cells.shape in ((8, 8), (3, 5))
        assert (cells[:3, :5] == OLD).all()
        if cells.shape == (8, 8) and not (cells == OLD).all():
            assert (cells[3:] == 0).all()
            assert (cells[:, 5:] == 0).all()
        array = hs.open(tmp_path / "a", mode="r+")
        array.resize((3, 5))
        array.resize((8, 8))
        array[...] = OLD

    kill_everywhere(work, check, least=30)


def test_saving_is_not_complete_before_all_is_stored(tmp_path, layout):
    def work() -> None:
        saved(tmp_path / "a", layout)

    def check() -> None:
        try:
            found = hs.open(tmp_path / "a")
        except hs.errors.NotFoundError:
            return
        cells = found[...]
        if found.source.layout.complete:
            assert (cells == OLD).all()
        assert set(np.unique(cells).tolist()) <= {0, OLD}

    kill_everywhere(work, check, least=20)


def test_copy_goes_on_where_it_was_killed(tmp_path):
    source = hs.save(tmp_path / "a", np.arange(64).reshape(8, 8), chunks=(4, 4), attrs={"t": 1})

    def work() -> None:
        hs.copy(hs.open(tmp_path / "a"), tmp_path / "b", chunks=(2, 2), shards=(2, 2))

    def check() -> None:
        if not (tmp_path / "b/zarr.json").exists():
            return
        found = hs.open(tmp_path / "b")
        if found.source.layout.complete:
            assert (found[...] == source[...]).all()

    # Each run gets one call further than the one before: it does not begin again.
    at = 0
    while killed(work, 12):
        check()
        at += 1
        assert at < 60, "the copy does not get on"
    check()
    assert hs.open(tmp_path / "b").source.layout.complete
    assert at > 4
