"""Work on several threads: every part once, errors as they were raised, also from threads and in forked children."""

import os
import threading

import pytest
from support.forking import in_child

from hyperslab.execute.threads import on_threads


def squares(parts, threads):
    return on_threads(lambda part: part * part, parts, threads)


@pytest.mark.parametrize(("parts", "threads"), [(0, 2), (1, 2), (7, 1), (7, 2), (50, 8)])
def test_every_part_is_done_once(parts, threads):
    assert squares(parts, threads) == [part * part for part in range(parts)]


def test_an_error_arrives_whoever_it_was_raised_by():
    both = threading.Barrier(2, timeout=60)

    def work(part):
        both.wait()
        if part == 1:
            raise KeyError("one")
        return part

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor")
    with pytest.raises(KeyError, match="one"):
        on_threads(work, 2, 2)
    assert squares(4, 2) == [0, 1, 4, 9]


def test_work_may_have_parts_of_its_own():
    assert on_threads(lambda part: sum(squares(part + 3, 4)), 6, 4) == [
        sum(n * n for n in range(k + 3)) for k in range(6)
    ]


def test_a_forked_child_has_threads_of_its_own():
    """Those of its parent are not there: whoever waited for them would wait forever."""
    squares(8, 2)
    assert in_child(lambda: squares(8, 2)) == squares(8, 2)
