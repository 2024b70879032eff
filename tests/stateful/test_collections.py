"""Random lives of a collection with several handles, against a dictionary for each of them."""

import itertools
import os
import tempfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import settings
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
from support.plans import random_plan
from support.profiles import times

import hyperslab as hs
from hyperslab.collections import index, segment, writing
from hyperslab.collections.collection import open_at
from hyperslab.errors import ConflictError, NotFoundError, StoreError
from hyperslab.execute import retry
from hyperslab.store import LocalStore, locate
from hyperslab.store.keyvalue import Guard, open_tier

pytest.importorskip("lmdb")

_numbers = itertools.count()
NAMES = ["", "a", "a/b", "a/c", "b", "..", "é", "z"]
names = st.sampled_from(NAMES)
some_names = st.lists(names, max_size=5)


class Collections(RuleBasedStateMachine):
    """The model: what is stored, as a dictionary of values, and what each handle should see."""

    def __init__(self) -> None:
        super().__init__()
        self.session: hs.Session | None = None

    @initialize(
        where=st.sampled_from(["memory", "file", "files as a network"]),
        cache=st.sampled_from([0, 1 << 20]),
        with_tier=st.booleans(),
        at_once=st.booleans(),
    )
    def begin(self, where, cache, with_tier, at_once):
        self.folder = tempfile.TemporaryDirectory()
        self.session = hs.Session(cache_bytes=cache, retries=2)
        if where == "memory":
            store, path = locate(f"memory://collections-lives-{os.getpid()}-{next(_numbers)}/c")
        else:
            store, path = LocalStore(self.folder.name), "c"
        self.faulty = FaultyStore(store)
        self.store, self.path = store if where == "file" else self.faulty, path
        # Whether compiled loops read what is mapped.
        self.mapped_s = float("inf") if at_once else -float("inf")
        self.stored: dict[str, int] = {}
        self.value = 0
        tier = open_tier(os.path.join(self.folder.name, "tier"), capacity_bytes=1 << 20)
        self.guard = Guard(tier) if with_tier else None
        self.handles = [self.open("w-"), self.open("r+")]
        self.seen: list[dict[str, int]] = [{}, {}]
        # What was swept under a handle's feet.
        self.lost = [False, False]

    def open(self, mode):
        opened = open_at("here", self.store, self.path, self.session, mode, self.guard)
        opened._reader._mapped_s = self.mapped_s
        return opened

    def fresh(self, name):
        self.value += 1
        return name, np.full((2, 2), self.value, "i4"), {"x": self.value}

    def changed(self, which):
        self.seen[which], self.lost[which] = dict(self.stored), False

    @rule(which=st.integers(0, 1), chosen=some_names, pack_bytes=st.sampled_from([16, 40, 1 << 20]))
    def put(self, which, chosen, pack_bytes):
        items = [self.fresh(name) for name in chosen]
        if not items:
            return
        self.handles[which].put_many(items, pack_bytes=pack_bytes)
        self.stored |= {name: int(array[0, 0]) for name, array, _ in items}
        self.changed(which)

    @rule(which=st.integers(0, 1), name=names)
    def delete(self, which, name):
        if self.lost[which]:
            return
        if name not in self.seen[which]:
            with pytest.raises(NotFoundError):
                del self.handles[which][name]
            return
        del self.handles[which][name]
        self.stored.pop(name, None)
        self.changed(which)

    @rule(which=st.integers(0, 1))
    def compact(self, which):
        self.handles[which].compact()
        self.changed(which)

    @rule(which=st.integers(0, 1), seed=st.integers(0, 1000), most=st.integers(1, 4))
    def apply(self, which, seed, most):
        """A plan of what a handle sees, which may be old; what is there now is moved."""
        if self.lost[which]:
            return
        self.handles[which].apply(random_plan(self.handles[which], np.random.default_rng(seed), most))
        self.changed(which)

    @precondition(lambda self: self.guard is not None)
    @rule(what=st.sampled_from(["emptied", "poisoned"]))
    def spoil_the_tier(self, what):
        keys = list(self.guard.tier.keys())
        if what == "emptied":
            self.guard.tier.delete_many(keys)
        else:
            self.guard.tier.put_many(dict.fromkeys(keys, b"poison"))

    @rule(which=st.integers(0, 1))
    def refresh(self, which):
        self.handles[which] = self.handles[which].refresh()
        self.changed(which)

    @rule(which=st.integers(0, 1))
    def sweep_patiently(self, which):
        assert self.handles[which].sweep(grace_s=3600) == 0

    @rule(which=st.integers(0, 1))
    def sweep_at_once(self, which):
        if self.handles[which].sweep(grace_s=0):
            # Handles of other states may have lost what they read.
            for each in (0, 1):
                self.lost[each] = self.handles[each].manifest != self.open("r").manifest

    @precondition(lambda self: self.store is self.faulty)
    @rule(on=st.sampled_from(["get", "put"]), skip=st.integers(0, 4), after=st.booleans())
    def fail(self, on, skip, after):
        """A retry gets over it, also where the answer to a put is lost; over several in a row it would not."""
        self.faulty.faults[:] = [Fault(times=1, skip=skip, error=slow_down, on=on, after=after and on == "put")]

    @rule(which=st.integers(0, 1), chosen=some_names)
    def read(self, which, chosen):
        model = self.seen[which]
        wanted = [name for name in chosen if name in model]
        try:
            found = self.handles[which].read_many(wanted)
        except (ConflictError, StoreError):
            assert self.lost[which]
            return
        assert [int(array[1, 1]) for array in found] == [model[name] for name in wanted]

    @rule(which=st.integers(0, 1), low=st.integers(0, 30))
    def select(self, which, low):
        if "x" in self.handles[which].manifest.columns and not self.lost[which]:
            model = self.seen[which]
            assert self.handles[which].select(x=(low, None)) == sorted(n for n in model if model[n] >= low)

    @invariant()
    def names_are_right(self):
        for which in (0, 1) if self.session is not None else ():
            with suppress(*[ConflictError] * self.lost[which]):
                assert list(self.handles[which]) == sorted(self.seen[which])
                assert len(self.handles[which]) == len(self.seen[which])

    def teardown(self):
        if self.session is None:
            return
        try:
            fresh = self.open("r")
            found = dict(zip(fresh, fresh.read_many(list(fresh)), strict=True))
            assert {name: int(array[0, 0]) for name, array in found.items()} == self.stored
        finally:
            self.session.close()
            self.folder.cleanup()


@pytest.mark.filterwarnings("ignore::hyperslab.store.keyvalue.TierWarning")
def test_collections(monkeypatch):
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 2)
    monkeypatch.setattr(writing, "_SEGMENT_ROWS", 3)
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)
    run_state_machine_as_test(
        Collections, settings=settings(max_examples=times(40), stateful_step_count=25, deadline=None)
    )
