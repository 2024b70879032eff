"""zarr-python and TensorStore read the same stores: all three must agree."""

import importlib
import os
import warnings
from functools import cache

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import Case, assert_same, catalogue, copied, dtype_of, keys, picked, sessions, stored, tries
from support.profiles import times

# zarr-python writes nested structures in v2, but does not read them.
CASES = [case for case in catalogue(times(150, 600)) if not case.layout.startswith("npy") and case.dtype != "deep"]


@pytest.fixture(scope="module")
def opened():
    with sessions() as made:
        yield made


@cache
def open_zarr(case: Case) -> zarr.Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return zarr.open_array(str(stored(case)[0]), mode="r")


def without_ellipsis(key: object, ndim: int) -> tuple:
    """Return the key with one item for every axis."""
    items = list(key) if type(key) is tuple else [key]
    if Ellipsis not in [item for item in items if not isinstance(item, np.ndarray)]:
        items.append(Ellipsis)
    at = next(n for n, item in enumerate(items) if item is Ellipsis)
    items[at : at + 1] = [slice(None)] * (ndim - len(items) + 1)
    return tuple(items)


def as_zarr(item: object) -> object:
    """Return the item of a key as zarr-python takes it: arrays of int64 or bool."""
    if not isinstance(item, list | np.ndarray):
        return item
    item = np.asarray(item)
    return item if item.dtype == bool else item.astype("i8")


@tries(150)
@given(st.data(), st.sampled_from(CASES))
def test_zarr_agrees_on_basic_keys(opened, data, case):
    key = data.draw(keys(case.shape, lists_too=False, new_too=False, forward=True))
    theirs = np.asarray(open_zarr(case)[key])
    for where in (copied(case), stored(case)[0]):
        ours = np.asarray(opened.open(where)[key])
        assert_same(ours if ours.ndim else ours.astype(theirs.dtype), theirs)


@tries(100)
@given(st.data(), st.sampled_from([case for case in CASES if case.shape and all(case.shape)]))
def test_zarr_agrees_on_orthogonal_keys(opened, data, case):
    key = without_ellipsis(data.draw(keys(case.shape, new_too=False, forward=True)), len(case.shape))
    try:
        theirs = np.asarray(open_zarr(case).oindex[tuple(map(as_zarr, key))])
    except IndexError:
        # It refuses empty lists.
        assert 0 in picked(stored(case)[1], key).shape
        return
    for where in (copied(case), stored(case)[0]):
        ours = np.asarray(opened.open(where)[key])
        assert_same(ours if ours.ndim else ours.astype(theirs.dtype), theirs)


# TensorStore reads neither times nor text, and no filters.
THEIRS = [
    case
    for case in CASES
    if dtype_of(case.dtype).kind in "biufc" and case.layout not in ("v2-shuffle", "v2-delta", "v3-v2-keys")
]


@pytest.fixture(scope="module")
def tensorstore():
    if os.environ.get("CI") != "true":
        return pytest.importorskip("tensorstore", reason="TensorStore is not installed: pip install tensorstore")
    return importlib.import_module("tensorstore")


@cache
def open_tensorstore(tensorstore, case: Case):
    driver = "zarr" if case.layout.startswith("v2") else "zarr3"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(stored(case)[0])}}
    return tensorstore.open(spec, read=True).result()


@tries(200)
@given(st.data(), st.sampled_from(THEIRS))
def test_tensorstore_agrees(opened, tensorstore, data, case):
    key = without_ellipsis(data.draw(keys(case.shape, new_too=False, forward=True)), len(case.shape))
    indices = []
    for item, length in zip(key, case.shape, strict=True):
        if isinstance(item, slice):
            cells = np.arange(length)[item]
        else:
            cells = np.asarray(item)
            cells = np.flatnonzero(cells) if cells.dtype == bool else np.where(cells < 0, cells + length, cells)
        indices.append(cells.astype("i8"))
    view = open_tensorstore(tensorstore, case)
    theirs = view.oindex[tuple(indices)].read().result() if indices else view.read().result()
    ours = opened.open(copied(case))[key]
    assert_same(np.asarray(ours).astype(theirs.dtype), np.asarray(theirs))
    assert_same(ours, picked(stored(case)[1], key))
