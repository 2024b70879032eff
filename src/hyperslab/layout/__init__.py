"""Where an array's cells lie: grids of chunks, objects, extents, codecs. Pure, no input or output."""

from hyperslab.layout.layout import ChunkKeys, Decoder, Extent, Layout, ShardIndex

__all__ = ["ChunkKeys", "Decoder", "Extent", "Layout", "ShardIndex"]
