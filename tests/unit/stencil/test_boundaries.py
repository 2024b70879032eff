import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times
from support.stencils import padded

from hyperslab.errors import InvalidInputError
from hyperslab.selection import Box
from hyperslab.stencil import Boundaries, Reach, Side

SIDES = st.sampled_from(["nearest", "reflect", "periodic", 7])


@settings(max_examples=times(80))
@given(data=st.data())
def test_padding_is_numpys(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), label="shape"))
    sides = [data.draw(st.tuples(SIDES, SIDES)) for _ in shape]
    before = [data.draw(st.integers(0, 9)) for _ in shape]
    after = [data.draw(st.integers(0, 9)) for _ in shape]
    array = np.arange(np.prod(shape)).reshape(shape)
    box = Box(tuple(-b for b in before), tuple(n + a for n, a in zip(shape, after, strict=True)))
    got = Boundaries.of(sides, len(shape)).pad(array, box)
    assert np.array_equal(got, padded(array, sides, before, after))


@settings(max_examples=times(80))
@given(data=st.data())
def test_any_box_of_the_padded_array(data):
    """Chunks smaller than their halo, far from all edges or at several, see the same cells."""
    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=2), label="shape"))
    sides = [data.draw(st.tuples(SIDES, SIDES)) for _ in shape]
    cells = [data.draw(st.integers(0, n - 1)) for n in shape]
    halo = [data.draw(st.integers(0, 12)) for _ in shape]
    array = np.arange(np.prod(shape)).reshape(shape)
    box = Box(
        tuple(c - h for c, h in zip(cells, halo, strict=True)),
        tuple(c + 1 + h for c, h in zip(cells, halo, strict=True)),
    )
    whole = padded(array, sides, [12] * len(shape), [12] * len(shape))
    wanted = whole[tuple(slice(a + 12, b + 12) for a, b in zip(box.start, box.stop, strict=True))]
    assert np.array_equal(Boundaries.of(sides, len(shape)).pad(array, box), wanted)


def test_only_cells_of_the_array_are_read_and_each_once():
    boundaries = Boundaries.of(["periodic", "reflect"], 2)
    pieces = boundaries.source_boxes((100, 50), Box((-2, -3), (10, 20)))
    assert [piece.source for piece in pieces] == [Box((0, 0), (10, 20)), Box((98, 0), (100, 20))]
    assert [piece.target for piece in pieces] == [Box((2, 3), (12, 23)), Box((0, 3), (2, 23))]


def test_periodic_axis_read_whole_needs_no_second_read():
    (piece,) = Boundaries.of("periodic", 1).source_boxes((10,), Box((-2,), (12,)))
    assert piece.source == Box((0,), (10,))


def test_constants_win_over_other_boundaries_in_corners():
    got = Boundaries.of([5, "nearest"], 2).pad(np.zeros((1, 1), int), Box((-1, -1), (2, 2)))
    assert got.tolist() == [[5, 5, 5], [0, 0, 0], [5, 5, 5]]


def test_shrunk_output_begins_where_all_neighbours_are():
    boundaries = Boundaries.of([("shrink", "nearest"), ("nearest", "shrink")], 2)
    reach = Reach((2, 1), (1, 3))
    assert boundaries.first(reach) == (2, 0)
    assert boundaries.out_shape((10, 10), reach) == (8, 7)
    assert boundaries.padded_box(Box((0, 0), (8, 7)), reach) == Box((0, -1), (11, 10))
    assert boundaries.out_shape((10, 2), reach) == (8, 0)


def test_stride_counts_tiles_that_stick_out_unless_they_shrink():
    reach = Reach((0,), (1,))
    assert Boundaries.of("nearest", 1).out_shape((7,), reach, (2,)) == (4,)
    assert Boundaries.of("shrink", 1).out_shape((7,), reach, (2,)) == (3,)


@pytest.mark.parametrize(
    ("given", "sides"),
    [
        ("nearest", [(Side("nearest"), Side("nearest"))] * 2),
        (0.5, [(Side("constant", 0.5), Side("constant", 0.5))] * 2),
        (("constant", 3), [(Side("constant", 3), Side("constant", 3))] * 2),
        (["periodic", ("reflect", 1)], [(Side("periodic"),) * 2, (Side("reflect"), Side("constant", 1))]),
        (("nearest", "reflect"), [(Side("nearest"),) * 2, (Side("reflect"),) * 2]),
        ({-1: ("shrink", "nearest")}, [(Side("nearest"),) * 2, (Side("shrink"), Side("nearest"))]),
    ],
)
def test_users_write_boundaries_in_several_forms(given, sides):
    assert Boundaries.of(given, 2).sides == tuple(sides)
    assert Boundaries.of(Boundaries.of(given, 2), 2).sides == tuple(sides)


@pytest.mark.parametrize(
    "given", ["mirror", ["nearest"], {5: "nearest"}, [("nearest",) * 3, "nearest"], ("constant", "a")]
)
def test_wrong_boundaries_are_refused(given):
    with pytest.raises(InvalidInputError):
        Boundaries.of(given, 2)
