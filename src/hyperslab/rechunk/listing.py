"""The objects of an array in its old layout and in its new one, as a listing of the store shows them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.array import coords_of
from hyperslab.formats.zarr.change import Seen
from hyperslab.layout import ChunkKeys
from hyperslab.store import Listed

__all__ = ["Listing", "list_objects"]

Coords = tuple[int, ...]

# Clocks of file systems go in steps, and one by which a file is dated may lag behind another.
_MARGIN_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects by their places in the grid."""

    old: Mapping[Coords, Listed]
    new: Mapping[Coords, Listed]

    def differing(self, earlier: "Listing") -> list[Coords]:
        """Return the places of old objects that were written, made or deleted since an earlier listing."""
        places = self.old.keys() | earlier.old.keys()
        versions = [(each, self.old.get(each), earlier.old.get(each)) for each in places]
        return sorted(
            each for each, now, then in versions if now is None or then is None or now.version != then.version
        )

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
    ndim, objects = len(old.layout.shape), (dict[Coords, Listed](), dict[Coords, Listed]())
    for listed in writer.listing(old.path):
        for source, found in zip((old, new), objects, strict=True):
            keys = source.layout.keys
            coords = coords_of(keys, listed.key, ndim) if isinstance(keys, ChunkKeys) else None
            if coords is not None:
                found[coords] = listed
    return Listing(*objects)
