"""Compiled loops read what Python reads; where something is not as usual, they leave it to Python."""

import random
import threading
import time

import numpy as np
import pytest
from support.profiles import times

import hyperslab as hs
from hyperslab.collections import blocks, collection, reading, segment
from hyperslab.collections.blocks import DELETED, Block, Row, pack_block
from hyperslab.collections.manifest import Manifest
from hyperslab.errors import FormatError, HyperslabError, IntegrityError, NotFoundError
from hyperslab.layout.checksums import crc32c

pytest.importorskip("numba")
finding = pytest.importorskip("hyperslab.collections.finding")
if not finding.is_possible():
    pytest.skip("the processor has no CRC-32C", allow_module_level=True)
kernels = pytest.importorskip("hyperslab.collections.kernels")

PACK = bytes(range(16))
CHANCE = np.random.default_rng(5)
ALIKE = {f"t{i // 70:03d}/v{i:05d}": CHANCE.random((3, 7), np.float32) for i in range(900)}
MIXED = {
    "": np.array(5.0),
    "é": np.zeros((3, 0)),
    "日本": np.array(["ab", "c"]),
    "fields": np.array([(1, 2.5), (3, 4.5)], [("a", "u1"), ("b", "f8")]),
    "day": np.array(["2020-01-01"], "M8[D]"),
    "large": CHANCE.integers(0, 255, 3 << 20, np.uint8),
    "big-endian": np.arange(5, dtype=">i4"),
    **{f"odd/{i}": np.arange(i, dtype="u1") for i in range(40)},
}
ARRAYS = ALIKE | MIXED


@pytest.fixture
def folder(tmp_path):
    with hs.Session() as session:
        collection(tmp_path / "c", "w-", session=session).put_many(ARRAYS, pack_bytes=20_000)
    return tmp_path / "c"


@pytest.fixture
def session():
    with hs.Session(retries=0) as made:
        yield made


def opened(folder, session, *, at_once=True):
    c = collection(folder, session=session)
    c._reader._mapped_s = float("inf") if at_once else -float("inf")
    return c


def found_at_once(c, names):
    """Return arrays that compiled loops have read, and nobody else."""
    arrays = c.read_many(names)
    now = time.perf_counter()
    assert c._reader._finder.read(names, now, now - 1) is not None
    return arrays


def check(names, arrays):
    for name, array in zip(names, arrays, strict=True):
        expected = ARRAYS[name]
        assert (type(array), array.dtype, array.shape) == (np.ndarray, expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
        assert (array.flags.writeable, array.flags.aligned) == (True, True)


@pytest.mark.parametrize("among", [ALIKE, MIXED, ARRAYS])
def test_arrays_are_those_that_were_stored(folder, session, among):
    c, chance = opened(folder, session), random.Random(1)
    for count in (4, 5, 7, 20, 63):
        names = chance.choices(list(among), k=count)
        check(names, found_at_once(c, names))
    check(list(among), c.read_many(list(among)))


def test_each_array_has_cells_of_its_own(folder, session):
    names = ["t001/v00071"] * 5
    arrays = found_at_once(opened(folder, session), names)
    arrays[0][:] = 0
    check(names[1:], arrays[1:])


def test_what_is_counted_and_recorded_is_the_same(folder):
    told = []
    for at_once in (False, True):
        path = folder.parent / f"log-{at_once}"
        with hs.Session() as session, hs.record(path):
            names = [*list(ALIKE)[::50], "large", *list(ALIKE)[::50]]
            opened(folder, session, at_once=at_once).read_many(names)
            metrics = session.metrics
            told.append([metrics.reads, metrics.requests, metrics.bytes, metrics.needed_bytes])
        told[-1].append(hs.Workload.load(path).records.cells.tolist())
    assert told[0] == told[1]


@pytest.mark.parametrize("names", [["nope"] * 4, ["odd/1", "odd/2", "odd/3", "odd/39x"], ["a\0b"] * 4, ["\xff"] * 4])
def test_names_that_are_not_there(folder, session, names):
    with pytest.raises(NotFoundError, match=r"there is no array"):
        opened(folder, session).read_many(names)


@pytest.mark.parametrize("names", [[1] * 4, ["odd/1", None, "odd/2", "odd/3"], ["\ud800"] * 4])
def test_what_is_no_name(folder, session, names):
    with pytest.raises(hs.errors.InvalidInputError):
        opened(folder, session).read_many(names)


def test_names_of_several_segments_and_those_that_are_gone(folder, session):
    c = hs.collection(folder, "r+", session=session)
    c.put_many({"odd/5": np.arange(9.0), "t003/v00211": np.arange(4)})
    del c["odd/7"]
    c._reader._mapped_s = float("inf")
    assert [array.size for array in c.read_many(["odd/5", "odd/6", "t003/v00211", "t003/v00210"])] == [9, 6, 4, 21]
    with pytest.raises(NotFoundError, match="odd/7"):
        c.read_many(["odd/5", "odd/6", "odd/7", "odd/8"])


def test_a_file_that_was_written_to_is_noticed(folder, session, monkeypatch):
    c, names = opened(folder, session), list(ALIKE)[:40]
    check(names, found_at_once(c, names))
    for kind in (".pack", ".seg"):
        path = max(folder.rglob(f"*{kind}"), key=lambda path: path.stat().st_size)
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:9] + bytes(len(data) - 9))
    monkeypatch.setattr(reading, "_TRUST_S", 0.0)
    time.sleep(0.02)
    with pytest.raises((FormatError, IntegrityError)):
        c.read_many(list(ARRAYS))


def test_damage_is_said_as_always(folder, session):
    c = opened(folder, session)
    entry = c.entry("t004/v00300")
    path = folder / "packs" / f"{entry.pack}.pack"
    data = bytearray(path.read_bytes())
    data[entry.start + 5] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="t004/v00300"):
        c.read_many(["t004/v00301", "t004/v00302", "t004/v00300", "t004/v00299"])


def test_more_packs_than_are_held(tmp_path, session, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_VIEWS", 3)
    hs.collection(tmp_path / "c", "w-").put_many(ALIKE, pack_bytes=1000)
    c, names = opened(tmp_path / "c", session), list(ALIKE)
    for count in (4, 100, 5, 900, 30):
        some = random.Random(count).choices(names, k=count)
        check(some, c.read_many(some))
        assert len(c._reader._views) <= 3
        assert c._reader._finder is None or len(c._reader._finder._views) <= 3


def test_the_loops_are_loaded_when_reads_have_taken_as_long(folder, session, monkeypatch):
    c, names = collection(folder, session=session), list(ALIKE)[:8]
    for _ in range(3):
        c.read_many(names)
    assert c._reader._finder is None
    monkeypatch.setattr(reading, "LOADING_S", 1e-9)
    check(names, c.read_many(names))
    assert c._reader._finder is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": -1}, {"start": 93}, {"nbytes": 9}, {"nbytes": -8}, {"nbytes": -1, "kind": b"[]"}, {"id": -1},
        {"pack_nbytes": 7}, {"pack_nbytes": -1}, {"kind": b"[]"}, {"kind": b'["<f8",[-1]]'}, {"flags": DELETED},
    ],
)  # fmt: skip
def test_rows_that_contradict_themselves_give_the_error_of_python(tmp_path, session, wrong):
    crc = crc32c(np.zeros(8, np.uint8))
    rows = [Row(b"%d" % i, i, PACK, 100, 8 * i, 8, b'["<f8",[1]]', crc, 0, {}) for i in range(6)]
    rows[2] = rows[2]._replace(**wrong)
    packed = next(segment.pack_segments(rows, 9))
    for part in ("index", "packs"):
        (tmp_path / part).mkdir()
    (tmp_path / "index" / f"{packed.ref.name}.seg").write_bytes(packed.data)
    (tmp_path / "packs" / f"{PACK.hex()}.pack").write_bytes(bytes(100))
    (tmp_path / "collection.json").write_bytes(Manifest("a" * 32, 1, (packed.ref,)).dump())
    names, told = list("01345"), []
    check_zero = opened(tmp_path, session).read_many(names)
    assert [array.tolist() for array in check_zero] == [[0.0]] * 5
    for at_once in (False, True):
        with pytest.raises(HyperslabError) as caught:
            opened(tmp_path, session, at_once=at_once).read_many([*names, "2"])
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]


def looked_up(data, names):
    """Look names up in the bytes of a block, whatever they are; return what was found."""
    block = Block(memoryview(data), "here")
    table = np.zeros((1, kernels.BLOCK), np.int64)
    packs = np.array([(place, size) for place, (_, size) in enumerate(block.pack_list())], np.int64).reshape(-1, 2)
    kinds = [(0, -1 if kind is None else kind.nbytes) for kind in block.kind_list()]
    kinds = np.array(kinds, np.int64).reshape(-1, 2)
    held = np.frombuffer(data, np.uint8)
    table[0] = (
        held.ctypes.data, *block.parts(), packs.ctypes.data, len(packs), kinds.ctypes.data, len(kinds)
    )  # fmt: skip
    found = np.empty((len(names), kernels.FOUND), np.int64)
    text = np.frombuffer(b"\0".join(names), np.uint8)
    parts = np.frombuffer(b"", np.uint8)
    seen, marks = np.full(len(packs) + 1, 5.0), np.zeros(len(packs) + 1, np.int64)
    kernels.find_arrays(text, parts, np.zeros(2, np.int64), table, seen, 1.0, marks, 1, found)
    return block, found


def test_damaged_blocks_lead_nowhere():
    """Whatever bytes a block has, the loop finds what Python finds, or nothing."""
    chance = random.Random(7)
    rows = [
        Row(b"n%d" % i, i, PACK if i % 3 else bytes(16), 5000, 8 * i, 8, b'["<f8",[1]]', i, 0, {}) for i in range(60)
    ]
    rows.sort(key=lambda row: row.name)
    names, whole = [row.name for row in rows], pack_block(rows)
    _, found = looked_up(whole, names)
    assert found[:, 5].tolist() == [row.id for row in rows]
    for _ in range(times(300)):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 40)):
            data[chance.randrange(blocks.HEAD_BYTES, len(data))] = chance.choice([0, 1, 255, chance.randrange(256)])
        block, found = looked_up(bytes(data), names)
        for name, row in zip(names, found.tolist(), strict=True):
            try:
                entry = block.take(name, "n")
            except FormatError:
                entry = None
            assert row[0] == kernels.ABSENT or (entry.id, entry.start, entry.nbytes) == (row[5], row[1], row[2])


def test_while_one_thread_reads_others_take_the_other_way(folder, session):
    c, names = opened(folder, session), list(ALIKE)[:50]
    found_at_once(c, names)
    finder, now = c._reader._finder, time.perf_counter()
    holding, over = threading.Event(), threading.Event()

    def hold():
        with finder._lock:
            holding.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holding.wait(60)
        assert finder.read(names, now, now - 1) is None
        held = dict(finder._views)
        finder.forget()
        assert finder._views == held
        assert all(np.array_equal(array, ALIKE[name]) for name, array in zip(names, c.read_many(names), strict=True))
    finally:
        over.set()
        thread.join()
    assert finder.read(names, now, now - 1) is not None


def test_threads_that_read_while_packs_are_let_go(folder, session, monkeypatch):
    """Each look maps packs anew and lets the old ones go; nobody may copy from where one was."""
    monkeypatch.setattr(reading, "_TRUST_S", 1e-9)
    monkeypatch.setattr(reading, "_MOST_VIEWS", 3)
    c, wrong = opened(folder, session), []

    def read(seed):
        chance = random.Random(seed)
        for _ in range(times(100)):
            names = chance.sample(list(ARRAYS), 30)
            arrays = c.read_many(names)
            wrong.extend(n for n, a in zip(names, arrays, strict=True) if not np.array_equal(a, ARRAYS[n]))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
