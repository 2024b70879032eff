"""The objects of an array in its old layout and in its new one, as a listing of the store shows them."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.array import coords_of
from hyperslab.formats.zarr.change import Seen
from hyperslab.layout import ChunkKeys
from hyperslab.store import Listed, LocalStore

__all__ = ["Listing", "list_objects"]

Coords = tuple[int, ...]

# Clocks of file systems go in steps, and one by which a file is dated may lag behind another.
_MARGIN_NS = 2_000_000_000
# A step of such a clock: of those that keep whole seconds, and of those that keep more.
_COARSE_NS = 2_000_000_000
_FINE_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects by their places in the grid.

    `young` are old ones that were written so shortly before that a write after the listing may not be seen by their
    versions: the file system's clock goes in steps of `step_ns`.
    """

    old: Mapping[Coords, Listed]
    new: Mapping[Coords, Listed]
    young: frozenset[Coords] = frozenset()
    step_ns: int = 0

    def differing(self, earlier: "Listing") -> list[Coords]:
        """Return the places of old objects that were written, made or deleted since an earlier listing, or may be."""
        places = self.old.keys() | earlier.old.keys()
        versions = [(each, self.old.get(each), earlier.old.get(each)) for each in places]
        differ = {each for each, now, then in versions if now is None or then is None or now.version != then.version}
        return sorted(differ | earlier.young)

    def summary(self) -> Seen:
        """Return what has to be kept of the old objects to know later which were written since."""
        newest_ns = max((listed.modified_ns for listed in self.old.values()), default=0)
        names = "\n".join(sorted(listed.key for listed in self.old.values()))
        return Seen(max(0, newest_ns), hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest())

    def written_since(self, seen: Seen) -> list[Coords] | None:
        """Return the places of old objects that may have been written since; None if any of them may have been.

        What is not newer than the newest was then, is as it was. But an object that was deleted has no date.
        """
        if self.summary().keys != seen.keys:
            return None
        return sorted(at for at, each in self.old.items() if each.modified_ns >= seen.newest_ns - _MARGIN_NS)


def list_objects(writer: StoreWriter, old: ArraySource, new: ArraySource) -> Listing:
    """List the objects of an array in two layouts, also those outside of its shape."""
    begun_ns = time.time_ns()
    ndim, objects = len(old.layout.shape), (dict[Coords, Listed](), dict[Coords, Listed]())
    for listed in writer.listing(old.path):
        for source, found in zip((old, new), objects, strict=True):
            keys = source.layout.keys
            coords = coords_of(keys, listed.key, ndim) if isinstance(keys, ChunkKeys) else None
            if coords is not None:
                found[coords] = listed
    if not isinstance(writer.store, LocalStore):  # other stores give versions that do not depend on a clock
        return Listing(*objects)
    step_ns = _FINE_NS if any(each.modified_ns % 1_000_000_000 for each in objects[0].values()) else _COARSE_NS
    # What is dated later than now is so by another clock, which says nothing.
    first_ns, last_ns = begun_ns - step_ns, time.time_ns() + step_ns
    young = [coords for coords, each in objects[0].items() if first_ns <= each.modified_ns <= last_ns]
    return Listing(*objects, frozenset(young), step_ns)
