"""A collection: many small arrays under names, in few objects. What the user sees, over the parts below."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from hyperslab.collections.attributes import attributes_of, selected
from hyperslab.collections.blocks import Entry
from hyperslab.collections.compaction import compact, crowded
from hyperslab.collections.filling import empty_tier, fill_tier
from hyperslab.collections.importing import items_from
from hyperslab.collections.index import Index
from hyperslab.collections.manifest import Manifest, fetch_manifest, manifest_key, new_manifest
from hyperslab.collections.moving import apply_plan
from hyperslab.collections.names import encoded, unknown
from hyperslab.collections.packs import DEFAULT_BYTES
from hyperslab.collections.plans import given_plan
from hyperslab.collections.reading import PackReader
from hyperslab.collections.scanning import count, names_from
from hyperslab.collections.sweeping import sweep
from hyperslab.collections.tier import Tier, guard_of
from hyperslab.collections.writing import Items, Putting, delete_names, items_of
from hyperslab.errors import (
    BudgetError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from hyperslab.execute import Options, Session, check_kind, default_session
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.formats.copying import showing
from hyperslab.plan import Budget, Method
from hyperslab.store import LocalStore, OpenFiles, Store, locate
from hyperslab.store.keyvalue import Guard

if TYPE_CHECKING:
    from hyperslab.collections.advice import CollectionAdvice

__all__ = ["Collection", "Mode", "collection", "open_at"]

Mode = Literal["r", "r+", "a", "w-", "w"]

# Packs of a large collection would push one another out of the mappings that all files share. Each holds a file
# descriptor, and programs that wait by `select` know none above 1023.
_FILES = OpenFiles(mappings=256, mapped_bytes=1 << 42)


def collection(
    url: Any,
    mode: Mode = "r",
    *,
    tier: Any = None,
    tier_bytes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> "Collection":
    """Open the collection at `url`; URL and options as for `hs.open`.

    mode        "r": to be read; "r+": also to be changed; "a": the same, made where there is none; "w-": made, it is an
                error if there is one; "w": made, what another one held is left to `sweep`
    tier        a key/value store for the arrays that a plan keeps there as well: "redis://host:port/0" (or valkey://,
                rediss://), "lmdb:path" for a folder of this machine; it is a cache, and may fail or lose them
    tier_bytes  what it may hold, as it counts its memory or its pages (default: 256 MiB)

    >>> import tempfile, numpy as np, hyperslab as hs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     c = hs.collection(folder + "/c", "w-")
    ...     c.put_many({"a/1": np.arange(3), "a/2": np.eye(2), "b": np.array(5.0)})
    ...     list(c.names("a/")), c["a/1"], len(c)
    (['a/1', 'a/2'], array([0, 1, 2]), 3)
    """
    if mode not in ("r", "r+", "a", "w-", "w"):
        raise InvalidInputError(f"mode is 'r', 'r+', 'a', 'w-' or 'w', not {mode!r:.40}")
    check_kind("session", session, Session)
    store, path = locate(url, storage_options, create=mode in ("a", "w-", "w"))
    if isinstance(store, LocalStore):
        store = LocalStore(store.root, files=_FILES, record=store.record)
    guard = guard_of(tier, tier_bytes)
    return open_at(str(url), store, path, default_session() if session is None else session, mode, guard)


def open_at(
    url: str, store: Store, path: str, session: Session, mode: Mode = "r", guard: Guard | None = None
) -> "Collection":
    """Open the collection at a path of a store."""
    writer = StoreWriter(session, store)
    found = fetch_manifest(writer, path)
    if found is None and mode in ("r", "r+"):
        raise NotFoundError(f"there is no collection at {url!r}; mode 'w-' makes one")
    if found is not None and mode == "w-":
        raise ConflictError(
            f"there is a collection at {url!r} already; open it with mode 'r+', or choose another place"
        )
    manifest = _make(writer, path, mode) if found is None or mode == "w" else found[0]
    if guard is not None and found is not None and found[0].uuid != manifest.uuid:
        # Nobody would ever take out what the tier holds of the old one.
        empty_tier(Tier(guard, found[0].uuid))
    return Collection(url, store, path, session, manifest, writable=mode != "r", guard=guard)


def _make(writer: StoreWriter, path: str, mode: Mode) -> Manifest:
    key, manifest = manifest_key(path), new_manifest()
    try:
        old = writer.get(key, lookup=True) if mode == "w" else None
        etag = None if old is None else versioned(old, key)
        writer.put(key, manifest.dump(), if_match=etag, if_absent=etag is None)
    except ConflictError:
        found = fetch_manifest(writer, path) if mode == "a" else None
        if found is None:
            raise
        return found[0]
    return manifest


class Collection:
    """Arrays of any shape and dtype by their names, each read whole.

    A handle is a snapshot: it sees the collection as it was when it was opened, or when something was last put through
    it; `refresh()` gives a new one. Names are any texts; they sort by their characters. Every change is all or nothing.

    `c[name]` reads an array, `c[name] = array` stores one, `del c[name]` takes it out. `name in c`, `len(c)` and
    iteration are of the names.

    >>> import numpy as np
    >>> import hyperslab as hs
    >>> c = hs.collection("memory://doc/collection", "w-")
    >>> c.put_many({"a": np.arange(3), "b": np.eye(2)}, attrs={"a": {"time": 5}})
    >>> [array.shape for array in c.read_many(["b", "a"])], c.select(time=(0, 10)), "c" in c
    ([(2, 2), (3,)], ['a'], False)
    """

    def __init__(
        self,
        url: str,
        store: Store,
        path: str,
        session: Session,
        manifest: Manifest,
        *,
        writable: bool = False,
        guard: Guard | None = None,
    ) -> None:
        self.url, self.store, self.path, self.session, self.writable = url, store, path, session, writable
        self.manifest = manifest
        self.tier = None if guard is None else Tier(guard, manifest.uuid)
        self._index = Index(session, store, path, manifest)
        self._reader = PackReader(session, store, path, url, self._is_old, self.tier)
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"<hyperslab.Collection {self.url!r} generation {self.manifest.generation}>"

    def __reduce__(self) -> tuple[Any, ...]:
        guard = None if self.tier is None else self.tier.guard
        return _restored, (self.url, self.store, self.path, self.session, self.manifest, self.writable, guard)

    # Reading

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._reader.read(self._index, (name,))[0]

    def read_many(
        self,
        names: Iterable[str],
        *,
        phi: float | None = None,
        budget: Budget | None = None,
        method: Method | None = None,
        deadline: float | None = None,
    ) -> list[npt.NDArray[Any]]:
        """Read several arrays by one plan, in the order of their names; options as for `Array.read`.

        Small arrays that are read together may share memory, up to 1 MiB: copy one that is to outlive the others.
        """
        names = _listed(names)
        if phi is None and budget is None and method is None and deadline is None:
            return self._reader.read(self._index, names)
        return self._reader.read(self._index, names, Options(phi, budget, method, deadline))

    def __contains__(self, name: object) -> bool:
        with suppress(InvalidInputError):
            return isinstance(name, str) and (name in self._index.known or name in self._index.find([name]))
        return False

    def __len__(self) -> int:
        if self._count is None:
            self._count = count(self._index)
        return self._count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return self.names()

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names that begin with a text, sorted."""
        return names_from(self._index, encoded(prefix))

    def entry(self, name: str) -> Entry:
        """Return what the index knows of an array: where it is, its dtype and shape, its id."""
        return self.entries([name])[0]

    def entries(self, names: Iterable[str]) -> list[Entry]:
        """Return the same of several arrays, looked up together."""
        names = _listed(names)
        found = self._index.find(set(names))
        for name in names:
            if name not in found:
                raise unknown(name)
        return [found[name] for name in names]

    def select(self, /, **wanted: Any) -> list[str]:
        """Return the names of arrays by their attributes, sorted; an array without such an attribute is not chosen.

        A tuple is a range: from the first on and below the second, None for no end. A list is several values.
        """
        return selected(self._index, wanted, self.manifest.columns)

    def attributes(
        self, names: Iterable[str] | None = None, columns: Sequence[str] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return attributes as columns, in the order of the names: by default all of them, of all arrays.

        Where an array lacks one, a column of numbers or times is a masked array, one of texts holds None.
        """
        names = list(self.names()) if names is None else _listed(names)
        return attributes_of(self._index, names, self.manifest.columns, columns)

    def info(self) -> dict[str, Any]:
        """Return what the manifest says: nothing else is read."""
        segments = self.manifest.segments
        return {
            "url": self.url,
            "uuid": self.manifest.uuid,
            "generation": self.manifest.generation,
            "segments": len(segments),
            "rows": sum(segment.rows for segment in segments),
            "data_bytes": sum(segment.data_bytes for segment in segments),
            "index_bytes": sum(segment.nbytes for segment in segments),
            "columns": dict(self.manifest.columns),
            "tier": None if self.tier is None else self.tier.guard.tier.address,
        }

    # Changing

    def __setitem__(self, name: str, array: Any) -> None:
        self.put_many([(name, array)])

    def __delitem__(self, name: str) -> None:
        self.delete_many([name])

    def put_many(
        self,
        items: Items,
        attrs: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        progress: Any = None,
        pack_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """Store arrays, all or none, in place of those that have their names.

        items       a mapping of names to arrays, or pairs (name, array), or (name, array, attributes); an iterator is
                    taken one by one, and may give more than memory holds
        attrs       attributes by name: each a bool, number, text or time
        progress    True for a bar on the terminal, or a function of (done_bytes, total_bytes)
        pack_bytes  how many bytes of arrays are stored in one object
        """
        self._check_writable()
        putting = Putting(StoreWriter(self.session, self.store), self.path, self.manifest.columns, pack_bytes)
        total = sum(getattr(array, "nbytes", 0) for array in items.values()) if isinstance(items, Mapping) else 0
        with showing(progress, f"putting into {self.url}") as tell:
            if putting.run(items_of(items, attrs), tell, total):
                self._move(putting.commit(self.manifest.uuid))
                self._tidy()

    def import_from(
        self,
        source: Any,
        *,
        columns: Sequence[str] | None = None,
        images: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        progress: Any = None,
        pack_bytes: int = DEFAULT_BYTES,
    ) -> None:
        """Store all arrays that there are at `source`, all or none, under their paths there.

        source   a directory (its `.npy` files, and images by Pillow), an HDF5 file or a Zarr group
        columns  attributes to take, of those that are single values (default: all)
        images   whether images of a directory are taken
        """
        found = items_from(
            source, columns=columns, images=images, storage_options=storage_options, session=self.session
        )
        self.put_many(found, progress=progress, pack_bytes=pack_bytes)

    def delete_many(self, names: Iterable[str]) -> None:
        """Take arrays out, all or none. Their bytes stay in the packs until those are written anew."""
        self._check_writable()
        names = _listed(names)
        if names:
            self.entries(names)
            writer = StoreWriter(self.session, self.store)
            self._move(delete_names(writer, self.path, self.manifest.uuid, map(encoded, names)))
            self._tidy()

    def advise(
        self,
        workload: Any,
        *,
        key_bytes: int | None = None,
        pack_bytes: int | None = None,
        order_by: Sequence[str] | None = None,
        by: Literal["read", "process"] = "read",
        compare: bool = False,
        folds: int = 5,
        phi: float | None = None,
        progress: Any = None,
    ) -> "CollectionAdvice":
        """Say which arrays should share a pack and which be kept in the tier, for reads like the recorded ones.

        Nothing is changed. What packs and keys cost is measured on the store and the tier. Needs numba, of the extra
        "collections".

        workload    a recording (`hs.record`), a `Workload`, or lists of names that are read together
        key_bytes   what the plan may keep in the tier, as that counts (default: all that it may hold)
        pack_bytes  what a pack may hold (default: what suits the store and the queries)
        order_by    attributes by which arrays may be packed, for queries that are not in the workload (default: some)
        by          whether a query is one "read", or all that one "process" has read
        compare     also say what the plans of the Henosis paper cost; most of them need pymetis
        folds       into how many parts the queries are cut, each of which a plan is held against once
        progress    True for a bar on the terminal, or a function of (done, total)

        >>> import tempfile, numpy as np, hyperslab as hs
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     c = hs.collection(folder + "/c", "w-")
        ...     c.put_many({str(i): np.full(500, i) for i in range(64)}, pack_bytes=16_000)
        ...     advice = c.advise(20 * [["1", "20", "40"], ["2", "30", "63"]], pack_bytes=16_000)
        ...     advice.keep, advice.findings.best.touches
        (False, 40.0)
        """
        from hyperslab.collections.advice import advise
        from hyperslab.collections.advising import Settings

        settings = Settings(key_bytes, pack_bytes, order_by, by, compare, folds, phi)
        return advise(self, workload, settings, progress)

    def to_be_changed(self) -> "Collection":
        """Return the collection as it is stored now, opened to be changed."""
        fresh = self.refresh()
        fresh.writable = True
        return fresh

    def apply(self, plan: Any, *, progress: Any = None) -> None:
        """Pack the arrays anew as a plan says, all or nothing, and fill the tier with those that it keeps there.

        Until the last step readers see the old packs, which stay until a `sweep`. What is put or deleted meanwhile is
        kept. After an interruption the same plan goes on with the packs that are written.

        plan      what `advise` gave (nothing is done if that says so), its `plan`, or the path of one that was saved
        progress  True for a bar on the terminal, or a function of (done_bytes, total_bytes)
        """
        self._check_writable()
        found = given_plan(plan)
        if getattr(plan, "keep", False):
            return
        with showing(progress, f"packing {self.url}") as tell:
            self._move(apply_plan(self.session, self.store, self.path, self.manifest.uuid, found, tell))
        if self.tier is not None:
            with showing(progress, f"filling {self.tier.guard.tier.address}") as tell:
                fill_tier(self.session, self.store, self.path, self.manifest, self.tier, tell)

    def refresh(self) -> "Collection":
        """Return the collection as it is stored now."""
        fresh = _restored(
            self.url, self.store, self.path, self.session, self._latest(), self.writable,
            None if self.tier is None else self.tier.guard,
        )  # fmt: skip
        fresh._index = Index(self.session, self.store, self.path, fresh.manifest, self._index)
        return fresh

    def compact(self) -> None:
        """Merge all segments of the index. Done by itself for the smaller ones, as they come together."""
        self._check_writable()
        self._move(self._latest())
        segments = self.manifest.segments
        if len(segments) > 1 or any(segment.deleted for segment in segments):
            self._move(compact(self.session, self.store, self.path, self.manifest, segments))

    def sweep(self, grace_s: float = 86_400.0) -> int:
        """Delete objects that have belonged to no version of the collection for so long; return how many there were.

        Handles that were opened before may still read them: allow for the longest that a handle is kept, and for the
        longest put. What is found for the first time is only marked, unless `grace_s` is 0.
        """
        self._check_writable()
        return sweep(self.session, self.store, self.path, grace_s)

    def _check_writable(self) -> None:
        if not self.writable:
            raise InvalidInputError(f"{self.url!r} was opened to be read; open it with mode 'r+' to change it")

    def _move(self, manifest: Manifest | None) -> None:
        if manifest is not None and manifest != self.manifest:
            self._index = Index(self.session, self.store, self.path, manifest, self._index)
            self.manifest, self._count = manifest, None

    def _tidy(self) -> None:
        """Merge segments where many have come together; what goes wrong is left for later, as the change is stored."""
        try:
            if merged := crowded(self.manifest.segments):
                self._move(compact(self.session, self.store, self.path, self.manifest, merged))
        except (BudgetError, ConflictError, StoreError):
            return

    def _latest(self) -> Manifest:
        found = fetch_manifest(StoreWriter(self.session, self.store), self.path)
        if found is None:
            raise NotFoundError(f"there is no collection at {self.url!r} any more")
        return found[0]

    def _is_old(self) -> bool:
        return self._latest() != self.manifest


def _restored(
    url: str, store: Store, path: str, session: Session, manifest: Manifest, writable: bool, guard: Guard | None
) -> Collection:  # fmt: skip
    return Collection(url, store, path, session, manifest, writable=writable, guard=guard)


def _listed(names: Any) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInputError(f"names are a list of strings, not {names!r:.80}")
    return list(names)
