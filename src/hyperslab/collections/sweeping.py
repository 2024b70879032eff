"""Deleting objects that a collection no longer refers to, once nobody can be reading or writing them any more.

Packs and segments are orphans when no manifest names them: those of a put that never ended, of segments that were
merged, of arrays that were moved. How old an object is does not say how long it has been an orphan. So the first sweep
that finds one leaves a mark beside the collection, and it is deleted by a sweep that finds the mark as old as the grace
time; a put that ends late takes its objects back until then. Ages are by the store's own clock, as its listing tells.
"""

import re
import secrets
from typing import Any

from hyperslab.collections.index import Index
from hyperslab.collections.manifest import fetch_manifest, join
from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.store import Listed, Store

__all__ = ["MARKS", "sweep"]

MARKS = "orphans"
# What is called otherwise was not made by a collection, though it lies here.
_OURS = re.compile(r"packs/[0-9a-f]{32}\.pack|index/[0-9a-f]{32}\.seg")


def sweep(session: Session, store: Store, path: str, grace_s: Any) -> int:
    """Delete what has been an orphan for longer than `grace_s`, mark what has become one; return how many went."""
    if not isinstance(grace_s, int | float) or not grace_s >= 0:
        raise InvalidInputError(f"grace_s is 0 seconds or more, not {grace_s!r:.80}")
    return _Sweep(session, store, path, grace_s).run()


class _Sweep:
    def __init__(self, session: Session, store: Store, path: str, grace_s: float) -> None:
        self.session, self.store, self.path, self.grace_s = session, store, path, grace_s
        self.writer = StoreWriter(session, store)

    def run(self) -> int:
        # Listed before the manifest is read: what is stored from now on is left alone.
        listed = [self._short(each) for part in ("packs", "index") for each in self._listing(part)]
        used = self._used()
        marks, now_ns = self._marks()
        orphans = {short for short in listed if short not in used and _OURS.fullmatch(short)}
        for mark in marks.keys() - orphans:
            self.writer.delete(self._mark(mark))
        for short in orphans - marks.keys():
            self.writer.put(self._mark(short), b"")
        # With no grace at all, none is waited for.
        old = (
            orphans
            if not self.grace_s
            else {each for each in orphans & marks.keys() if self._is_old(marks[each], now_ns)}
        )
        self.writer.each(sorted(old), self._delete, held_bytes=1)
        return len(old)

    def _delete(self, short: str) -> None:
        self.writer.delete(join(self.path, short))
        self.writer.delete(self._mark(short))

    def _is_old(self, mark: Listed, now_ns: int) -> bool:
        return now_ns - mark.modified_ns >= self.grace_s * 1e9

    def _marks(self) -> tuple[dict[str, Listed], int]:
        """Return the marks that there are, by what they are of, and the time by the store's clock."""
        clock = join(self.path, f"{MARKS}/now-{secrets.token_hex(8)}")
        self.writer.put(clock, b"")
        listed = self._listing(MARKS)
        self.writer.delete(clock)
        now_ns = next(each.modified_ns for each in listed if each.key == clock)
        marks = {self._short(each).removeprefix(f"{MARKS}/").replace("-", "/", 1): each for each in listed}
        return {short: each for short, each in marks.items() if _OURS.fullmatch(short)}, now_ns

    def _mark(self, short: str) -> str:
        return join(self.path, f"{MARKS}/{short.replace('/', '-', 1)}")

    def _short(self, listed: Listed) -> str:
        return listed.key.removeprefix(self.path).removeprefix("/")

    def _listing(self, part: str) -> list[Listed]:
        return self.writer.listing(join(self.path, part))

    def _used(self) -> set[str]:
        """Return what the manifest refers to, and the packs that segments do."""
        found = fetch_manifest(self.writer, self.path)
        if found is None:
            raise NotFoundError(f"there is no collection at {self.path!r} any more")
        index = Index(self.session, self.store, self.path, found[0])
        used = {f"index/{segment.name}.seg" for segment in found[0].segments}
        for place in range(len(index.segments)):
            for block in index.through(place):
                used |= {f"packs/{name}.pack" for name in block.packs()}
        return used
