"""How much memory may be taken: what the user allows, less what the process holds already."""

import os
import re
import resource
import sys
from dataclasses import dataclass
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes

__all__ = ["DEFAULT_BYTES", "Needs", "Room", "parse_bytes", "resident_bytes", "room_for"]

DEFAULT_BYTES = 512_000_000
# Kept free for what allocators, compressors and Python itself take on the way.
_SPARE_BYTES = 24_000_000
# A process that holds more than it may is given so much all the same: less would take forever.
_LEAST_BYTES = 48_000_000
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def parse_bytes(value: Any, name: str = "memory_bytes") -> int:
    """Return a number of bytes, also from text.

    >>> parse_bytes("512MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (512000000, 1610612736, 4096)
    """
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*", value)
        if found is not None and found[2].lower() in _UNITS:
            return int(float(found[1]) * _UNITS[found[2].lower()])
    elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise InvalidInputError(f"{name} is a number of bytes, or text such as '512MB' or '2GiB', not {value!r}")


def resident_bytes() -> int:
    """Return the memory that this process holds."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the most that it ever held
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True, slots=True)
class Needs:
    """What moving cells takes at least: a part's cells, for each lane that encodes, and for reading."""

    part_bytes: int
    lane_bytes: int
    read_bytes: int

    @property
    def least_bytes(self) -> int:
        return self.part_bytes + self.lane_bytes + self.read_bytes


@dataclass(frozen=True, slots=True)
class Room:
    """Memory for cells of parts, beside `lanes` that work on them."""

    part_bytes: int
    lanes: int


def room_for(memory_bytes: int, needs: Needs, most_lanes: int) -> Room:
    """Share the memory out: lanes get up to half of it, parts the rest."""
    if needs.least_bytes > memory_bytes:
        raise InvalidInputError(
            f"memory_bytes is {say_bytes(memory_bytes)}, but one object of the new layout needs "
            f"{say_bytes(needs.least_bytes)} until it is written; allow more, or choose smaller chunks or shards"
        )
    least = max(needs.least_bytes, min(_LEAST_BYTES, memory_bytes))
    free = max(least, memory_bytes - resident_bytes() - _SPARE_BYTES) - needs.read_bytes
    lanes = max(1, min(most_lanes, (free // 2) // max(1, needs.lane_bytes)))
    return Room(free - lanes * needs.lane_bytes, lanes)
