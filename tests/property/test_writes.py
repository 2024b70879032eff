"""Whatever is assigned to whatever array, however it grows and shrinks: NumPy, and zarr-python, have the same cells."""

import shutil
import tempfile
import warnings
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import (
    DTYPES,
    assert_same,
    catalogue,
    cells,
    dtype_of,
    fields_of,
    fill_of,
    folder,
    keys,
    picked,
    pointwise,
    stored,
    tries,
    with_fields,
)
from support.profiles import times

import hyperslab as hs
from hyperslab.execute import write
from hyperslab.formats.zarr import sizes

# zarr-python cannot open again every structure that it stores in version 2.
FOREIGN = [
    case
    for case in catalogue(times(150, 600))
    if not case.layout.startswith("npy") and not (case.layout.startswith("v2") and dtype_of(case.dtype).names)
]
# zarr-python can make no array of these.
OWN_DTYPES = [name for name in DTYPES if name not in ("grid", "big")]
NUMBERS = ("bool", "int8", "uint16", "int32", "uint64", "float32", "float64")
numbers = count()


@pytest.fixture(scope="module")
def session():
    # A cache, so that what is read after a write could come from it.
    with hs.Session(cache_bytes=1 << 20, retries=0) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def several_lanes():
    """Let small arrays be written by several threads, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_LOCAL_LANES", 3)
        patch.setattr(sizes, "_MOST_CHUNKS", 12)
        yield


@st.composite
def forms(draw):
    """Draw the arguments of `hs.create`, and whether the array is in memory or on disk."""
    shape = tuple(draw(st.lists(st.integers(0, 11), max_size=3)))
    chunks = tuple(draw(st.integers(1, 6)) for _ in shape)
    layout = draw(st.sampled_from(["default", "default", "plain"]))
    shards = tuple(chunk * draw(st.integers(1, 3)) for chunk in chunks)
    dtype = dtype_of(draw(st.sampled_from(OWN_DTYPES)))
    settings = {
        "chunks": chunks,
        "shards": shards if layout == "default" and shape and dtype.kind != "V" and draw(st.booleans()) else None,
        "layout": layout,
        "fill_value": fill_of(dtype, draw(st.sampled_from(["zero", "odd"]))),
    }
    return shape, dtype, settings, draw(st.booleans())


@st.composite
def assignments(draw, shape, dtype):
    """Draw a key, fields, and values of a shape and a type that fit."""
    key, fields = draw(keys(shape)), draw(fields_of(dtype))
    wanted = picked(np.empty(shape, dtype), key, fields)
    out, kind = np.shape(wanted), np.asarray(wanted).dtype
    seed = draw(st.integers(0, 99))
    how = draw(st.sampled_from(["all", "all", "row", "scalar", "leading", "cast"]))
    if how == "cast" and kind.kind in "biuf":
        kind = np.dtype(draw(st.sampled_from(NUMBERS)))
        values = cells(kind, out, seed) if kind.kind not in "f" else np.round(cells(kind, out, seed))
        values = np.abs(values) % 100 if kind.kind != "b" else values
        return key, fields, values.astype(kind)
    if how == "row" and out:
        return key, fields, cells(kind, out[1:], seed)
    if how == "scalar" and kind.names is None:
        return key, fields, cells(kind, (), seed)[()]
    return key, fields, cells(kind, (1, *out) if how == "leading" else out, seed)


def assign(model: np.ndarray, key, fields, values) -> None:
    """Assign to a NumPy array as its own keys cannot: each list chooses along its own axis."""
    places = picked(np.arange(model.size).reshape(model.shape), key)
    flat = model.reshape(-1)
    values = np.asarray(values)
    for name in [fields] if isinstance(fields, str) else fields or [None]:
        part = values[name] if isinstance(fields, list) else values
        part = part[0] if part.ndim > np.ndim(places) else part  # NumPy does not do this for a single cell
        (flat if name is None else flat[name])[places] = part


def assert_stored(array: hs.Array, model: np.ndarray, *, zarr_too: bool = True) -> None:
    """The handle, a new one, and zarr-python give these cells."""
    assert_same(np.asarray(array[...]), model)
    assert_same(np.asarray(array.refresh()[...]), model)
    if zarr_too and array.store.scheme == "file":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of an array without axes it gives a scalar, and a string then has the length of its text.
            assert_same(np.asarray(zarr.open_array(array.url, mode="r")[...], model.dtype), model)


def made(session, form) -> tuple[hs.Array, np.ndarray]:
    """Create an array; return it and what it holds."""
    shape, dtype, settings, on_disk = form
    name = f"array-{next(numbers)}"
    url = f"{folder()}/{name}" if on_disk else f"memory://writes-{next(numbers)}/{name}"
    array = hs.create(url, shape, dtype, session=session, **settings)
    model = np.empty(shape, dtype.newbyteorder("="))
    model[...] = settings["fill_value"]
    return array, model


def discard(array: hs.Array) -> None:
    if array.store.scheme == "file":
        shutil.rmtree(array.url)


@tries(180, soak=30_000)
@given(st.data(), forms())
def test_cells_assigned_to_our_own_arrays(session, data, form):
    array, model = made(session, form)
    for _ in range(data.draw(st.integers(1, 4))):
        key, fields, values = data.draw(assignments(array.shape, model.dtype))
        array[with_fields(key, fields)] = values
        assign(model, key, fields, values)
        if data.draw(st.booleans()):
            assert_same(np.asarray(array[...]), model)
    assert_stored(array, model)
    discard(array)


@tries(80, soak=12_000)
@given(st.data(), st.sampled_from(FOREIGN))
def test_cells_assigned_to_arrays_of_others(session, data, case):
    source, found = stored(case)
    model = found.copy()
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(source, Path(place, "a"))
        array = hs.open(f"{place}/a", mode="r+", session=session)
        for _ in range(data.draw(st.integers(1, 3))):
            key, fields, values = data.draw(assignments(array.shape, model.dtype))
            array[with_fields(key, fields)] = values
            assign(model, key, fields, values)
        assert_stored(array, model)


@tries(60, soak=8000)
@given(st.data(), forms())
def test_points_assigned(session, data, form):
    array, model = made(session, form)
    for _ in range(2):
        points = data.draw(pointwise(array.shape))
        values = cells(
            model.dtype, np.broadcast_shapes(*[np.shape(axis) for axis in points]), data.draw(st.integers(0, 9))
        )
        array.points[points] = values
        model[points] = values
        mask = cells(np.dtype(bool), array.shape, data.draw(st.integers(0, 9)))
        if array.ndim > 1:
            array[mask] = model[mask][::-1]
            model[mask] = model[mask][::-1]
    assert_stored(array, model)
    discard(array)


@tries(100, soak=15_000)
@given(st.data(), forms())
def test_arrays_that_grow_and_shrink(session, data, form):
    array, model = made(session, form)
    attrs = {}
    if data.draw(st.booleans()):
        array.seal()
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(["assign", "resize", "resize", "append", "attrs", "seal", "reopen"]))
        if step == "assign":
            key, fields, values = data.draw(assignments(array.shape, model.dtype))
            array[with_fields(key, fields)] = values
            assign(model, key, fields, values)
        elif step == "resize":
            shape = tuple(data.draw(st.integers(0, 14)) for _ in array.shape)
            array.resize(shape)
            model = resized(model, shape, form[2]["fill_value"])
        elif step == "append" and array.shape:
            axis = data.draw(st.integers(0, array.ndim - 1))
            more = list(array.shape)
            more[axis] = data.draw(st.integers(0, 7))
            values = cells(model.dtype, tuple(more), data.draw(st.integers(0, 9)))
            array.append(values, axis)
            model = np.concatenate([model, values], axis, dtype=model.dtype)
        elif step == "attrs":
            name = data.draw(st.sampled_from("abc"))
            array.attrs[name] = attrs[name] = data.draw(st.integers(0, 9))
        elif step == "seal":
            array.seal()
        else:
            array = hs.open(array.url, mode="r+", session=session)
        assert array.shape == model.shape
    assert_stored(array, model)
    assert array.refresh().attrs == attrs
    discard(array)


@tries(50, soak=7000)
@given(st.data(), st.sampled_from([case for case in FOREIGN if case.shape and "v3-v2" not in case.layout]))
def test_arrays_of_others_that_grow_and_shrink(session, data, case):
    source, found = stored(case)
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(source, Path(place, "a"))
        array, model = hs.open(f"{place}/a", mode="r+", session=session), found.copy()
        fill = array.fill_value
        for _ in range(data.draw(st.integers(1, 3))):
            if data.draw(st.booleans()):
                shape = tuple(data.draw(st.integers(0, 14)) for _ in array.shape)
                array.resize(shape)
                model = resized(model, shape, fill)
            else:
                values = cells(model.dtype, (3, *array.shape[1:]), data.draw(st.integers(0, 9)))
                array.append(values)
                model = np.concatenate([model, values], dtype=model.dtype)
        assert_stored(array, model)


def resized(model: np.ndarray, shape: tuple[int, ...], fill: object) -> np.ndarray:
    grown = np.empty(shape, model.dtype)
    grown[...] = fill
    both = tuple(slice(0, min(pair)) for pair in zip(model.shape, shape, strict=True))
    grown[both] = model[both]
    return grown


@tries(60)
@given(forms(), st.integers(0, 9))
def test_saved_and_copied_arrays(session, form, seed):
    shape, dtype, settings, _ = form
    values = cells(dtype, shape, seed)
    model = np.asarray(values.astype(dtype.newbyteorder("=")))
    base = f"{folder()}/saved-{next(numbers)}"
    saved = hs.save(base, values, session=session, **settings)
    assert saved.source.layout.complete
    assert_stored(saved, model)
    copied = hs.copy(saved, base + "-copy", session=session)
    assert copied.source.layout.complete
    assert_stored(copied, model)
    shutil.rmtree(base)
    shutil.rmtree(base + "-copy")
