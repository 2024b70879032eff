"""Sparse tensors as blocks. Figures 7, 8 and 9 of the Delta Tensor paper are among the examples."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tensor_rows import flipped, read_back, rows_of, speckled

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors import layouts
from hyperslab.tensors.layouts import block_reading, bsgs, prefix, prune
from hyperslab.tensors.layouts.encoded import row_checksums
from hyperslab.tensors.values import Coo, Header


def decode_by_the_book(header, rows):
    """Return the cells of all blocks, read bit by bit as the documentation of the layout has it."""
    given, cells = header.parameters, {}
    block, inner, direct = given["block"], given["inner"], given["direct"]
    volume = int(np.prod(block))
    palette = None if given["palette"] is None else np.frombuffer(bytes.fromhex(given["palette"]), header.dtype)
    escape_bits = 0 if palette is None or len(palette) <= direct else (len(palette) - 1).bit_length()
    for row in rows.to_pylist():
        bits = "".join(f"{byte:08b}"[::-1] for byte in row["payload"])
        at, place = 0, -1
        density = max(volume // row["count"], 1).bit_length() // given["octaves"]
        for _ in range(row["count"]):
            symbol, at = next_symbol(given["codes"][str(density)], bits, at)
            distance, value = divmod(symbol, direct)
            if distance >= 8:
                n = (distance - 8) // 4 + 1
                distance, at = ((4 + distance % 4) << n) + int(bits[at : at + n][::-1], 2), at + n
            place += distance + 1
            if palette is not None:
                if escape_bits and value == direct - 1:
                    value, at = int(bits[at : at + escape_bits][::-1], 2), at + escape_bits
                found = palette[value]
            else:
                raw = []
                for plane in given["planes"]:
                    byte, at = (int(plane[1:], 16), at) if plane[0] == "=" else next_symbol(plane, bits, at)
                    raw.append(byte)
                found = np.frombuffer(bytes(raw), header.dtype)[0]
            rest, cell = place, [row[f"i{axis}"] * side for axis, side in enumerate(block)]
            for axis in reversed(inner):
                cell[axis] += rest % block[axis]
                rest //= block[axis]
            cells[tuple(cell)] = found
        assert len(bits) - at < 8
    return cells


def next_symbol(lengths, bits, at):
    """Return the symbol whose canonical code comes next."""
    by_length = sorted((int(digit, 16), symbol) for symbol, digit in enumerate(lengths) if digit != "0")
    code, last = -1, by_length[0][0]
    for length, symbol in by_length:
        code = (code + 1) << (length - last)
        last = length
        if bits[at : at + length] == f"{code:0{length}b}":
            return symbol, at + length
    raise AssertionError("no code fits")


def test_figure_7_blocks_of_a_matrix():
    x = np.zeros((4, 6))
    x[0:2, 0:3] = [[1, 2, 0], [0, 3, 0]]
    x[2:4, 0:3] = [[0, 0, 4], [5, 0, 0]]
    x[2:4, 3:6] = [[6, 0, 0], [0, 0, 7]]
    header, rows = rows_of(x, "bsgs", block=(2, 3))
    assert [rows.column(name).to_pylist() for name in ("i0", "i1", "count")] == [[0, 1, 1], [0, 0, 1], [3, 2, 2]]
    np.testing.assert_array_equal(read_back(header, rows), x)


def test_figures_8_and_9_blocks_of_a_tensor():
    x = np.zeros((3, 4, 2))
    x[0, 0:2, 0], x[0, 0:2, 1], x[1, 2:4, 0], x[2, 0:2, 1] = [1, 2], [3, 0], [4, 5], [6, 7]
    header, rows = rows_of(x, "bsgs", block=(1, 2, 1))
    assert header.parameters["block"] == [1, 2, 1]
    indices = list(zip(*(rows.column(f"i{axis}").to_pylist() for axis in range(3)), strict=True))
    assert indices == [(0, 0, 0), (0, 0, 1), (1, 1, 0), (2, 0, 1)]
    assert rows.column("count").to_pylist() == [2, 1, 2, 2]
    first = Box((0, 0, 0), (1, 4, 2))
    assert prune(header, first) == [{"i0": (0, 0), "i1": (0, 1), "i2": (0, 1)}]
    np.testing.assert_array_equal(read_back(header, rows.slice(0, 2), first), x[:1])


@pytest.mark.parametrize("box", [Box((1, 1), (2, 5)), Box((3, 0), (7, 4)), Box((0, 2), (11, 3)), Box((10, 6), (11, 7))])
def test_blocks_that_a_slice_cuts_are_cut_right(box):
    x = speckled((11, 7), 50)
    header, rows = rows_of(x, "bsgs", block=(4, 3), inner=(1, 0))
    np.testing.assert_array_equal(read_back(header, rows, box), x[box.slices])


@pytest.mark.parametrize(
    "values",
    [
        np.full(300, 2.5),
        np.arange(300) % 3,
        np.arange(300) % 40,
        np.arange(300, dtype=">i8") * 10**15,
        np.random.default_rng(1).normal(size=300).astype("f4"),
        np.random.default_rng(1).normal(size=300) + 1j,
    ],
    ids=["one value", "few values", "a palette with an escape", "whole numbers", "floats", "complex"],
)
def test_payload_is_what_the_documentation_says(values):
    rng = np.random.default_rng(0)
    places = np.sort(rng.choice(50 * 80 * 3, 300, replace=False))
    x = Coo.of((50, 80, 3), np.array(np.unravel_index(places, (50, 80, 3))), values + 1)
    header, rows = rows_of(x, "bsgs", block=(25, 64, 3), inner=(2, 0, 1))
    expected = {tuple(cell): value for cell, value in zip(x.coords.T.tolist(), x.values, strict=True)}
    assert decode_by_the_book(header, rows) == expected
    np.testing.assert_array_equal(read_back(header, rows), x.to_dense())


def test_blocks_of_other_densities_have_other_codes():
    rng = np.random.default_rng(0)
    x = np.zeros((64, 128, 128), "u1")
    x[:32][rng.random((32, 128, 128)) < 0.2] = 1
    x[32:][rng.random((32, 128, 128)) < 0.001] = 2
    header, rows = rows_of(x, "bsgs", block=(8, 32, 32))
    assert len(header.parameters["codes"]) > 1
    np.testing.assert_array_equal(read_back(header, rows), x)


@pytest.mark.parametrize("shape", [(2**40, 2**20), (2**62,), (3, 2**55)])
def test_vast_and_nearly_empty_tensors(shape):
    rng = np.random.default_rng(0)
    coords = np.array([rng.integers(0, n, 200) for n in shape])
    x = Coo.of(shape, coords, rng.normal(size=200))
    header, rows = rows_of(x, "bsgs", block=tuple(min(n, 2**20) for n in shape))
    box = Box(tuple(n // 4 for n in shape), tuple(n // 2 + 1 for n in shape))
    from hyperslab.tensors.layouts import decode

    found, expected = decode(header, rows, box), x.cut(box)
    np.testing.assert_array_equal(found.coords, expected.coords)
    np.testing.assert_array_equal(found.values, expected.values)
    assert decode(header, rows, Box((0,) * len(shape), shape)).nnz == x.nnz


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5, 4)])
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_tensors_without_stored_cells(shape, dtype):
    header, rows = rows_of(np.zeros(shape, dtype), "bsgs", block=(2,) * max(1, len(shape)))
    assert rows.num_rows == 0
    found = read_back(header, rows)
    assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
    assert not found.any()


@pytest.mark.parametrize("column", ["i0", "i1", "count", "nbytes", "crc", "payload"])
def test_flipped_bit_is_an_error(column):
    header, rows = rows_of(speckled((30, 40), 200), "bsgs", block=(16, 16))
    with pytest.raises(IntegrityError):
        read_back(header, flipped(rows, column, row=1))


def test_missing_block_is_an_error():
    header, rows = rows_of(speckled((30, 40), 200), "bsgs", block=(16, 16))
    with pytest.raises(IntegrityError, match="200 cells"):
        read_back(header, rows.slice(1))


def forged(rows, payloads):
    """Return rows with other payloads and checksums that hold."""
    from hyperslab.tensors.layouts.encoded import row_checksums

    names = [name for name in rows.column_names if name not in ("crc", "payload")]
    numbers = [rows.column(name).to_numpy() for name in names]
    ends = np.cumsum([0, *map(len, payloads)])
    crc = row_checksums(numbers, np.frombuffer(b"".join(payloads), np.uint8), ends[:-1], ends[1:])
    return pa.table([*numbers, crc, pa.array(payloads)], names=[*names, "crc", "payload"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("box", [None, Box((3, 5), (21, 33)), Box((17, 0), (18, 40))], ids=["all", "box", "line"])
@pytest.mark.parametrize("kind", ["palette", "bytes"])
def test_stream_of_anything_ends_with_an_error_or_cells_of_the_block(seed, box, kind):
    x = speckled((30, 40), 200)
    if kind == "bytes":
        x[x != 0] = np.random.default_rng(9).normal(size=200)
    header, rows = rows_of(x, "bsgs", block=(16, 16))
    rng = np.random.default_rng(seed)
    payloads = [rng.integers(0, 256, len(each), np.uint8).tobytes() for each in rows.column("payload").to_pylist()]
    try:
        found = read_back(header, forged(rows, payloads), box)
    except IntegrityError:
        return
    assert np.count_nonzero(found) <= 200


@pytest.mark.parametrize("order", [[1, 0, 2, 3, 4, 5], [0, 1, 1, 2, 3, 4], [0, 1, 2, 2, 4, 5]], ids=str)
def test_blocks_that_are_not_in_order_or_there_twice_are_an_error(order):
    header, rows = rows_of(np.ones((30, 40), "u1"), "bsgs", block=(16, 16))
    assert len(rows) == 6
    with pytest.raises(IntegrityError):
        read_back(header, rows.take(order))


@pytest.mark.parametrize("block", [(1, 2**33), (3, 2**31), (3, 2**30)])
@pytest.mark.parametrize("values", [np.arange(400) % 5 + 1, np.arange(400) * 0.1 + 1], ids=["palette", "bytes"])
def test_blocks_of_billions_of_cells_are_cut_right(block, values):
    rng, shape = np.random.default_rng(3), (3, 2**34)
    x = Coo.of(shape, np.array([rng.integers(0, n, 400) for n in shape]), values)
    header, rows = rows_of(x, "bsgs", block=block)
    from hyperslab.tensors.layouts import decode

    for box in (Box((0, 0), shape), Box((1, 2**32 + 5), (2, 2**33)), Box((0, 7), (3, 2**31 + 1))):
        found, expected = decode(header, rows, box), x.cut(box)
        np.testing.assert_array_equal(found.coords, expected.coords)
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.timeout(600)
def test_checksums_are_the_same_without_an_instruction_for_them(tmp_path):
    code = """
from hyperslab.tensors.layouts import compiling
compiling.HAS_CRC = False
import google_crc32c, numpy as np
from hyperslab.tensors.layouts import unpacking
data = np.random.default_rng(0).integers(0, 256, 100, np.uint8)
starts, stops = np.array([0, 3, 40, 77]), np.array([0, 40, 77, 100])
numbers, found = np.array([[5, -1, 2**40, 0], [0, 0, 0, 0]]), np.zeros(4, np.int64)
unpacking.checksums(numbers, data, starts, stops, 0, 4, unpacking.CHECKSUM_TABLES, found)
for row in range(4):
    assert found[row] == google_crc32c.value(numbers[0, row].tobytes() + data[starts[row] : stops[row]].tobytes())
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=500)


@pytest.mark.parametrize(
    "wrong", [{"block": (2,)}, {"inner": (0, 0)}, {"block": (1, 1), "inner": (0,)}], ids=["axes", "twice", "few"]
)
def test_blocks_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        rows_of(np.eye(3), "bsgs", **wrong)
    with pytest.raises(InvalidInputError, match="too large"):
        rows_of(Coo.of((2**30, 2**30), [[1], [1]], np.ones(1)), "bsgs", block=(2**30, 2**30))


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": [0, 3]},
        {"block": None},
        {"inner": [1, 1]},
        {"direct": 900},
        {"palette": ""},
        {"palette": "zz"},
        {"octaves": 0},
        {"codes": {"0": "1" * 9}},
        {"codes": {"0": "x"}},
        {"planes": ["=00"]},
    ],
    ids=str,
)
def test_header_that_lies_is_an_error(wrong):
    header, rows = rows_of(np.eye(3), "bsgs", block=(3, 3))
    lying = Header("x", "bsgs", header.shape, header.dtype, header.fill, {**header.parameters, **wrong})
    with pytest.raises(MetadataError):
        read_back(lying, rows)


def test_codes_are_as_short_as_huffmans_and_none_is_longer_than_twelve_bits():
    rare = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584])
    lengths = prefix.lengths_of(rare)
    assert lengths.max() == prefix.MOST_BITS
    assert (2.0**-lengths).sum() == 1
    assert (np.diff(lengths) <= 0).all()
    assert prefix.lengths_of(np.array([4, 2, 1, 1])).tolist() == [1, 2, 3, 3]
    assert prefix.lengths_of(np.array([0, 7])).tolist() == [0, 1]


def test_all_codes_are_found_in_the_table():
    lengths = prefix.lengths_of(np.random.default_rng(0).integers(0, 50, 300) ** 3)
    table = prefix.decode_table(prefix.lengths_to_text(lengths))
    for symbol in np.flatnonzero(lengths):
        length = lengths[symbol]
        code = prefix.codes(lengths)[symbol]
        assert (table[code :: 1 << length] == (symbol << 4 | length)).all()


@given(
    shape=st.tuples(*[st.integers(1, 12)] * 3),
    share=st.floats(0, 0.9),
    block=st.tuples(*[st.integers(1, 6)] * 3),
    inner=st.permutations(range(3)),
    processors=st.integers(2, 5),
    palette=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows_are_the_same_however_many_threads_write_them(shape, share, block, inner, processors, palette, seed):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(shape) < share, rng.integers(1, 4, shape) if palette else rng.random(shape), 0)
    parameters = {"block": block, "inner": tuple(inner)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_reading, "processors", lambda: 1)
        header, rows = rows_of(x, "bsgs", **parameters)
        patch.setattr(block_reading, "processors", lambda: processors)
        patch.setattr(block_reading, "_CELLS_FOR_THREADS", 1)
        again, others = rows_of(x, "bsgs", **parameters)
        assert (again.parameters, others) == (header.parameters, rows)
        assert np.array_equal(read_back(again, others), x)


def with_numbers(rows, **numbers):
    """Return one row with other numbers, and the checksum that goes with them."""
    row = {**rows.to_pylist()[0], **numbers}
    payload = np.frombuffer(row["payload"], np.uint8)
    whole = [np.array([row[name]], np.int64) for name in rows.schema.names if name not in ("crc", "payload")]
    row["crc"] = int(row_checksums(whole, payload, np.array([0]), np.array([len(payload)]))[0])
    return pa.Table.from_pylist([row], rows.schema)


@pytest.mark.parametrize("seed", range(5))
def test_palettes_of_which_every_value_needs_more_bits(seed, monkeypatch):
    monkeypatch.setattr(bsgs, "MOST_DIRECT", 1)
    x = speckled((12, 9, 10), 300, seed=seed)
    header, rows = rows_of(x, "bsgs", block=(2, 9, 10))
    assert (header.parameters["direct"], len(header.parameters["palette"])) == (1, 4 * 8)
    assert np.array_equal(read_back(header, rows), x)
    box = Box((3, 2, 1), (12, 5, 9))
    assert np.array_equal(read_back(header, rows, box), x[3:12, 2:5, 1:9])


@pytest.mark.parametrize("count", [3, 6])
def test_cells_after_the_last_of_a_block_are_an_error(count):
    header, rows = rows_of(np.diag([1.0, 1.0]), "bsgs", block=(2, 2))
    parameters = {**header.parameters, "nnz": count}
    lying = Header("x", "bsgs", header.shape, header.dtype, header.fill, parameters)
    with pytest.raises(IntegrityError):
        read_back(lying, with_numbers(rows, count=count))


def test_blocks_that_reach_beyond_the_largest_number_are_cut():
    side = 2**48 - 1
    small = Coo.of((side,), [[0, 2**47]], np.array([1.5, 2.5]))
    header, rows = rows_of(small, "bsgs", block=(side,))
    largest = Header("x", "bsgs", (2**63 - 1,), header.dtype, header.fill, header.parameters)
    found = layouts.decode(largest, with_numbers(rows, i0=32768), Box((0,), (2**63 - 1,)))
    assert found.coords.tolist() == [[32768 * side]]


def test_blocks_out_of_order_are_an_error_also_of_values_without_a_palette():
    x = np.random.default_rng(0).random((4, 4))
    header, rows = rows_of(x, "bsgs", block=(2, 2))
    assert header.parameters["palette"] is None
    for order in ([1, 0, 2, 3], [0, 0, 1, 2]):
        with pytest.raises(IntegrityError, match="not in order"):
            read_back(header, rows.take(order))


def test_blocks_of_the_largest_tensors_are_chosen():
    shape = (2, 3, 1_500_000_000_000_000_000)
    header, rows = rows_of(Coo.of(shape, [[1], [2], [5]], np.ones(1)), "bsgs")
    assert np.array_equal(read_back(header, rows, Box((1, 1, 3), (2, 3, 7))), [[[0, 0, 0, 0], [0, 0, 1, 0]]])


@pytest.mark.parametrize(
    "wrong", [{"octaves": 2**63}, {"planes": ["=zz"] * 8}, {"planes": ["=" + "f" * 99] * 8}], ids=str
)
def test_header_of_bytes_that_lies_is_an_error(wrong):
    header, rows = rows_of(np.random.default_rng(0).random((3, 3)), "bsgs", block=(3, 3))
    lying = Header("x", "bsgs", header.shape, header.dtype, header.fill, {**header.parameters, **wrong})
    with pytest.raises(MetadataError):
        read_back(lying, rows)
