"""Key/value stores that small arrays are kept in beside their packs: faster to ask, never the truth."""

from hyperslab.store.keyvalue.base import KeyValue
from hyperslab.store.keyvalue.guard import Guard, TierCounts, TierWarning, Wanted
from hyperslab.store.keyvalue.locate import open_tier
from hyperslab.store.keyvalue.values import HEADER_BYTES

__all__ = ["HEADER_BYTES", "Guard", "KeyValue", "TierCounts", "TierWarning", "Wanted", "open_tier"]
