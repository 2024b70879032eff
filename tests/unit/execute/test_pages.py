"""Pages of arrays are had in steps, and nothing in them changes."""

import sys
from mmap import PAGESIZE
from resource import RUSAGE_SELF, getrusage

import numpy as np
import pytest

from hyperslab.execute import pages

MIB = 1 << 20


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (PAGESIZE,), (130, PAGESIZE), (3 * MIB + 1,)])
def test_nothing_changes(shape):
    cells = np.full(shape, 7, np.uint8)
    steps = sum(1 for _ in pages.had(cells))
    assert steps <= -(-cells.nbytes // MIB)
    assert (cells == 7).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pages beforehand")
def test_pages_are_there_afterwards():
    cells = np.empty(3 * MIB, np.uint8)
    if not list(pages.had(cells)):
        pytest.skip("Linux does so from 5.14 on")
    before = getrusage(RUSAGE_SELF).ru_minflt
    cells[PAGESIZE:-PAGESIZE:PAGESIZE] = 1
    assert getrusage(RUSAGE_SELF).ru_minflt - before < cells.nbytes // PAGESIZE // 4


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::2], np.s_[:, 1]])
def test_parts_of_other_arrays_are_left_alone(view):
    assert not list(pages.had(np.ones((5000, 300))[view]))


def test_no_more_is_had_than_what_is_waited_for(monkeypatch):
    asked = []
    monkeypatch.setattr(pages, "_populate", lambda: lambda start, nbytes, advice: asked.append(nbytes))
    monkeypatch.setattr(pages, "_MOST_BYTES", 2 * MIB)
    assert 2 <= sum(1 for _ in pages.had(np.empty(9 * MIB, np.uint8))) <= 3
    assert 2 * MIB - 2 * PAGESIZE <= sum(asked) <= 2 * MIB


@pytest.mark.parametrize("populate", [None, lambda start, nbytes, advice: -1])
def test_a_system_that_cannot_is_no_error(monkeypatch, populate):
    monkeypatch.setattr(pages, "_populate", lambda: populate)
    assert not list(pages.had(np.empty(3 * MIB, np.uint8)))
