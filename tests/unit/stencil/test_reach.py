import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.stencil import Reach


def test_least_reach_holds_its_offsets():
    reach = Reach.of_offsets([(0, -2), (3, 1), (-1, 0)], ndim=2)
    assert reach == Reach((1, 2), (3, 1))
    assert reach.holds((3, -2))
    assert not reach.holds((4, 0))
    assert not reach.holds((0, -3))


def test_offsets_on_one_side_need_no_halo_on_the_other():
    assert Reach.of_offsets([(2, 5)], ndim=2) == Reach((0, 0), (2, 5))


def test_union_covers_both():
    one, other = Reach((0, 4), (1, 0)), Reach((2, 0), (0, 3))
    both = one.union(other)
    assert both.covers(one)
    assert both.covers(other)
    assert not one.covers(other)
    assert Reach.zero(2).union(one) == one


@pytest.mark.parametrize(
    ("given", "reach"),
    [
        (2, Reach((2, 2), (2, 2))),
        ((1, 3), Reach((1, 3), (1, 3))),
        (((0, 1), 2), Reach((0, 2), (1, 2))),
        (Reach((1, 0), (0, 1)), Reach((1, 0), (0, 1))),
    ],
)
def test_users_write_a_halo_in_several_forms(given, reach):
    assert Reach.of(given, 2) == reach


@pytest.mark.parametrize("given", [(1, 2, 3), ((1, 2, 3), 1), Reach.zero(3), -1])
def test_wrong_halo_is_refused(given):
    with pytest.raises(InvalidInputError):
        Reach.of(given, 2)


def test_padded_shape_counts_strides():
    assert Reach((1,), (2,)).padded((4,), stride=(3,)) == (13,)
    assert Reach((1,), (2,)).padded((0,)) == (0,)
