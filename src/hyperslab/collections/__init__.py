"""Many small arrays under names: packs, a sorted index under one manifest, attributes as columns.

collection.json        the manifest, replaced by conditional puts: every change is one
index/<random>.seg     segments: entries sorted by name, in blocks
packs/<random>.pack    arrays one after the other
orphans/…              marks of objects that the manifest no longer reaches
"""

from hyperslab.collections.blocks import Entry
from hyperslab.collections.collection import Collection, collection
from hyperslab.collections.plans import Plan
from hyperslab.store.keyvalue import TierWarning

__all__ = ["Collection", "Entry", "Plan", "TierWarning", "collection"]
