"""Parts of a stored file: which requests are sent for them, what is kept, what happens when the file changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty import Asked, Fault, FaultyStore

import hyperslab as hs
from hyperslab.errors import BudgetError, ConflictError, IntegrityError, StoreError
from hyperslab.execute.file import StoredFile, _Ranges
from hyperslab.store import LocalStore, locate, memory

DATA = np.random.default_rng(1).integers(0, 256, 1 << 20, "u1").tobytes()
HEAD, AHEAD, GAP = 64 << 10, 16 << 10, 64 << 10


@pytest.fixture
def session():
    with hs.Session(profile="s3", prices="aws") as made:
        yield made


@pytest.fixture
def store():
    memory("stored-file").put("f", DATA)
    return FaultyStore(locate("memory://stored-file/f")[0])


def asked(store):
    return [call.span for call in store.log if isinstance(call, Asked)]


def str_bytes(value):
    return str(value).encode()


def check(file, spans):
    for (start, nbytes), found in zip(spans, file.read_many(spans), strict=True):
        assert bytes(found) == DATA[start : start + nbytes]


def test_what_lies_at_the_start_comes_with_the_first_request(session, store):
    file = StoredFile.open(session, store, "f")
    check(file, [(0, 100), (HEAD - 8, 8), (5, 0)])
    assert asked(store) == [(0, HEAD)]
    assert (file.size, session.metrics.lookups, session.metrics.bytes) == (len(DATA), 1, HEAD)


def test_near_parts_share_a_request_and_few_bring_their_neighbours(session, store):
    file = StoredFile.open(session, store, "f")
    check(file, [(600_000, 10), (200_000, 10), (200_000 + GAP, 10), (600_000, 10)])
    assert sorted(asked(store)[1:]) == [(200_000, 200_010 + GAP), (600_000, 600_000 + AHEAD)]
    check(file, [(600_010, AHEAD - 10), (200_050, 500)])
    assert len(asked(store)) == 3


def test_many_parts_are_fetched_as_they_are(session, store):
    file = StoredFile.open(session, store, "f")
    spans = [(100_000 + n * (GAP + 11), 10) for n in range(12)]
    check(file, spans)
    assert sorted(asked(store)[1:]) == [(start, start + nbytes) for start, nbytes in spans]


def test_a_short_file_is_read_whole(session):
    memory("stored-file").put("short", b"abc")
    store = FaultyStore(locate("memory://stored-file/f")[0])
    file = StoredFile.open(session, store, "short")
    assert (file.size, bytes(file.read(1, 2))) == (3, b"bc")
    assert asked(store)[-1] is None


def test_no_file(session, store, tmp_path):
    assert StoredFile.open(session, store, "nothing") is None
    assert StoredFile.open(session, LocalStore(tmp_path), "nothing") is None


@pytest.mark.parametrize("span", [(len(DATA), 1), (0, len(DATA) + 1), (-1, 2), (5, -1), (2**70, 1)])
def test_parts_outside_of_the_file_are_refused(session, store, span):
    with pytest.raises(IntegrityError, match="cut off or damaged"):
        StoredFile.open(session, store, "f").read(*span)


def test_what_was_fetched_is_kept_for_the_next_who_opens_the_file(session, store):
    file = StoredFile.open(session, store, "f")
    check(file, [(500_000, 10)])
    file.remember("table", 7, str_bytes)
    file.keep()
    again = StoredFile.open(session, store, "f")
    check(again, [(500_005, 5)])
    assert (len(asked(store)), again.recall("table", int)) == (3, 7)


def test_other_processes_find_it_on_the_disk(store, tmp_path):
    for n in range(2):
        with hs.Session(profile="s3", disk_cache=tmp_path) as session:
            file = StoredFile.open(session, store, "f")
            check(file, [(500_000, 10), (900_000, 50)])
            file.keep()
            assert len(asked(store)) == 3 + n
            assert file.recall("table", int) == (7 if n else None)
            file.remember("table", 7, str_bytes)


def test_what_only_passes_through_is_not_held(session, store):
    file = StoredFile.open(session, store, "f")
    for _ in range(2):
        check(file.passing(), [(500_000, 10)])
    assert asked(store)[1:] == [(500_000, 500_000 + AHEAD)] * 2
    check(file, [(500_000, 10)] * 2)
    check(file, [(500_000, 10)])
    assert len(asked(store)) == 4


def test_a_new_version_of_the_file_is_never_mixed_with_the_old_one(session, store):
    old = StoredFile.open(session, store, "f")
    check(old, [(500_000, 10)])
    old.keep()
    memory("stored-file").put("f", DATA[::-1])
    with pytest.raises(ConflictError):
        old.read(300_000, 10)
    new = StoredFile.open(session, store, "f")
    assert bytes(new.read(500_000, 10)) == DATA[::-1][500_000:500_010]
    with pytest.raises(ConflictError):
        StoredFile.open(session, store, "f", old.version).read(300_000, 10)


def test_a_local_file_that_changes_is_a_conflict(session, tmp_path):
    (tmp_path / "f").write_bytes(DATA)
    file = StoredFile.open(session, LocalStore(tmp_path), "f")
    check(file, [(400_000, 10), (900_000, 10)])
    (tmp_path / "f").write_bytes(DATA[::-1])
    with pytest.raises(ConflictError):
        file.read(700_000, 10)


def test_failures_are_tried_again_and_counted(session, store):
    file = StoredFile.open(session, store, "f")
    failure = StoreError("not now")
    failure.transient = True
    store.faults.append(Fault(times=2, error=failure))
    check(file, [(500_000, 10)])
    assert (session.metrics.retries, session.metrics.lookups) == (2, 4)


def test_a_budget_holds_for_indexes_too(store):
    with hs.Session(profile="s3", budget=hs.Budget(requests=2)) as session:
        file = StoredFile.open(session, store, "f")
        file.read(500_000, 10)
        with pytest.raises(BudgetError):
            file.read(900_000, 10)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12))
def test_ranges_give_back_what_was_put_in(spans):
    ranges, known = _Ranges(), set()
    for start, nbytes in spans:
        ranges.add(start, memoryview(DATA)[start : start + nbytes])
        known.add((start, nbytes))
    packed = _Ranges.unpack(ranges.pack())
    for held in (ranges, packed):
        for start in range(60):
            found = held.find(start, 3)
            assert found is None or bytes(found) == DATA[start : start + 3]
    # The longest range from each start is there.
    for start in {start for start, _ in known}:
        longest = max(n for s, n in known if s == start)
        assert packed.find(start, longest) is not None
