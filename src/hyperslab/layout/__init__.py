"""Where an array's cells lie: grids of chunks, objects, extents, codecs. Pure, no input or output."""

from hyperslab.layout.codecs import Size
from hyperslab.layout.layout import ChunkKeys, Decoder, FileVersion, Keys, Layout, ShardIndex, SingleKey
from hyperslab.layout.references import WHOLE, Place, References, numbers_of
from hyperslab.layout.table import ChunkTable

__all__ = [
    "WHOLE",
    "ChunkKeys",
    "ChunkTable",
    "Decoder",
    "FileVersion",
    "Keys",
    "Layout",
    "Place",
    "References",
    "ShardIndex",
    "SingleKey",
    "Size",
    "numbers_of",
]
