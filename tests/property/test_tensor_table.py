"""Whatever is put into a table comes back, whole and in slices, from every layout; whatever changes, NumPy agrees."""

import tempfile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

import hyperslab as hs
from hyperslab.tensors import Coo, storing, tensor_table
from hyperslab.tensors.layouts import LAYOUTS

DTYPES = ["f2", "f4", "f8", "i1", "i8", "u2", "u8", "?", "c8", "c16", ">i4"]


@st.composite
def tensors(draw):
    """An array with few or many cells that are not zero, of a shape that may have no cells at all."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    values = rng.integers(1, draw(st.sampled_from([2, 4, 120])), shape).astype(dtype)
    return np.where(rng.random(shape) < density, values, np.zeros((), dtype)).astype(dtype)


@st.composite
def keys(draw, shape):
    parts = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        if n and draw(st.booleans()):
            parts.append(draw(st.integers(-n, n - 1)))
        else:
            ends = st.none() | st.integers(-n - 2, n + 2)
            parts.append(slice(draw(ends), draw(ends), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@settings(max_examples=times(25))
@given(x=tensors(), layout=st.sampled_from(["auto", *LAYOUTS]), as_sparse=st.booleans(), data=st.data())
def test_tensors_come_back(x, layout, as_sparse, data):
    given_x = (
        Coo.of(x.shape, np.array(np.nonzero(x)).reshape(x.ndim, -1), x[np.nonzero(x)]) if as_sparse and x.ndim else x
    )
    with tempfile.TemporaryDirectory() as folder, hs.Session() as session:
        table = tensor_table(folder + "/t", session=session)
        id = table.put(given_x, layout=layout)
        for each in (table, tensor_table(folder + "/t", session=hs.Session())):
            assert each[id].shape == x.shape
            assert each[id].dtype == x.dtype
            whole = each.get(id)
            assert isinstance(whole, Coo) == isinstance(given_x, Coo)
            assert np.array_equal(each.get(id, "numpy"), x)
            for _ in range(3):
                key = data.draw(keys(x.shape))
                found = each[id].read("numpy", key)
                assert np.asarray(found).shape == x[key].shape
                assert np.array_equal(found, x[key])


@settings(max_examples=times(10))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "put", "many", "delete", "optimize", "open"]), st.integers(0, 7)),
        min_size=3,
        max_size=9,
    ),
    small=st.booleans(),
)
def test_tables_are_mappings(steps, small):
    """Puts, deletions and optimizing in any order leave what a dict would have; every version stays as it was."""
    before = storing.SMALL_BYTES, storing.MANY_GROUPS
    storing.SMALL_BYTES, storing.MANY_GROUPS = (0, 2) if small else before
    expected, versions = {}, {}
    try:
        with tempfile.TemporaryDirectory() as folder, hs.Session() as session:
            table = tensor_table(folder + "/t", session=session)
            for step, (kind, n) in enumerate(steps):
                table = _change(table, expected, step, kind, n, session)
                versions[table.version] = dict(expected)
                _check(table, expected)
            for number, then in versions.items():
                if number is not None:
                    _check(table.at(version=number), then)
    finally:
        storing.SMALL_BYTES, storing.MANY_GROUPS = before


def _change(table, expected, step, kind, n, session):
    if kind == "put":
        expected[f"t{n}"] = x = np.arange(step, step + 6 * n).reshape(n, 6)
        table.put(x, id=f"t{n}", overwrite=True, layout="ftsf", chunk_dims=1, rows=1)
    elif kind == "many":
        more = {f"t{m}": np.full(m + 1, step + 1) for m in range(n)}
        expected.update(more)
        table.put_many(more, overwrite=True, layout="ftsf")
    elif kind == "delete" and f"t{n}" in expected:
        del expected[f"t{n}"]
        table.delete(f"t{n}")
    elif kind == "optimize":
        table.optimize()
    elif kind == "open":
        return tensor_table(table.url, session=session)
    return table


def _check(table, expected):
    assert list(table) == sorted(expected)
    for id, x in expected.items():
        assert np.array_equal(table.get(id), x)
