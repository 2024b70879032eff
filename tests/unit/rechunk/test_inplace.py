"""The layout changed in place: readers of every kind see the same cells, and no write that was acknowledged is lost."""

import itertools
import json
import os
import socket
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.faulty import Fault, FaultyStore, slow_down
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import ConflictError, InvalidInputError, MetadataError, UnsupportedError
from hyperslab.execute import default_session
from hyperslab.formats.copying import Place
from hyperslab.formats.zarr import array as zarr_array
from hyperslab.formats.zarr import claims
from hyperslab.formats.zarr.change import MARK, Change, change_of, marked
from hyperslab.rechunk import inplace, listing
from hyperslab.rechunk.inplace import LayoutChange
from hyperslab.rechunk.parents import update_parents
from hyperslab.selection import Box
from hyperslab.store import LocalStore, locate

VALUES = np.arange(20 * 30, dtype="i4").reshape(20, 30)
NEW = {"chunks": (20, 3), "shards": (20, 6), "layout": "default"}
_names = itertools.count()
# Of those whose calls are interrupted: what happens meanwhile waits for another session's loop.
_apart = hs.Session()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)


@pytest.fixture(autouse=True, scope="module")
def closing_sessions():
    yield
    _apart.close()


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "a") if request.param == "file" else f"memory://inplace-{os.getpid()}-{next(_names)}/g/a"


@pytest.fixture
def array(url):
    return hs.save(url, VALUES, chunks=(5, 5), shards=(10, 10), attrs={"units": "m"}, dims=("y", "x"))


def changing(url, settings=None, store=None) -> LayoutChange:
    """A change that the test takes step by step."""
    found, path = locate(url)
    place = Place(default_session() if store is None else _apart, store or found, path, url)
    return LayoutChange(place, {"compressor": "same", **(settings or NEW)}, memory_bytes=64 << 20)


def document(url) -> dict:
    store, path = locate(url)
    return json.loads(bytes(store.get((path + "/" if path else "") + "zarr.json").data))


def names(url) -> set[str]:
    store, path = locate(url)
    return {key.removeprefix(path).lstrip("/") for key, _ in store.keys(path)}


def through(array: hs.Array) -> tuple[hs.Array, FaultyStore]:
    store = FaultyStore(array.store)
    return hs.Array(array.source, store, _apart, writable=True), store


class TestWhatIsChanged:
    def test_cells_and_all_besides_stay(self, array, url):
        old, seen = hs.open(url), []
        changed = hs.rechunk(
            url, chunks=(20, 3), shards=(20, 6), progress=lambda done, total: seen.append(done / total)
        )
        assert (changed.chunks, changed.shards, changed.dims) == ((20, 3), (20, 6), ("y", "x"))
        assert changed.attrs == {"units": "m"}
        assert changed.source.layout.complete
        assert seen[-1] == 1.0
        for handle in (changed, old, hs.open(url)):
            assert (handle[...] == VALUES).all()
        assert MARK not in document(url)["attributes"]
        assert {"c.0.0", "c/0/0"} <= names(url)

    def test_again_is_nothing_to_do(self, array, url):
        hs.rechunk(url, **NEW)
        before = names(url), document(url)
        hs.rechunk(url, **NEW)
        assert (names(url), document(url)) == before

    def test_each_change_takes_other_names(self, array, url):
        for lead, chunks in (("c.0.0", (4, 4)), ("0/0", (5, 5)), ("0.0", (6, 6)), ("c/0/0", (7, 7))):
            changed = hs.rechunk(url, chunks=chunks, shards=chunks)
            hs.sweep(url)
            assert lead in names(url)
            assert (changed[...] == VALUES).all()

    @pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0), (2, 3, 5)])
    @pytest.mark.parametrize("layout", ["default", "plain"])
    def test_any_shape(self, url, shape, layout):
        values = np.arange(np.prod(shape, dtype=int), dtype="f8").reshape(shape)
        hs.save(url, values, chunks=(2,) * len(shape) if shape else None)
        for _ in range(3):
            layout = "plain" if layout == "default" else "default"
            changed = hs.rechunk(url, chunks=(3,) * len(shape) if shape else None, layout=layout)
            assert np.array_equal(changed[...], values)
            assert changed.source.layout.plain == (layout == "plain")
            assert changed.source.layout.complete
            hs.sweep(url)
            assert np.array_equal(hs.open(url)[...], values)

    def test_what_was_never_written_is_not_written(self, url):
        array = hs.create(url, (40, 40), "i4", chunks=(5, 5), shards=(10, 10), fill_value=7)
        array[3:5, 3:5] = 1
        changed = hs.rechunk(url, chunks=(4, 4), shards=(8, 8))
        assert {name for name in names(url) if name.startswith("c.")} == {"c.0.0"}
        assert not changed.source.layout.complete
        assert changed[...].sum() == 7 * 1596 + 4

    @pytest.mark.parametrize("dtype", ["?", "u1", "c8", "S5", "U3", "M8[ns]", [("a", "<i2"), ("b", "<f8")]])
    def test_any_type(self, tmp_path, dtype):
        values = np.zeros((9, 4), dtype)
        values[2:5] = np.ones(1, "i8").astype(dtype) if not isinstance(dtype, list) else (3, np.nan)
        hs.save(tmp_path / "a", values, chunks=(2, 2))
        assert hs.rechunk(tmp_path / "a", chunks=(5, 3))[...].tobytes() == values.tobytes()

    @hypothesis_settings(max_examples=times(15))
    @given(data=st.data())
    def test_any_chunks(self, data):
        ndim = data.draw(st.integers(1, 3))
        shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)))
        sizes = st.lists(st.integers(1, 5), min_size=ndim, max_size=ndim).map(tuple)
        url = f"memory://inplace-any-{next(_names)}/a"
        values = np.random.default_rng(0).integers(0, 3, shape).astype("u2")
        hs.save(url, values, chunks=data.draw(sizes))
        for _ in range(2):
            chunks, many = data.draw(sizes), data.draw(sizes)
            shards = data.draw(st.sampled_from([None, tuple(a * b for a, b in zip(chunks, many, strict=True))]))
            assert np.array_equal(hs.rechunk(url, chunks=chunks, shards=shards)[...], values)


class TestOtherPrograms:
    def test_zarr_python_before_during_and_after(self, tmp_path):
        url = str(tmp_path / "a")
        made = zarr.create_array(url, shape=VALUES.shape, chunks=(6, 6), dtype="i4", attributes={"n": 1})
        made[...] = VALUES
        before, change = zarr.open_array(url), changing(url)
        assert change.begin()
        during = zarr.open_array(url)
        assert (during[...] == VALUES).all()
        change.move()
        assert (zarr.open_array(url)[...] == VALUES).all()
        change.end()
        change.close()
        after = zarr.open_array(url)
        for handle in (before, during, after):
            assert (handle[...] == VALUES).all()
        assert after.attrs.asdict() == {"n": 1}  # it was not sealed, and is not now
        after[0, 0] = -5
        assert hs.open(url)[0, 0] == -5

    def test_tensorstore(self, tmp_path):
        tensorstore = pytest.importorskip("tensorstore")
        url = str(tmp_path / "a")
        hs.save(url, VALUES, chunks=(5, 5))
        for chunks in ((4, 4), (6, 6), (7, 7)):  # the names of each kind
            hs.rechunk(url, chunks=chunks, shards=chunks)
            spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": url}}
            assert (np.asarray(tensorstore.open(spec).result()) == VALUES).all()

    def test_writes_that_know_nothing_of_the_mark(self, tmp_path):
        url, values = str(tmp_path / "a"), VALUES.copy()
        made = zarr.create_array(url, shape=VALUES.shape, chunks=(6, 6), dtype="i4", fill_value=0)
        made[...] = VALUES
        change = changing(url)
        change.begin()
        made[0, 0] = values[0, 0] = -1
        change.move()
        made[7:9, 20:] = values[7:9, 20:] = -2
        made[12:18, 6:12] = values[12:18, 6:12] = 0  # zarr-python deletes a chunk of fill values
        change.end()
        change.close()
        assert (hs.open(url)[...] == values).all()
        assert (zarr.open_array(url)[...] == values).all()

    def test_writes_between_a_kill_and_the_next_call(self, tmp_path):
        url, values = str(tmp_path / "a"), VALUES.copy()
        made = zarr.create_array(url, shape=VALUES.shape, chunks=(6, 6), dtype="i4", fill_value=0)
        made[...] = VALUES
        for path in Path(url).rglob("*"):
            os.utime(path, (1, 1))
        change = changing(url)
        change.begin()
        change.move()
        change.close()
        made[0, 0] = values[0, 0] = -1
        assert (hs.rechunk(url, **NEW)[...] == values).all()
        change = changing(url, {"chunks": (4, 4)})
        change.begin()
        change.move()
        change.close()
        made = zarr.open_array(url)
        made[:, :6] = values[:, :6] = 0  # the whole object is deleted
        assert (hs.rechunk(url, chunks=(4, 4))[...] == values).all()

    def test_writer_without_pause_is_told_of(self, tmp_path, monkeypatch):
        url = str(tmp_path / "a")
        made = zarr.create_array(url, shape=(4,), chunks=(2,), dtype="i4")
        change, count = changing(url, {"chunks": (4,)}), itertools.count(1)
        change.begin()
        change.move()
        listed = change._list

        def list_while_others_write():
            made[0] = next(count)
            return listed()

        monkeypatch.setattr(change, "_list", list_while_others_write)
        with pytest.raises(ConflictError, match="again and again"):
            change.end()
        change.close()
        monkeypatch.undo()
        assert hs.rechunk(url, chunks=(4,))[0] == next(count) - 1

    def test_writes_within_one_step_of_the_clock(self, tmp_path, monkeypatch):
        """A file that is written in place twice in a row may have the same date, size and number as before."""
        step_ns, files_below = 250_000_000, LocalStore._files_below

        def dated_coarsely(store, prefix):
            for key, about in files_below(store, prefix):
                times = {name: getattr(about, name) // step_ns * step_ns for name in ("st_mtime_ns", "st_ctime_ns")}
                yield key, SimpleNamespace(st_ino=about.st_ino, st_size=about.st_size, **times)

        monkeypatch.setattr(LocalStore, "_files_below", dated_coarsely)
        monkeypatch.setattr(listing, "_FINE_NS", 2 * step_ns)
        url = str(tmp_path / "a")
        made = zarr.create_array(url, shape=(8,), chunks=(4,), dtype="i4", compressors=None)
        made[...] = np.arange(8)
        change = changing(url, {"chunks": (8,)})
        while not 0.02 < time.time() % 0.25 < 0.05:
            time.sleep(0.001)
        (tmp_path / "a/c/0").write_bytes(np.full(4, 50, "i4").tobytes())
        change.begin()
        change.move()
        (tmp_path / "a/c/0").write_bytes(np.full(4, 60, "i4").tobytes())
        change.end()
        change.close()
        assert hs.open(url)[...].tolist() == [60, 60, 60, 60, 4, 5, 6, 7]


class TestOwnWriters:
    """A write during a change, at every moment of either."""

    STEPS = ("begin", "move", "end")

    @pytest.mark.parametrize("known", ["before", "marked", "members"])
    @pytest.mark.parametrize("steps", range(4))
    def test_between_steps(self, url, known, steps):
        group = hs.create_group(url.rsplit("/", 1)[0], overwrite=True) if url.startswith("memory") else None
        hs.save(url, VALUES, chunks=(5, 5), shards=(10, 10))
        if group is not None and known == "members":
            consolidate(group.url, {"a": document(url)})
            array = hs.open(group.url, mode="r+")["a"]
        else:
            array = hs.open(url, mode="r+")
        change, values = changing(url), VALUES.copy()
        for step in self.STEPS[:steps]:
            getattr(change, step)()
        if known == "marked":
            array = hs.open(url, mode="r+")
        for n, key in enumerate([np.s_[3, 4], np.s_[:, 7], np.s_[::7, [1, 29]], np.s_[...]][: 3 + (steps == 2)]):
            array[key] = values[key] = -n - 1
        array.points[[0, 19], [0, 29]] = values[[0, 19], [0, 29]] = 99
        for step in self.STEPS[steps:]:
            getattr(change, step)()
        change.close()
        assert (hs.open(url)[...] == values).all()
        array[5, 5] = values[5, 5] = 1
        assert array.chunks == (20, 3)
        assert (array[...] == values).all()
        assert (hs.open(url)[...] == values).all()

    @pytest.mark.parametrize("whole", [False, True])
    @pytest.mark.parametrize("when", ["before the put", "after the put", "before the mark is told", "after it"])
    @pytest.mark.parametrize(("before", "inside"), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    def test_in_the_middle_of_a_write(self, array, url, when, before, inside, whole):
        """The change is at `before` when the write begins, and gets to `inside` while one of its calls is under way."""
        change, values = changing(url), VALUES.copy()
        for step in self.STEPS[:before]:
            getattr(change, step)()
        writer, store = through(hs.open(url, mode="r+"))
        key = np.s_[:10, :10] if whole else np.s_[2:4, 3]
        ran = []

        def go_on() -> None:
            ran.append(1)
            for step in self.STEPS[before:inside]:
                getattr(change, step)()

        where = "zarr.json" if "mark" in when or "it" in when.split() else "c/0/0"
        store.faults.append(Fault(where, on="put", run=go_on, after="after" in when))
        writer[key] = values[key] = -1
        store.faults.clear()
        if not ran:
            go_on()
        for step in self.STEPS[inside:]:
            getattr(change, step)()
        change.close()
        assert (hs.open(url)[...] == values).all()
        assert (writer[...] == values).all()

    def test_second_write_of_the_same_cells(self, array, url, monkeypatch):
        """It is told of, too: the first one's cells have been moved by then."""
        change, values = changing(url), VALUES.copy()
        change.begin()
        change.move()
        writer = hs.open(url, mode="r+")
        monkeypatch.setattr(zarr_array, "_CLOSING_S", 0.0)
        writer[0, 0] = 5
        move, numbers = change._move, iter([6, 7])

        def move_then_write(**only) -> None:
            move(**only)
            for number in itertools.islice(numbers, 1):
                writer[0, 0] = values[0, 0] = number

        monkeypatch.setattr(change, "_move", move_then_write)
        change.end()
        change.close()
        assert values[0, 0] == 7
        assert (hs.open(url)[...] == values).all()

    def test_writer_does_not_keep_a_change_from_ending(self, array, url):
        """One that writes without a pause waits for the end, and goes on in the new layout."""
        change, began, over = changing(url), threading.Event(), threading.Event()
        change.begin()
        change.move()
        written = [0]

        def write() -> None:
            writer = hs.open(url, mode="r+")
            while not over.is_set():
                writer[0, 0] = written[0] + 1
                written[0] += 1
                began.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert began.wait(60)
            change.end()
        finally:
            over.set()
            thread.join()
            change.close()
        assert hs.open(url).chunks == (20, 3)
        assert hs.open(url)[0, 0] == written[0] > 0

    def test_stale_handle_does_not_write_into_a_later_layout(self, array, url):
        """After four changes objects have the names that they had at first."""
        stale, values = hs.open(url, mode="r+"), VALUES.copy()
        stale[0, 0] = values[0, 0] = 1
        for chunks in ((4, 4), (5, 5), (6, 6), (10, 3)):
            hs.rechunk(url, chunks=chunks, shards=chunks)
            hs.sweep(url)
        assert "c/0/0" in names(url)
        stale[:10, :10] = values[:10, :10] = -7
        assert (hs.open(url)[...] == values).all()

    def test_complete_while_it_is_changed(self, url):
        """An array that is written as a whole during the change misses no object afterwards."""
        array = hs.create(url, (20, 20), "i4", chunks=(5, 5), shards=(10, 10))
        change = changing(url, {"chunks": (4, 4), "shards": (4, 4)})
        change.begin()
        change.move()
        array[...] = np.eye(20, dtype="i4")
        assert array.source.layout.complete
        change.end()
        change.close()
        found = hs.open(url)
        assert found.source.layout.complete
        assert (found[...] == np.eye(20)).all()
        assert len([name for name in names(url) if name.startswith("c.")]) == 25

    def test_attributes(self, array, url):
        change = changing(url)
        change.begin()
        assert hs.open(url).attrs == {"units": "m"}
        array.attrs["b"] = 2
        del array.attrs["units"]
        assert MARK in document(url)["attributes"]
        with pytest.raises(InvalidInputError, match="mark"):
            array.attrs[MARK] = 1
        change.move()
        change.end()
        change.close()
        assert hs.open(url).attrs == {"b": 2}

    @pytest.mark.parametrize("sealed", [True, False])
    @pytest.mark.parametrize("what", ["append", "shrink"])
    def test_another_shape_ends_the_change(self, tmp_path, sealed, what):
        url = str(tmp_path / "a")
        if sealed:
            hs.save(url, VALUES, chunks=(5, 5), shards=(10, 10))
        else:
            zarr.create_array(url, shape=VALUES.shape, chunks=(5, 5), dtype="i4")[...] = VALUES
        change, array = changing(url, {"chunks": None, "shards": None, "layout": "plain"}), hs.open(url, mode="r+")
        change.begin()
        change.move()
        if what == "append":
            array.append(VALUES[:3])
            values = np.concatenate([VALUES, VALUES[:3]])
        else:
            array.resize((12, 11))
            values = VALUES[:12, :11]
        with pytest.raises(ConflictError, match="shape"):
            change.end()
        change.close()
        assert (hs.open(url)[...] == values).all()
        assert (hs.rechunk(url, layout="plain")[...] == values).all()
        array.append(VALUES[:1, : values.shape[1]])
        assert (hs.open(url)[-1] == VALUES[0, : values.shape[1]]).all()

    def test_append_that_is_under_way(self, array, url):
        """The end of the change waits for it; the shape is another one then."""
        change = changing(url)
        change.begin()
        change.move()
        writer, store = through(hs.open(url, mode="r+"))
        errors = []

        def end() -> None:
            claims_of, change_end = claims.is_gone, change.end
            assert not claims_of(document(url)["attributes"]["_hyperslab"]["claim"])
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(change, "_claim_is_over", lambda found: False)
                    patch.setattr(inplace, "_ROUNDS", 3)
                    change_end()
            except ConflictError as error:
                errors.append(error)

        store.faults.append(Fault("c/2/0", on="put", run=end))
        writer.append(VALUES)
        assert errors
        with pytest.raises(ConflictError, match="shape"):
            change.end()
        change.close()
        assert (hs.rechunk(url, **NEW)[...] == np.concatenate([VALUES, VALUES])).all()


class TestOthersWhoChange:
    def test_only_one_at_a_time(self, array, url):
        change = changing(url)
        change.begin()
        with pytest.raises(ConflictError, match="is changing the layout"):
            hs.rechunk(url, **NEW)
        with pytest.raises(ConflictError, match="is changing the layout"):
            hs.sweep(url)
        change.close()
        assert (hs.rechunk(url, **NEW)[...] == VALUES).all()

    def test_goes_on_where_it_was(self, array, url):
        change = changing(url)
        change.begin()
        change.move()
        change.close()
        store = FaultyStore(locate(url)[0])
        again = changing(url, store=store)
        assert again.begin()
        again._again = []
        again.move()
        assert [put.key for put in store.puts if "zarr.json" not in put.key] == []
        again.end()
        again.close()
        assert (hs.open(url)[...] == VALUES).all()

    def test_another_change_that_is_unfinished(self, array, url):
        change = changing(url)
        change.begin()
        change.move()
        change.close()
        with pytest.raises(InvalidInputError, match=r"unfinished.*hs\.sweep"):
            hs.rechunk(url, chunks=(2, 2), shards=(4, 4))
        with pytest.raises(InvalidInputError, match="unfinished"):
            hs.rechunk(url, chunks=(5, 5), shards=(10, 10))
        assert hs.sweep(url) == 5
        assert MARK not in document(url)["attributes"]
        assert (hs.rechunk(url, chunks=(2, 2), shards=(4, 4))[...] == VALUES).all()

    def test_objects_of_earlier_changes_are_in_the_way(self, array, url):
        store, path = locate(url)
        store.put(path + "/c.0.0" if path else "c.0.0", b"x")
        with pytest.raises(InvalidInputError, match=r"hs\.sweep"):
            hs.rechunk(url, **NEW)
        assert hs.sweep(url) == 1
        assert (hs.rechunk(url, **NEW)[...] == VALUES).all()

    def test_number_of_a_killed_process_is_another_ones(self, array, url):
        """As after the machine was switched off: the number alone would be that of a living process."""
        change, living = changing(url), os.getppid()
        started = claims._started(living)
        assert not claims.is_gone(f"{claims._here()}:{living}:{started}-00")
        change.token = f"{claims._here()}:{living}:{int(started, 16) - 1:x}-00"
        change.begin()
        change.move()
        assert (hs.rechunk(url, **NEW)[...] == VALUES).all()

    def test_process_of_a_container_with_the_name_of_this_machine(self):
        """What is not seen from here may be alive."""
        host, _, rest = claims._here().partition("/")
        assert rest, "no namespaces of processes"
        assert not claims.is_of_this_machine(f"{host}/1:4194304:1-00")
        assert not claims.is_gone(f"{host}/1:4194304:1-00")
        assert claims.is_gone(f"{host}/{rest}:4194304:1-00")

    def test_process_of_another_machine(self, array, url, monkeypatch):
        change = changing(url)
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        change.token = claims.new_claim()
        change.begin()
        monkeypatch.undo()
        monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)
        monkeypatch.setattr(claims, "PATIENCE_S", 0.05)
        change.move()
        assert (hs.rechunk(url, **NEW)[...] == VALUES).all()  # it has shown no sign of life
        change.end()  # the array has that layout: there is nothing left to do
        with pytest.raises(ConflictError, match="gone"):
            change.check()
        assert (hs.open(url)[...] == VALUES).all()

    def test_one_that_was_held_up_does_no_harm(self, array, url, monkeypatch):
        """Another process takes over, ends the change, and cells are written, before a put of the first arrives."""
        found, _ = locate(url)
        store = FaultyStore(found)
        change, values = changing(url, store=store), VALUES.copy()
        change.begin()

        def others() -> None:
            claims.drop_claim(change.token)
            hs.rechunk(url, **NEW)
            hs.open(url, mode="r+")[...] = -3

        store.faults.append(Fault("c.0.1", on="put", run=others))
        with pytest.raises(ConflictError):
            change.move()
        values[...] = -3
        assert (hs.open(url)[...] == values).all()

    def test_metadata_rewritten_by_another_program(self, tmp_path):
        url = str(tmp_path / "a")
        made = zarr.create_array(url, shape=(8,), chunks=(2,), dtype="i4")
        made[...] = np.arange(8)
        change = changing(url, {"chunks": (4,)})
        change.begin()
        change.move()
        made.attrs["x"] = 1  # as it knew them: without the mark
        with pytest.raises(ConflictError, match=r"hs\.sweep"):
            change.end()
        change.close()
        with pytest.raises(InvalidInputError, match=r"hs\.sweep"):
            hs.rechunk(url, chunks=(4,))
        hs.sweep(url)
        changed = hs.rechunk(url, chunks=(4,))
        assert changed[...].tolist() == list(range(8))
        assert changed.attrs == {"x": 1}

    def test_answer_to_the_mark_is_lost(self, array, url):
        """A writer has added to the mark by the time that it is put again."""
        store, writer = FaultyStore(locate(url)[0]), hs.open(url, mode="r+")

        def write() -> None:
            writer[0, 0] = -1

        store.faults.append(Fault("zarr.json", on="put", run=write, error=slow_down, after=True))
        change, values = changing(url, store=store), VALUES.copy()
        for step in TestOwnWriters.STEPS:
            getattr(change, step)()
        change.close()
        values[0, 0] = -1
        assert (hs.open(url)[...] == values).all()

    def test_put_that_was_given_up_was_stored(self, array, url):
        """Others fail, and its answer is not waited for; the next attempt finds the object there."""
        store = FaultyStore(locate(url)[0])
        change = changing(url, store=store)
        change.begin()
        conflict = ConflictError("c/0/0 changed while it was being read")
        store.faults.append(Fault("c.0.1", on="put", error=conflict, after=True))
        change.move()
        change.end()
        change.close()
        assert (hs.open(url)[...] == VALUES).all()

    @pytest.mark.parametrize("step", TestOwnWriters.STEPS)
    def test_shows_signs_of_life(self, array, url, step, monkeypatch):
        """Whatever takes long: deleting what is in the way, moving, and moving again at the end."""
        monkeypatch.setattr(inplace, "_BEAT_S", 0.01)
        monkeypatch.setattr(claims, "is_gone", lambda claim: True)
        if step == "begin":
            killed = changing(url)
            killed.begin()
            killed.move()
            killed._edit_mark(lambda found: replace(found, seen=None))
            killed.close()
        store = FaultyStore(locate(url)[0])
        change = changing(url, store=store)
        for before in itertools.takewhile(lambda each: each != step, TestOwnWriters.STEPS):
            getattr(change, before)()
        hs.open(url, mode="r+")[0, 0] = -1
        beats = []

        def wait() -> None:
            until_s = time.monotonic() + 30
            while len(set(beats)) < 3 and time.monotonic() < until_s:
                beats.append(document(url)["attributes"][MARK]["beat"])
                time.sleep(0.01)

        # Not in the loop that the signs are sent by.
        check = change.check
        monkeypatch.setattr(change.target if step != "begin" else change, "check", lambda: (wait(), check()))
        getattr(change, step)()
        change.close()
        assert len(set(beats)) >= 3


class TestRefused:
    def test_other_formats(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["x"] = VALUES
        zarr.create_array(str(tmp_path / "v2"), shape=(4,), dtype="i4", zarr_format=2)
        np.save(tmp_path / "a.npy", VALUES)
        for url in ("a.h5/x", "v2", "a.npy"):
            with pytest.raises(UnsupportedError, match="another place"):
                hs.rechunk(str(tmp_path / url), chunks=(2,))

    def test_too_little_memory_changes_nothing(self, url):
        """Nothing was begun, so that other chunks can be had without a sweep."""
        hs.save(url, np.zeros((4000, 4000), "u1"), chunks=(100, 100), shards=(1000, 1000))
        before = document(url)
        with pytest.raises(InvalidInputError, match="choose smaller"):
            hs.rechunk(url, chunks=(4000, 4000), memory_bytes="30MB")
        assert document(url) == before
        assert hs.rechunk(url, chunks=(100, 200), shards=(1000, 1000), memory_bytes="30MB").chunks == (100, 200)

    def test_groups_readers_and_settings(self, tmp_path):
        hs.create_group(tmp_path / "g")
        with pytest.raises(InvalidInputError, match="group"):
            hs.rechunk(tmp_path / "g", chunks=(2,))
        hs.save(tmp_path / "a", VALUES)
        with pytest.raises(InvalidInputError, match="mode='r"):
            hs.rechunk(hs.open(tmp_path / "a"), chunks=(2, 2))
        with pytest.raises(InvalidInputError, match="chunks"):
            hs.rechunk(tmp_path / "a", chunks=(2,))
        with pytest.raises(InvalidInputError, match="another place"):
            hs.rechunk(tmp_path / "a", chunks=(2, 2), overwrite=True)
        with pytest.raises(hs.errors.NotFoundError):
            hs.rechunk(tmp_path / "nothing", chunks=(2, 2))

    @given(
        mark=st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["token", "shape", "target", "written", "seen", "number"]), inner)
            ),
            max_leaves=12,
        )
    )
    def test_marks_that_make_no_sense(self, mark):
        try:
            found = change_of({"attributes": {MARK: mark}}, "zarr.json")
        except MetadataError:
            return
        assert isinstance(found, Change)
        assert change_of(marked({}, found), "zarr.json") == found

    def test_damaged_mark_is_swept_away(self, tmp_path):
        url = str(tmp_path / "a")
        zarr.create_array(url, shape=(4,), dtype="i4", attributes={MARK: 5, "n": 1})[...] = 3
        with pytest.raises(MetadataError, match=r"hs\.sweep"):
            hs.open(url, mode="r+")[0] = 1
        hs.sweep(url)
        hs.open(url, mode="r+")[0] = 1
        assert hs.open(url)[...].tolist() == [1, 3, 3, 3]


def consolidate(url: str, members: dict) -> None:
    """Put metadata of members into that of a group, as zarr-python does."""
    store, path = locate(url)
    key = (path + "/" if path else "") + "zarr.json"
    found = json.loads(bytes(store.get(key).data))
    found["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": members}
    store.put(key, json.dumps(found).encode())


class TestGroupsAbove:
    def test_zarr_python_reads_through_them(self, tmp_path):
        root = hs.create_group(tmp_path / "g")
        root.save("deep/a", VALUES, chunks=(5, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(str(tmp_path / "g"))
        url = str(tmp_path / "g/deep/a")
        hs.rechunk(url, chunks=(20, 3))
        hs.sweep(url)
        assert (zarr.open_consolidated(str(tmp_path / "g"))["deep/a"][...] == VALUES).all()
        assert (hs.open(tmp_path / "g")["deep/a"][...] == VALUES).all()

    def test_a_repeat_ends_what_a_kill_left(self, url):
        outer = url.rsplit("/", 1)[0] if url.startswith("memory") else os.path.dirname(url)
        hs.create_group(outer, overwrite=True)
        hs.save(url, VALUES, chunks=(5, 5), shards=(10, 10))
        consolidate(outer, {url.rsplit("/", 1)[1]: document(url)})
        change = changing(url)
        for step in TestOwnWriters.STEPS:
            getattr(change, step)()
        change.close()
        stale = hs.open(outer, mode="r+")[url.rsplit("/", 1)[1]]
        assert stale.chunks == (5, 5)
        hs.rechunk(url, **NEW)
        assert hs.open(outer)[url.rsplit("/", 1)[1]].chunks == (20, 3)
        stale[0, 0] = -1
        assert hs.open(url)[0, 0] == -1
        update_parents(change.place)

    def test_one_that_cannot_be_written(self):
        """Nothing is deleted: whoever reads through it would find fill values where cells were."""
        url = f"memory://inplace-{os.getpid()}-{next(_names)}/g/a"
        outer = url.rsplit("/", 1)[0]
        hs.create_group(outer)
        hs.create(url, (20, 20), "i4", chunks=(5, 5), shards=(10, 10))[:10] = 5
        consolidate(outer, {"a": document(url)})
        array, store = through(hs.open(url, mode="r+"))
        denied = hs.errors.AccessError("denied")
        store.faults.append(Fault("g/zarr.json", times=None, on="put", error=denied))
        for _ in range(2):
            with pytest.raises(hs.errors.AccessError):
                hs.rechunk(array, chunks=(4, 4))
            with pytest.raises(hs.errors.AccessError):
                hs.sweep(array)
            assert hs.open(outer)["a"][...].sum() == 5 * 200
        assert hs.sweep(url) == 2
        assert hs.open(outer)["a"][...].sum() == 5 * 200

    def test_other_files_of_that_name(self, tmp_path):
        (tmp_path / "zarr.json").write_text("{nonsense")
        hs.save(tmp_path / "x/a", VALUES, chunks=(5, 5))
        assert (hs.rechunk(tmp_path / "x/a", chunks=(4, 4))[...] == VALUES).all()


class TestSweep:
    def test_only_old_objects_go(self, array, url):
        store, path = locate(url)
        lead = path + "/" if path else ""
        for name in ("notes.txt", "c.txt", "c/0/0/0", "0.0.0", "other/c/0/0"):
            if name != "c/0/0/0" or url.startswith("memory"):
                store.put(lead + name, b"x")
        before = names(url)
        assert hs.sweep(url) == 0
        assert names(url) == before
        old = hs.open(url)
        hs.rechunk(url, **NEW)
        assert (old[...] == VALUES).all()
        assert hs.sweep(url) == 6
        assert names(url) == (before - {f"c/{i}/{j}" for i in range(2) for j in range(3)}) | {
            f"c.0.{n}" for n in range(5)
        }
        assert (hs.open(url)[...] == VALUES).all()
        with pytest.raises(hs.errors.IntegrityError):
            hs.Array(old.source, old.store, old.session)[...]

    def test_all_below_a_group(self, tmp_path):
        group = hs.create_group(tmp_path / "g")
        for name in ("a", "deep/b"):
            group.save(name, VALUES, chunks=(5, 5), shards=(10, 10))
            hs.rechunk(tmp_path / "g" / name, **NEW)
        assert hs.sweep(tmp_path / "g") == 12
        assert hs.sweep(tmp_path / "g") == 0

    def test_interrupted_sweep(self, array, url):
        hs.rechunk(url, **NEW)
        handle, store = through(hs.open(url, mode="r+"))
        store.faults.append(Fault("c/1/0", on="put", error=hs.errors.StoreError("broken")))
        with pytest.raises(hs.errors.StoreError, match="broken"):
            hs.sweep(handle)
        assert (hs.open(url)[...] == VALUES).all()
        with pytest.raises(InvalidInputError, match=r"hs\.sweep"):
            hs.rechunk(url, chunks=(4, 4))
        hs.sweep(url)
        assert (hs.rechunk(url, chunks=(4, 4))[...] == VALUES).all()

    def test_writers_in_the_meantime(self, array, url):
        hs.rechunk(url, **NEW)
        handle, store = through(hs.open(url, mode="r+"))
        values = VALUES.copy()

        def write() -> None:
            hs.open(url, mode="r+")[0] = 0
            array[1] = 1

        store.faults.append(Fault("c/1/0", on="put", run=write))
        hs.sweep(handle)
        values[0], values[1] = 0, 1
        assert (hs.open(url)[...] == values).all()


def test_written_boxes_stay_few():
    change = Change("t", (10_000,), {})
    for n in range(0, 1200, 2):
        change = change.with_written([Box((n,), (n + 1,))])
    assert change.number == 600
    assert len(change.written) <= 512
    assert all(any(box.start[0] <= n < box.stop[0] for box in change.since(0)) for n in range(0, 1200, 2))
