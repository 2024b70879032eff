"""Pictures of plans: they can be drawn for any array, in bounded time, and show what the plan says."""

import sys

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory

import hyperslab as hs
from hyperslab.errors import InvalidInputError
from hyperslab.plan.breakdown import Way
from hyperslab.plan.picture import blank_axes
from hyperslab.plan.squares import Canvas, shown_axes, squares_of

pytest.importorskip("matplotlib").use("Agg")

PLAIN = {"compressors": None, "filters": None}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    zarr.create_array(folder / "zero", data=np.float32(3), **PLAIN)
    zarr.create_array(folder / "line", data=np.arange(1000), chunks=(50,), **PLAIN)
    zarr.create_array(folder / "plane", data=np.ones((60, 90), "i4"), chunks=(20, 30), **PLAIN)
    zarr.create_array(folder / "shards", data=np.ones((60, 90), "i4"), chunks=(10, 10), shards=(20, 30))
    zarr.create_array(folder / "cube", data=np.zeros((4, 60, 80), "f4"), chunks=(2, 10, 10), **PLAIN)
    zarr.create_array(folder / "wide", shape=(10**7, 10**7), dtype="i2", chunks=(1000, 1000), **PLAIN)
    zarr.create_array(folder / "empty", shape=(0, 5), dtype="i2", chunks=(1, 5), **PLAIN)
    for path in folder.iterdir():
        copy_to_memory(path, "pictures")
    with hs.Session(profile="s3", prices="aws") as session:
        yield lambda name, place="memory://pictures": hs.open(
            f"{folder if place == 'disk' else place}/{name}", session=session
        )


def drawn(explanation):
    axes = blank_axes(explanation)
    assert explanation.plot(axes) is axes
    axes.figure.savefig(sink := _Nowhere(), format="png", dpi=30)
    assert sink.written > 1000
    return axes


class _Nowhere:
    """Takes what is written and forgets it."""

    written = 0

    def write(self, data):
        self.written += len(data)
        return len(data)

    def flush(self):
        return None


def texts(axes):
    return {text.get_text() for text in axes.texts}


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("place", ["memory://pictures", "disk"])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("zero", ()),
        ("line", np.s_[120:430]),
        ("line", np.s_[::-7]),
        ("plane", np.s_[15:35, 70]),
        ("plane", np.s_[[1, 5, 30], ::2]),
        ("plane", np.s_[5:5]),
        ("shards", np.s_[15:35, 8:70]),
        ("cube", np.s_[3, 5:50, 10:75]),
        ("empty", np.s_[:]),
    ],
)
def test_anything_can_be_drawn(arrays, place, name, key):
    drawn(arrays(name, place).explain[key])


def test_shades_and_legend(arrays):
    axes = drawn(arrays("plane").explain(np.s_[0:20, 0:60], method="get"))
    assert texts(axes) == {"100%"}
    assert legend(axes) == ["RANGE: part of an object (2 chunks)", "selection"]
    axes = drawn(arrays("plane", "disk").explain[0:2, 0:60])
    assert texts(axes) == {"10%"}
    assert legend(axes)[0] == "mapped local file (2 chunks)"
    assert "2 mapped chunks, 480 B for 480 B needed" in axes.get_title(loc="left")


def test_every_way_has_a_colour(arrays):
    shards = arrays("shards")
    axes = drawn(shards.explain(np.s_[:20], method="fetch"))
    assert legend(axes)[0].startswith("LOOKUP, then RANGE")
    shards[:10, :10]
    axes = drawn(shards.explain[:20])
    assert any(line.startswith("in the cache") for line in legend(axes))


def test_points_are_dots(arrays):
    axes = drawn(arrays("plane").explain.points[[1, 50], [2, 80]])
    assert "selected points" in legend(axes)


def test_two_axes_of_three_are_shown(arrays):
    axes = drawn(arrays("cube").explain[3, 5:50, 10:75])
    assert axes.get_ylabel() == "axis 1 (cells)"
    assert "chunks along axis 0 are folded together" in axes.get_xlabel()


def test_only_what_is_touched_is_shown(arrays):
    explanation = arrays("line").explain[320:430]
    pieces = explanation.plan.reads[0]
    canvas = Canvas.around(pieces, shown_axes(pieces))
    assert (canvas.lows[1], canvas.highs[1]) == (5, 10)
    assert "5 of 20 chunks are shown" in drawn(explanation).get_xlabel()


def test_very_many_chunks_take_few_squares(arrays):
    explanation = arrays("wide", "disk").explain[5:1_500_000, ::3]
    pieces = explanation.plan.reads[0]
    canvas = Canvas.around(pieces, shown_axes(pieces))
    squares = squares_of(explanation.plan, pieces, canvas)
    assert max(canvas.squares) <= 200
    assert squares.counts.sum() == squares.counts[Way.MAP].sum() == explanation.plan.chunk_count == 15_000_000
    assert squares.shares.max() == pytest.approx(1 / 3, rel=0.01)
    axes = drawn(explanation)
    assert "a square is" in axes.get_xlabel()
    assert len(axes.get_children()) < 100


def test_new_axes_are_made(arrays):
    from matplotlib import pyplot

    axes = arrays("plane").explain[3].plot()
    assert axes.figure.number in pyplot.get_fignums()
    pyplot.close(axes.figure)


def test_without_matplotlib_the_way_out_is_named(arrays, monkeypatch):
    explanation = arrays("plane").explain[3]
    for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    for draw in (explanation.plot, lambda: blank_axes(explanation)):
        with pytest.raises(InvalidInputError, match=r"pip install 'hyperslab\[plot\]'"):
            draw()
