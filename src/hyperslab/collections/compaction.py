"""Compaction: several segments become one, so that a lookup stays short however often something was put.

Segments fall into tiers by the number of their rows, each eight times the one before. When eight of the newest have
come together in one tier they are merged, so that an entry is written about once for every tier that it goes through.
Merging does not touch packs. The manifest is changed only if all that were merged are still in it; segments that came
meanwhile stay on top.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hyperslab.collections.blocks import DELETED, Row
from hyperslab.collections.index import Index
from hyperslab.collections.manifest import Manifest, SegmentRef, change_manifest
from hyperslab.collections.segment import pack_segments
from hyperslab.collections.writing import store_segment
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.store import Store

__all__ = ["MAX_ROWS", "compact", "crowded", "replace_segments"]

_FANOUT = 8
_FIRST_ROWS = 64
# No segment is made with more rows: one is held in memory when it is stored. Those of the last tier are left alone.
MAX_ROWS = 1 << 19
_LAST_TIER = 4


def crowded(segments: tuple[SegmentRef, ...]) -> tuple[SegmentRef, ...]:
    """Return the newest segments that should be merged, none if they are few enough.

    >>> one = SegmentRef("0" * 32, 99, 50, 0, 1, 0, 8)
    >>> len(crowded((one,) * 7)), len(crowded((one,) * 8))
    (0, 8)
    """
    tiers = [_tier(segment.rows) for segment in reversed(segments)]
    for tier in sorted(set(tiers)):
        # The newest segments up to one of a higher tier: only such as follow one another can be merged.
        count = next((at for at, each in enumerate(tiers) if each > tier), len(tiers))
        if tier < _LAST_TIER and tiers[:count].count(tier) >= _FANOUT:
            return segments[len(segments) - count :]
    return ()


def _tier(rows: int) -> int:
    tier, most = 0, _FIRST_ROWS
    while rows > most and tier < _LAST_TIER:
        tier, most = tier + 1, most * _FANOUT
    return tier


def compact(
    session: Session, store: Store, path: str, manifest: Manifest, merged: tuple[SegmentRef, ...]
) -> Manifest | None:
    """Merge segments that follow one another in the manifest; return the new one, None if others were faster."""
    writer = StoreWriter(session, store)
    index = Index(session, store, path, replace(manifest, segments=merged))
    rows = _rows(index, oldest=merged[0] == manifest.segments[0])
    new = [store_segment(writer, path, segment) for segment in pack_segments(rows, MAX_ROWS)]
    return replace_segments(writer, path, manifest.uuid, merged, new)


def replace_segments(
    writer: StoreWriter, path: str, uuid: str, old: Sequence[SegmentRef], new: Sequence[SegmentRef]
) -> Manifest | None:
    """Put new segments in the place of those that they were made of; return None if not all of these are there still.

    Segments that came meanwhile stay on top.
    """
    token, names = secrets.token_hex(8), [segment.name for segment in old]

    def edit(found: Manifest) -> Manifest | None:
        if token in found.recent:
            return found
        there = [segment.name for segment in found.segments]
        at = there.index(names[0]) if names[0] in there else len(there)
        if there[at : at + len(names)] != names:
            return None
        segments = (*found.segments[:at], *new, *found.segments[at + len(names) :])
        return replace(found, segments=segments).with_token(token)

    return change_manifest(writer, path, uuid, edit)


def _rows(index: Index, *, oldest: bool) -> Iterator[Row]:
    """Yield the newest row of each name. In the oldest segments, nothing is left for a deleted name to hide."""
    for _, _, row in index.merged(b"", b"", lambda block: list(block.iter_rows())):
        if not (oldest and row.flags & DELETED):
            yield row
