"""Random lives of an array whose layout is changed step by step, while others write, append, sweep and give up."""

import itertools
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import ConflictError, InvalidInputError
from hyperslab.execute import default_session
from hyperslab.formats.copying import Place
from hyperslab.formats.zarr import array as zarr_array
from hyperslab.rechunk.inplace import LayoutChange
from hyperslab.store import locate

SIZES = [((2, 7), None), ((5, 3), (10, 6)), ((7, 2), None), ((3, 3), (6, 3))]
_names = itertools.count()
keys = st.sampled_from(
    [np.s_[0, 0], np.s_[3:5, 1:6], np.s_[...], np.s_[::3, 2], np.s_[[1, 4], :], np.s_[-1], np.s_[:, 5:]]
)


class Changes(RuleBasedStateMachine):
    """The model is a NumPy array: whoever reads a fresh handle must see just that."""

    handles: list[hs.Array]

    def __init__(self) -> None:
        super().__init__()
        self.folder: tempfile.TemporaryDirectory | None = None
        self.change: LayoutChange | None = None

    @initialize(
        where=st.sampled_from(["memory", "file"]),
        kind=st.sampled_from(["saved", "created", "foreign"]),
    )
    def begin(self, where, kind):
        self.folder = tempfile.TemporaryDirectory()
        where = "file" if kind == "foreign" else where
        name = f"changes-{os.getpid()}-{next(_names)}"
        self.url = f"memory://{name}/a" if where == "memory" else str(Path(self.folder.name, "a"))
        self.where, self.kind, self.number = where, kind, 0
        self.model = np.arange(12 * 8, dtype="i4").reshape(12, 8)
        if kind == "foreign":
            zarr.create_array(self.url, shape=(12, 8), chunks=(4, 4), dtype="i4", fill_value=0)[...] = self.model
        elif kind == "saved":
            hs.save(self.url, self.model, chunks=(2, 2), shards=(4, 4))
        else:
            self.model[...] = 0
            hs.create(self.url, (12, 8), "i4", chunks=(2, 2), shards=(4, 4))
        self.handles, self.attrs, self.step = [self.opened()], {}, None

    def opened(self) -> hs.Array:
        return hs.open(self.url, mode="r+")

    def next_value(self) -> int:
        self.number += 1
        return -self.number

    # The change, step by step

    def stop(self) -> None:
        """The process that changes the layout is gone."""
        if self.change is not None:
            self.change.close()
        self.change = self.step = None

    @precondition(lambda self: self.change is None)
    @rule(sizes=st.sampled_from(SIZES))
    def start(self, sizes):
        store, path = locate(self.url)
        wanted = {"chunks": sizes[0], "shards": sizes[1], "layout": "default"}
        self.change = LayoutChange(Place(default_session(), store, path, self.url), wanted, memory_bytes=64 << 20)
        refused = ""
        try:
            self.step = "move" if self.change.begin() else None
        except InvalidInputError as error:
            refused = str(error)
        assert not refused or "hs.sweep(url)" in refused
        if self.step is None:
            self.stop()

    @precondition(lambda self: self.step is not None)
    @rule()
    def go_on(self):
        refused = ""
        try:
            getattr(self.change, self.step)()
        except ConflictError as error:
            refused = str(error)
        if refused:
            assert self.model.shape != self.change.old.layout.shape, refused
        if refused or self.step == "end":
            self.stop()
            self.read()
        else:
            self.step = "end"

    @precondition(lambda self: self.change is not None)
    @rule()
    def kill(self):
        self.stop()

    @precondition(lambda self: self.change is None)
    @rule()
    def sweep(self):
        hs.sweep(self.url)
        # Handles from before may not be read any more; but they may be written to.
        assert "_hyperslab_change" not in zarr_attributes(self.url)

    @precondition(lambda self: self.change is not None)
    @rule()
    def sweep_too_early(self):
        with pytest.raises(ConflictError):
            hs.sweep(self.url)

    # What others do meanwhile

    @rule()
    def open_another(self):
        self.handles = [*self.handles[-3:], self.opened()]

    @rule(number=st.integers(0, 3), key=keys)
    def write(self, number, key):
        handle = self.handles[number % len(self.handles)]
        value = self.next_value()
        handle[key] = value
        wanted = self.model[tuple(map(slice, handle.shape))]
        wanted[key] = value

    @rule(number=st.integers(0, 3), points=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
    def write_points(self, number, points):
        handle, at = self.handles[number % len(self.handles)], tuple(zip(*points, strict=True))
        value = self.next_value()
        handle.points[at] = value
        self.model[at] = value

    @precondition(lambda self: self.model.shape[0] < 30)
    @rule(rows=st.integers(1, 3))
    def append(self, rows):
        handle = self.opened()
        value = self.next_value()
        handle.append(np.full((rows, self.model.shape[1]), value, "i4"))
        self.model = np.concatenate([self.model, np.full((rows, self.model.shape[1]), value, "i4")])
        self.handles = [self.opened()]

    @rule(cut=st.integers(1, 3))
    def resize(self, cut):
        shape = (max(8, self.model.shape[0] - cut), self.model.shape[1])
        self.opened().resize(shape)
        self.model = self.model[: shape[0]].copy()
        self.handles = [self.opened()]

    @rule(name=st.sampled_from("ab"))
    def set_attribute(self, name):
        self.attrs[name] = self.number
        self.opened().attrs[name] = self.number

    @precondition(lambda self: self.where == "file" and self.kind == "foreign")
    @rule(key=st.sampled_from([np.s_[0, 0], np.s_[:4, :4], np.s_[...]]), fill=st.booleans())
    def write_by_another_program(self, key, fill):
        value = 0 if fill else self.next_value()
        zarr.open_array(self.url, mode="r+")[key] = value
        self.model[key] = value

    # What they see

    @rule()
    def read(self):
        found = hs.open(self.url)
        assert found.attrs == self.attrs
        assert found.shape == self.model.shape
        assert (found[...] == self.model).all()
        if self.where == "file":
            assert (zarr.open_array(self.url, mode="r")[...] == self.model).all()

    def teardown(self):
        self.stop()
        if self.folder is not None:
            if hasattr(self, "url"):
                self.read()
            self.folder.cleanup()


def zarr_attributes(url: str) -> dict:
    store, path = locate(url)
    return json.loads(bytes(store.get((path + "/" if path else "") + "zarr.json").data))["attributes"]


def test_lives_of_arrays_in_changing_layouts(monkeypatch):
    monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Changes,
        settings=settings(
            max_examples=times(20, 3000), stateful_step_count=25, deadline=None, suppress_health_check=checks
        ),
    )
