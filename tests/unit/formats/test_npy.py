"""`.npy` files in place, good ones and bad ones."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as numpy_format
from support.whole_reads import DictReader, read_whole

from hyperslab.errors import HyperslabError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats import ArraySource, open_source

DTYPES = [
    "?", "i1", "<u2", ">i4", "f2", "f4", ">f8", "c8", "M8[ns]", ">m8[10s]", "U3", "S5", "V4",
    [("a", "<i4"), ("b", ">f8", (2, 2)), ("c", [("d", "S3")])],
    {"names": ["a", "b"], "formats": ["i4", "i1"], "offsets": [0, 9], "itemsize": 16},
]  # fmt: skip


def saved(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    numpy_format.write_array(file, array, version=version)
    return file.getvalue()


def raw(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text + data


def opened(data: bytes, path: str = "d/a.npy") -> tuple[DictReader, ArraySource]:
    reader = DictReader({path: data})
    source = open_source(reader, f"memory:///{path}", path)
    assert isinstance(source, ArraySource)
    return reader, source


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_what_numpy_saved(dtype, shape, order):
    dtype = np.dtype(dtype)
    most = 2 if dtype.kind == "b" else 100
    cells = np.random.default_rng(0).integers(0, most, (*shape, dtype.itemsize), "u1")
    if dtype.kind == "U":
        cells[...] = 0
    array = np.asarray(cells.view(dtype).reshape(shape), order=order)
    reader, source = opened(saved(array))
    assert (source.layout.dtype, source.layout.shape, source.format) == (dtype, shape, "npy")
    assert not source.layout.sparse
    found = read_whole(reader, source) if array.size else np.empty(shape, source.layout.dtype)
    assert found.tobytes() == array.tobytes() or dtype.isbuiltin == 0
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(version):
    array = np.arange(6).reshape(2, 3)
    reader, source = opened(saved(array, version))
    np.testing.assert_array_equal(read_whole(reader, source), array)
    assert source.layout.keys.key((0, 0)) == "d/a.npy"
    assert source.layout.base % 64 == 0


def test_a_long_header_takes_a_second_request():
    dtype = np.dtype([(f"a_rather_long_name_of_a_field_{n}", "i4") for n in range(200)])
    array = np.zeros(2, dtype)
    reader, source = opened(saved(array))
    assert reader.asked == ["d/a.npy"] * 2
    assert source.layout.dtype == dtype


def test_found_by_its_first_bytes():
    _, source = opened(saved(np.arange(3)), "data/no-suffix")
    assert source.format == "npy"


def test_more_bytes_than_needed_are_fine():
    reader, source = opened(saved(np.arange(3)) + b"more")
    np.testing.assert_array_equal(read_whole(reader, source), np.arange(3))


def test_objects_are_never_unpickled():
    file = io.BytesIO()
    np.save(file, np.array([{}, []], object), allow_pickle=True)
    with pytest.raises(UnsupportedError, match="unpickled"):
        opened(file.getvalue())
    for descr in ("'|O'", "[('a', '|O')]", "[('a', [('b', 'O')])]", "'T'"):
        with pytest.raises((UnsupportedError, MetadataError)):
            opened(raw(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}", b" " * 99))


@pytest.mark.parametrize("keep", [6, 9, 11, 20, 127, 128, 150])
def test_cut_off_files(keep):
    with pytest.raises(IntegrityError, match="cut off"):
        opened(saved(np.arange(10.0))[:keep])


@pytest.mark.parametrize(
    "header",
    [
        "", "{}", "[]", "x", "__import__('os')", "{'descr': '<i4', 'fortran_order': False}",
        "(" * 5000 + ")" * 5000,
        "[" * 30000, "-" * 60000 + "1", "1" + "+1" * 20000, "1" + "j+1" * 20000, "~" * 60000 + "1",
        "not " * 15000 + "1",
        "{'descr': '<i4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1.5,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2**62,)}",
        f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({2**62}, 4)}}",
        f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({'1,' * 100})}}",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': 5, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': None, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [1], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), 'more': 1}", "'\\ud800'", "{'descr': {}}",
        "a.b", "f(x)",
        "{'descr': ('<i4', (3,)), 'fortran_order': False, 'shape': (1,)}", "\0", "{1: 2, **{}}",
    ],
    ids=lambda header: header[:40],
)  # fmt: skip
def test_headers_that_are_wrong(header):
    data = raw(header, version=b"\x02\x00")
    with pytest.raises((MetadataError, UnsupportedError)):
        opened(data + b"\0" * 64)


def test_a_header_that_claims_gigabytes():
    with pytest.raises(MetadataError, match="header"):
        opened(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100)
    with pytest.raises(IntegrityError, match="cut off"):
        opened(raw(f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({2**50},)}}"))


def test_versions_to_come_are_named():
    with pytest.raises(UnsupportedError, match=r"4\.0"):
        opened(b"\x93NUMPY\x04\x00" + b" " * 100)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_files_give_an_array_or_a_typed_error(data):
    good = bytearray(saved(np.arange(12, dtype="<i4").reshape(3, 4)))
    for at in data.draw(st.lists(st.integers(0, 127), min_size=1, max_size=4)):
        good[at] = data.draw(st.integers(0, 255))
    try:
        reader, source = opened(bytes(good))
        if source.layout.nbytes < 10_000:
            read_whole(reader, source)
    except HyperslabError:
        pass
