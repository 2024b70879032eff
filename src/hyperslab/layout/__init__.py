"""Where an array's cells lie: grids of chunks, objects, extents, codecs. Pure, no input or output."""

from hyperslab.layout.codecs import Size
from hyperslab.layout.layout import ChunkKeys, Decoder, FileVersion, Keys, Layout, ShardIndex, SingleKey
from hyperslab.layout.table import ChunkTable

__all__ = [
    "ChunkKeys",
    "ChunkTable",
    "Decoder",
    "FileVersion",
    "Keys",
    "Layout",
    "ShardIndex",
    "SingleKey",
    "Size",
]
