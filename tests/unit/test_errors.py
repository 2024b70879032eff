"""Errors cross process borders, whatever they came of."""

import pickle

import pytest

from hyperslab import errors

ALL = [getattr(errors, name) for name in errors.__all__]


class _OnlyHere(Exception):
    def __reduce__(self):
        raise TypeError("this does not pickle")


def raised(kind):
    try:
        try:
            raise _OnlyHere
        except _OnlyHere:
            raise kind("what was wrong") from None
    except kind as error:
        return error


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in (errors.BudgetError, errors.ChunkSizeError)])
def test_errors_pickle_without_what_they_came_of(kind):
    again = pickle.loads(pickle.dumps(raised(kind)))
    assert type(again) is kind
    assert "what was wrong" in str(again)


@pytest.mark.parametrize("kind", [errors.ConflictError, errors.StoreError, errors.ForkError, errors.NotFoundError])
def test_they_do_as_dask_has_them_pickled(kind):
    """Once `distributed` is imported, errors are pickled with their traceback, cause and context."""
    support = pytest.importorskip("tblib.pickling_support")
    make, arguments, *state = support.pickle_exception(raised(kind))
    again = make(*pickle.loads(pickle.dumps(arguments)))
    assert not any(state)
    assert type(again) is kind
    assert again.__context__ is None
