"""Random lives of arrays that others change while they are read: each object old or new, or an error that says so."""

import itertools
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.faulty import Fault, FaultyStore, slow_down
from support.hostile import FILL, encode
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import ConflictError, HyperslabError, InvalidInputError, StoreError
from hyperslab.execute import retry
from hyperslab.store import locate, memory

SHAPE, CHUNKS = (12, 12), (3, 3)
_names = itertools.count()


def grid_of(layout: str) -> int:
    """The cells along each axis of one object."""
    return 6 if layout.startswith("shards") else 3


class Handles(RuleBasedStateMachine):
    """The model: for each object its cells at every version so far; the last one is what is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.session: hs.Session | None = None
        self.folder: tempfile.TemporaryDirectory | None = None

    @initialize(
        layout=st.sampled_from(["plain", "zstd", "shards", "shards-zstd", "shards-start"]),
        where=st.sampled_from(["memory", "memory", "file"]),
        cache_bytes=st.sampled_from([0, 400, 1 << 20]),
        concurrency=st.sampled_from([1, 8]),
        disk=st.booleans(),
    )
    def begin(self, layout, where, cache_bytes, concurrency, disk):
        self.layout, self.where, self.size = layout, where, grid_of(layout)
        self.folder = tempfile.TemporaryDirectory()
        kept = Path(self.folder.name, "kept") if disk else None
        self.options = {"cache_bytes": cache_bytes, "concurrency": concurrency, "disk_cache": kept, "retries": 2}
        self.name = f"handles-{os.getpid()}-{next(_names)}"
        self.versions: dict[str, list[np.ndarray]] = {}
        self.value = 1000
        for key, data in encode(self.fresh(), CHUNKS, layout).items():
            self.write(key, data)
        self.session = hs.Session(**self.options)
        self.open()

    # The store

    def write(self, key: str, data: bytes) -> None:
        if self.where == "memory":
            memory(self.name).put(f"a/{key}", data)
            return
        path = Path(self.folder.name, "a", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").replace(path)

    def fresh(self) -> np.ndarray:
        """New cells for the whole array, noted for every object."""
        self.value += 1000
        data = (self.value + np.arange(144, dtype="i4")).reshape(SHAPE)
        for key in self.keys():
            self.versions.setdefault(key, []).append(data[self.cells(key)])
        return data

    def keys(self) -> list[str]:
        return [f"c/{a}/{b}" for a in range(12 // self.size) for b in range(12 // self.size)]

    def cells(self, key: str) -> tuple[slice, slice]:
        a, b = (int(part) * self.size for part in key.split("/")[1:])
        return slice(a, a + self.size), slice(b, b + self.size)

    # What happens

    def open(self) -> None:
        url = f"memory://{self.name}/a" if self.where == "memory" else Path(self.folder.name, "a")
        opened = hs.open(url, session=self.session)
        self.faulty = FaultyStore(locate(str(url))[0]) if self.where == "memory" else None
        self.array = hs.Array(opened.source, self.faulty or opened.store, self.session)
        self.failing = False

    @rule(number=st.integers(0, 15))
    def replace_object(self, number):
        key = self.keys()[number % len(self.keys())]
        self.value += 1000
        data = (self.value + np.arange(144, dtype="i4")).reshape(SHAPE)
        self.versions[key].append(data[self.cells(key)])
        self.write(key, encode(data, CHUNKS, self.layout)[key])

    @rule(number=st.integers(0, 15))
    def delete_object(self, number):
        key = self.keys()[number % len(self.keys())]
        self.versions[key].append(np.full((self.size, self.size), FILL, "i4"))
        if self.where == "memory":
            with suppress(FileNotFoundError):
                memory(self.name).delete(f"a/{key}")
        else:
            Path(self.folder.name, "a", key).unlink(missing_ok=True)

    @rule()
    def refresh(self):
        self.array = self.array.refresh()

    @rule()
    def reopen(self):
        self.session.close()
        with pytest.raises(InvalidInputError):
            self.array[0, 0]
        self.session = hs.Session(**self.options)
        self.open()

    @precondition(lambda self: self.where == "memory")
    @rule(
        kind=st.sampled_from(["passing", "lasting", "damaged", "changing"]),
        number=st.integers(0, 15),
        skip=st.integers(0, 3),
    )
    def break_something(self, kind, number, skip):
        self.failing = True
        key = self.keys()[number % len(self.keys())]
        if kind == "passing":
            self.faulty.faults.append(Fault(key, times=2, skip=skip, error=slow_down))
        elif kind == "lasting":
            self.faulty.faults.append(Fault(key, times=None, skip=skip, error=slow_down))
        elif kind == "damaged":
            self.faulty.faults.append(Fault(key, times=1, skip=skip, error=lambda: StoreError("garbage")))
        else:
            self.faulty.faults.append(Fault(key, times=1, skip=skip, run=lambda: self.replace_object(number)))

    @precondition(lambda self: self.where == "memory")
    @rule()
    def mend(self):
        self.faulty.faults.clear()
        self.failing = False

    @rule(
        bounds=st.tuples(*[st.integers(0, 12)] * 4),
        steps=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        method=st.sampled_from([None, None, "get", "merge", "fetch", "paper"]),
        twice=st.booleans(),
    )
    def read(self, bounds, steps, method, twice):
        a, b, c, d = bounds
        box = (slice(min(a, b), max(a, b), steps[0]), slice(min(c, d), max(c, d), steps[1]))
        try:
            if twice:
                found = self.array.read_boxes([box, box], method=method)[1]
            else:
                found = self.array.read(box, method=method)
        except ConflictError:
            self.array = self.array.refresh()
            return
        except HyperslabError:
            assert self.failing
            return
        self.check(found, box)

    @precondition(lambda self: not self.failing)
    @rule()
    def read_after_refresh(self):
        """A fresh handle shows what is stored now."""
        found = self.array.refresh()[...]
        for key in self.keys():
            assert np.array_equal(found[self.cells(key)], self.versions[key][-1])

    def check(self, found, box):
        """Each object's cells are of one version."""
        rows, columns = np.indices(SHAPE)[0][box], np.indices(SHAPE)[1][box]
        assert found.shape == rows.shape
        for key in self.keys():
            across, down = self.cells(key)
            inside = (rows >= across.start) & (rows < across.stop) & (columns >= down.start) & (columns < down.stop)
            if not inside.any():
                continue
            at = rows[inside] - across.start, columns[inside] - down.start
            assert any(np.array_equal(found[inside], version[at]) for version in self.versions[key][::-1]), key

    @invariant()
    def limits_hold(self):
        if self.session is not None:
            assert self.session.cache.used_bytes <= self.session.cache.limit_bytes

    def teardown(self):
        if self.session is not None:
            self.session.close()
        if self.folder is not None:
            self.folder.cleanup()


def test_lives_of_handles(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.0005)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Handles,
        settings=settings(
            max_examples=times(35, 6000), stateful_step_count=30, deadline=None, suppress_health_check=checks
        ),
    )
