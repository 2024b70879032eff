"""Reading arrays out of packs: copied from mapped files, or by one plan for all of them.

Every array is held to its checksum, wherever its bytes come from. Over a network, arrays that are read of one pack
again and again are soon dearer than the whole pack would have been: then that is fetched once, and kept in the
session's cache (section 6.3 of the Henosis paper, with the cost model to say when). Arrays that a plan keeps in a
key/value tier are asked for there first; whatever the tier does not give is read from packs.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from hyperslab.collections.blocks import Entry
from hyperslab.collections.index import Index
from hyperslab.collections.names import encoded, shown, unknown
from hyperslab.collections.packs import pack_key, pack_layout
from hyperslab.collections.tier import Tier, keyed_of
from hyperslab.errors import ConflictError, IntegrityError, NotFoundError
from hyperslab.execute import Ledger, Options, ReadTask, Session, Snapshot, read, recording
from hyperslab.execute.file import send_lookups
from hyperslab.execute.light import MOST_LISTED, Described, Listed, Thinned
from hyperslab.execute.run import Job
from hyperslab.layout.checksums import crc32c
from hyperslab.selection import Selection, Span
from hyperslab.store import LocalStore, Reply, Store

if TYPE_CHECKING:
    from hyperslab.collections.finding import Finder

__all__ = ["ID_LIMIT", "Bytes", "PackReader", "check_whole"]

Arrays = list[npt.NDArray[Any]]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

# Ids are below this, so that a log of reads, which takes a collection for a line of ids, can hold them.
ID_LIMIT = (1 << 62) - 1
_LINE = Described((ID_LIMIT,), np.dtype(np.uint8), (1,), np.dtype(np.uint8), (1,))

# Memory for larger arrays is taken only once their pack has been seen to be as long as the index says.
_LARGE_BYTES = 64 << 20
_MOST_PACKS = 1 << 16
# Mapped packs that are held, each of which takes a file descriptor; and how long one is used before its file is looked
# at again: one look takes as long as reading two arrays.
_MOST_VIEWS = 256
_TRUST_S = 0.1
# Loading compiled loops takes about so long. They are loaded when as much was spent without them; fewer arrays than
# these are read as fast without.
LOADING_S = 0.5
_SEVERAL = 4

_PLAIN_READ = Options()
# What is left of a deadline when the tier has taken all of it.
_LEAST_S = 1e-3


class PackReader:
    """Reads arrays of one collection. `moved` says whether the collection was changed since it was opened."""

    def __init__(
        self,
        session: Session,
        store: Store,
        path: str,
        url: str,
        moved: Callable[[], bool],
        tier: Tier | None = None,
    ) -> None:
        self.session, self.store, self.path, self.url, self._moved = session, store, path, url, moved
        self.tier = tier
        self._snapshot = Snapshot()
        # What was spent on parts of each pack so far.
        self._spent: dict[str, float] = {}
        # Mapped packs, and when their files were last looked at.
        self._views: dict[str, tuple[float, memoryview]] = {}
        # What has been spent on arrays of mapped packs; the compiled way to read these, once it pays to load it.
        self._mapped_s = 0.0
        self._finder: Finder | None = None

    def read(self, index: Index, names: Sequence[str], options: Options = _PLAIN_READ) -> Arrays:
        """Return the arrays of these names, in this order."""
        session, store = self.session, self.store
        session.check_open()
        # As `read_packs` does: one more call would be felt by those who read small arrays one by one.
        straight = isinstance(store, LocalStore) and options is _PLAIN_READ
        straight = straight and session.account is None and session.sink is None
        if straight and self._mapped_s >= LOADING_S and len(names) >= _SEVERAL and self.tier is None:
            arrays = self._read_at_once(cast(LocalStore, store), index, names)
            if arrays is not None:
                return arrays
        entries = _entries(index, names)
        if self.tier is not None and (keyed := keyed_of(entries)):
            return self._read_tiered(self.tier, keyed, entries, options)
        if straight:
            return self._read_mapped(cast(LocalStore, store), entries, entries)
        return self._read_planned(entries, options, entries)

    def read_packs(
        self, entries: Sequence[Entry], options: Options = _PLAIN_READ, told: Sequence[Entry] | None = None
    ) -> Arrays:
        """Return the arrays of these entries out of packs; what is recorded is that those of `told` were read."""
        session, store = self.session, self.store
        straight = isinstance(store, LocalStore) and options is _PLAIN_READ
        if straight and session.account is None and session.sink is None:
            return self._read_mapped(cast(LocalStore, store), entries, told or entries)
        return self._read_planned(entries, options, told or entries)

    def _read_tiered(self, tier: Tier, keyed: dict[int, Entry], entries: Sequence[Entry], options: Options) -> Arrays:
        """Take what the tier has and the rest from packs; what was missing is put back."""
        started_at, began = time.time(), time.perf_counter()
        # A tier that does not answer must leave time for the packs.
        held = tier.get(keyed, timeout_s=None if options.deadline is None else options.deadline / 2)
        rest = [entry for entry in entries if entry.id not in held]
        left = options
        if options.deadline is not None:
            left = replace(options, deadline=max(_LEAST_S, options.deadline - (time.perf_counter() - began)))
        packed = self.read_packs(rest, left, entries) if rest else []
        ledger = Ledger(0 if rest else 1, needed_bytes=sum(map(len, held.values())), cache_hits=len(held))
        ledger.seconds = 0.0 if rest else time.perf_counter() - began
        self.session.metrics.add(ledger)
        if not rest and (recording.active is not None or self.store.record is not None):
            self._record(_ids(entries), ledger, started_at, options.method)
        missing = {entry.id: (entry, array) for entry, array in zip(rest, packed, strict=True) if entry.id in keyed}
        if missing:
            tier.put_back(missing.values())
        tier.guard.tell(stacklevel=4)
        others = iter(packed)
        return [_held(entry, held[entry.id]) if entry.id in held else next(others) for entry in entries]

    def _read_at_once(self, store: LocalStore, index: Index, names: Sequence[str]) -> Arrays | None:
        """Read arrays by compiled loops; None where that is not possible, or something is not as usual."""
        finder = self._finder
        if finder is None or finder.index is not index:
            found = _finder_class()
            if found is None:
                return None
            finder = self._finder = found(index, partial(self._mapped, store))
        started_at, began = time.time(), time.perf_counter()
        taken = finder.read(names, began, began - _TRUST_S)
        if taken is None:
            return None
        arrays, packs, nbytes, ids = taken
        ledger = Ledger(1, packs, 0, nbytes, nbytes, seconds=time.perf_counter() - began)
        self.session.metrics.add(ledger)
        if recording.active is not None or store.record is not None:
            self._record(ids, ledger, started_at, None)
        return arrays

    def _read_mapped(self, store: LocalStore, entries: Sequence[Entry], told: Sequence[Entry]) -> Arrays:
        """Copy arrays out of mapped packs."""
        from google_crc32c import value as checksum

        started_at, began, nbytes = time.time(), time.perf_counter(), 0
        views: dict[str, memoryview] = {}
        arrays: Arrays = []
        ndarray, seen, since = np.ndarray, self._views, began - _TRUST_S
        for entry in entries:
            pack, start, stop, dtype, shape, stored, _, _, pack_nbytes, _ = entry
            view = views.get(pack)
            if view is None:
                # As `_mapped` does: a call for each pack would be felt.
                at_hand = seen.get(pack)
                if at_hand is not None and at_hand[0] > since:
                    view = views[pack] = at_hand[1]
                else:
                    view = views[pack] = self._mapped(store, pack, pack_nbytes)
            # Checked after it was copied: nobody can change it any more.
            array: npt.NDArray[Any] = ndarray(shape, dtype, bytearray(view[start:stop]))
            if checksum(array) != stored:  # type: ignore[arg-type,unused-ignore]
                raise _damaged(entry, array)
            nbytes += stop - start
            arrays.append(array)
        seconds = time.perf_counter() - began
        self._mapped_s += seconds
        ledger = Ledger(1, len(views), 0, nbytes, nbytes, seconds=seconds)
        self.session.metrics.add(ledger)
        if recording.active is not None or store.record is not None:
            self._record(_ids(told), ledger, started_at, None)
        return arrays

    def _mapped(self, store: LocalStore, pack: str, nbytes: int) -> memoryview:
        """Return the bytes of a pack. Its file is never written to: it is enough to look at it now and then."""
        if not nbytes:
            return memoryview(b"")
        key = pack_key(self.path, pack)
        try:
            mapped = store.map(key)
        except NotFoundError:
            raise self._gone(key) from None
        if mapped.nbytes != nbytes:
            raise IntegrityError(f"{key!r} has {mapped.nbytes} bytes, the index says {nbytes}; was it cut off?")
        view = mapped.bytes.data
        if len(self._views) >= _MOST_VIEWS:
            self._views.clear()
            if self._finder is not None:
                self._finder.forget()
        self._views[pack] = time.perf_counter(), view
        return view

    def _read_planned(self, entries: Sequence[Entry], options: Options, told: Sequence[Entry]) -> Arrays:
        """Read arrays by one plan, each once."""
        started_at = time.time()
        fetching = _Fetching(self, {entry.id: entry for entry in entries if entry.nbytes})
        try:
            self._check_large(fetching.entries)
            found, ledger = fetching.run(options)
        except IntegrityError as error:
            if self._moved():
                raise ConflictError(f"{error}; the collection was changed meanwhile: call refresh()") from error
            raise
        if recording.active is not None or self.store.record is not None:
            self._record(_ids(told), ledger, started_at, options.method)
        return _arrays(entries, found)

    def _check_large(self, entries: Iterable[Entry]) -> None:
        large = {pack_key(self.path, entry.pack): entry for entry in entries if entry.nbytes > _LARGE_BYTES}

        def done(job: Job, reply: Reply) -> None:
            if reply.object_nbytes != large[job.key].pack_nbytes:
                raise IntegrityError(f"{job.key!r} has {reply.object_nbytes} bytes, the index says otherwise")

        def missing(job: Job) -> None:
            raise self._gone(job.key)

        if large:
            jobs = [Job(-1, key, (0, 1), 1, lookup=True) for key in large]
            send_lookups(self.session, self.store, jobs, done, missing)

    def pays(self, pack: str, pack_nbytes: int, nbytes: int) -> bool:
        """Note that so many bytes of a pack are wanted; say whether it is time to fetch all of it."""
        # A value may fill a quarter of the cache.
        if isinstance(self.store, LocalStore) or pack_nbytes * 4 > self.session.cache.limit_bytes:
            return False
        model = self.session.model(self.store)
        spent = self._spent.get(pack, 0.0) + float(model.cost(1, nbytes, nbytes))
        if len(self._spent) >= _MOST_PACKS:
            self._spent.clear()
        self._spent[pack] = spent
        return spent > float(model.cost(1, pack_nbytes, pack_nbytes))

    def task(self, key: str, pack_nbytes: int, start: int, target: Bytes) -> ReadTask:
        """Return the task of reading bytes of a pack."""
        selection = Selection((pack_nbytes,), (Span(start, target.nbytes),), (0,))
        return ReadTask(self.url, self.store, pack_layout(key, pack_nbytes), self._snapshot, selection, target)

    def _gone(self, key: str) -> Exception:
        if self._moved():
            return ConflictError(f"{key!r} is gone: the collection was changed and swept since; call refresh()")
        return IntegrityError(f"{key!r} is gone; the arrays in it cannot be read without it")

    def _record(self, ids: Ints, ledger: Ledger, started_at: float, method: str | None) -> None:
        """Leave a record with those who record reads: to them a collection is one line of ids, and a read some."""
        told = recording.recorders(self.store.record) if self.session.recorded else ()
        if not told or not len(ids):
            return
        ids = np.unique(ids)
        every = -(-len(ids) // MOST_LISTED)
        more = (recording.new_numbers(1), 0, ledger.needed_bytes, None)
        row = (self.url, _LINE, Listed((Thinned(ids[::every], every),)), ledger, started_at, method, more)
        for recorder in told:
            recorder.rows.append(row)
            if len(recorder.rows) >= recorder.most or started_at > recorder.due_at:
                recorder.write()


class _Fetching:
    """Arrays on their way out of packs that are not mapped."""

    def __init__(self, reader: PackReader, entries: dict[int, Entry]) -> None:
        self.reader, self.entries = reader, list(entries.values())
        self._by_pack: dict[tuple[str, int], list[Entry]] = {}
        for entry in self.entries:
            self._by_pack.setdefault((entry.pack, entry.pack_nbytes), []).append(entry)

    def run(self, options: Options) -> tuple[dict[int, Bytes], Ledger]:
        """Return the bytes of each array by its id, and what that cost."""
        reader, session = self.reader, self.reader.session
        found: dict[int, Bytes] = {}
        tasks: list[ReadTask] = []
        wholes: list[tuple[str, Bytes, list[Entry]]] = []
        for (pack, nbytes), entries in self._by_pack.items():
            key = pack_key(reader.path, pack)
            whole = session.cache.get(_cache_key(reader.store, key))
            if whole is not None:
                _cut(whole, entries, found)
            elif reader.pays(pack, nbytes, sum([entry.nbytes for entry in entries])):
                whole = np.empty(nbytes, np.uint8)
                wholes.append((key, whole, entries))
                tasks.append(reader.task(key, nbytes, 0, whole))
            else:
                for entry in entries:
                    target = found[entry.id] = np.empty(entry.nbytes, np.uint8)
                    tasks.append(reader.task(key, nbytes, entry.start, target))
        # Not one by one: what is recorded are ids of the collection.
        ledger = read(session, tasks, replace(options, recorded=False)) if tasks else Ledger(reads=1)
        for key, whole, entries in wholes:
            _cut(whole, entries, found)
            session.cache.put(_cache_key(reader.store, key), whole, whole.nbytes)
        return found, ledger


@lru_cache(maxsize=1)
def _finder_class() -> "type[Finder] | None":
    """Return what reads arrays by compiled loops, None if there is no numba or the processor lacks something."""
    try:
        from hyperslab.collections import finding
    except ImportError:
        return None
    return finding.Finder if finding.is_possible() else None


def _ids(entries: Iterable[Entry]) -> Ints:
    return np.array([entry.id for entry in entries], np.int64)


def _cache_key(store: Store, key: str) -> tuple[str, str, str]:
    """Name a pack in the cache. No two packs ever have one key, so that no version has to be told."""
    return store.address, key, "pack"


def _cut(whole: Bytes, entries: Iterable[Entry], found: dict[int, Bytes]) -> None:
    for entry in entries:
        found[entry.id] = whole[entry.start : entry.stop].copy()


def _entries(index: Index, names: Sequence[str]) -> Sequence[Entry]:
    if index.searched and (held := index.held(names)) is not None and None not in held:
        return cast(list[Entry], held)
    known = index.known
    try:
        entries = [known.get(name) for name in names]
    except TypeError:
        for name in names:
            encoded(name)
        raise
    if None in entries:
        found = index.find({name for name, entry in zip(names, entries, strict=True) if entry is None})
        entries = [entry or found.get(name) for name, entry in zip(names, entries, strict=True)]
        if None in entries:
            raise unknown(names[entries.index(None)])
    return cast(list[Entry], entries)


def _arrays(entries: Sequence[Entry], found: dict[int, Bytes]) -> Arrays:
    """Return the arrays that entries are of; each has memory of its own, though it may have been asked for twice."""
    arrays: Arrays = []
    made: dict[int, npt.NDArray[Any]] = {}
    for entry in entries:
        if entry.id in made:
            arrays.append(made[entry.id].copy())
            continue
        array: npt.NDArray[Any] = np.ndarray(entry.shape, entry.dtype, found.get(entry.id, bytearray()))
        check_whole(entry, array)
        made[entry.id] = array
        arrays.append(array)
    return arrays


def check_whole(entry: Entry, array: npt.NDArray[Any]) -> None:
    """Hold an array to its checksum."""
    if crc32c(array) != entry.crc32c:
        raise _damaged(entry, array)


def _held(entry: Entry, data: memoryview) -> npt.NDArray[Any]:
    """Return an array of the tier's bytes, which have been held to their checksum, in memory of its own."""
    return np.ndarray(entry.shape, entry.dtype, bytearray(data))


def _damaged(entry: Entry, array: npt.NDArray[Any]) -> IntegrityError:
    return IntegrityError(
        f"array {shown(entry.name)} is damaged: its crc32c is {crc32c(array):#010x}, stored was {entry.crc32c:#010x} "
        f"(bytes {entry.start}..{entry.stop} of pack {entry.pack})"
    )
