"""What reads touch along each axis, against counting one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.selection import parse, parse_points
from hyperslab.tune.reads import reads_of


def _counted(cells, unit, per_object, gap):
    """Return (units, objects, span, widest, runs, run_units) of the cells of one read, the slow way."""
    units = sorted({cell // unit for cell in cells})
    by_object: dict[int, list[int]] = {}
    for each in units:
        by_object.setdefault(each // per_object, []).append(each)
    spans = [mine[-1] - mine[0] + 1 for mine in by_object.values()]
    runs = []
    for mine in by_object.values():
        start = last = mine[0]
        for each in mine[1:]:
            if each - last > gap + 1:
                runs.append(last - start + 1)
                start = each
            last = each
        runs.append(last - start + 1)
    return len(units), len(by_object), sum(spans), max(spans), len(runs), sum(runs)


@given(
    st.lists(st.lists(st.integers(0, 199), min_size=1, max_size=20, unique=True), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(1, 8),
    st.integers(0, 4),
)
def test_lists_are_counted_exactly(lists, unit, per_object, gap):
    reads = reads_of((200,), [parse((sorted(cells),), (200,)) for cells in lists])
    kept = list(dict.fromkeys(tuple(sorted(cells)) for cells in lists))
    reach = reads.reach(0, unit, per_object, gap)
    columns = (reach.units, reach.objects, reach.span, reach.widest, reach.runs, reach.run_units)
    assert [tuple(int(column[i]) for column in columns) for i in range(len(reads))] == [
        _counted(cells, unit, per_object, gap) for cells in kept
    ]


@given(st.integers(0, 150), st.integers(1, 50), st.integers(1, 30), st.integers(1, 8))
def test_runs_of_cells_are_counted_exactly(start, count, unit, per_object):
    reads = reads_of((200,), [parse((slice(start, start + count),), (200,))])
    reach = reads.reach(0, unit, per_object)
    columns = (reach.units, reach.objects, reach.span, reach.widest, reach.runs, reach.run_units)
    assert tuple(int(column[0]) for column in columns) == _counted(range(start, start + count), unit, per_object, 0)


@given(st.integers(0, 20), st.integers(1, 12), st.integers(1, 15), st.integers(1, 20), st.integers(1, 5))
def test_steps_touch_as_many_units_and_objects_as_they_do(start, count, step, unit, per_object):
    stop = start + (count - 1) * step + 1
    reads = reads_of((200,), [parse((slice(start, stop, step),), (200,))])
    reach = reads.reach(0, unit, per_object)
    columns = (reach.units, reach.objects, reach.span, reach.widest, reach.runs, reach.run_units)
    assert tuple(int(column[0]) for column in columns) == _counted(range(start, stop, step), unit, per_object, 0)


def test_equal_reads_are_counted_once_with_their_weight():
    reads = reads_of(
        (20, 30), [parse(key, (20, 30)) for key in (np.s_[0:10, 5], np.s_[0:10, 5], np.s_[3, ::4], np.s_[0:0])]
    )
    assert len(reads) == 2
    assert reads.total == 3
    assert reads.weights.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert reads.mean(reads.cells) == pytest.approx((2 * 10 + 8) / 3)


def test_a_sample_keeps_lists_with_their_reads():
    keys = [np.s_[[i, i + 3, i + 9]] if i % 2 else np.s_[i : i + 5] for i in range(50)]
    reads = reads_of((200,), [parse(key, (200,)) for key in keys])
    some = reads.sample(7)
    assert len(some) == 7
    assert some.weights.sum() == pytest.approx(1)
    chosen = np.unique(np.linspace(0, 49, 7).astype(int))
    expected = [_counted(np.arange(200)[keys[i]].tolist(), 4, 2, 0)[:3] for i in chosen]
    reach = some.reach(0, 4, 2)
    assert list(zip(reach.units.tolist(), reach.objects.tolist(), reach.span.tolist(), strict=True)) == expected


def test_points_stand_for_single_cells():
    points = parse_points((np.arange(100), np.arange(100)), (200, 200))
    reads = reads_of((200, 200), [points])
    assert len(reads) == 32
    assert reads.total == 1
    assert reads.cells.tolist() == [1] * 32


def test_a_read_of_another_array_is_refused():
    with pytest.raises(InvalidInputError, match="2 axes; this one has 3"):
        reads_of((4, 4, 4), [parse(0, (4, 4))])


@pytest.mark.parametrize("hot", [1, 8, 64])
def test_variety_is_about_the_objects_that_reads_go_to(hot):
    rng = np.random.default_rng(3)
    places = rng.permutation(64)[:hot]
    keys = [np.s_[10 * int(rng.choice(places)) + int(rng.integers(10))] for _ in range(400)]
    reads = reads_of((640,), [parse(key, (640,)) for key in keys])
    assert reads.variety((10,)) == pytest.approx(hot, rel=0.4)
