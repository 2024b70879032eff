"""Where an array's cells lie: grids of chunks, objects, extents, codecs. Pure, no input or output."""

from hyperslab.layout.codecs import Size
from hyperslab.layout.layout import ChunkKeys, Decoder, Keys, Layout, ShardIndex, SingleKey

__all__ = ["ChunkKeys", "Decoder", "Keys", "Layout", "ShardIndex", "SingleKey", "Size"]
