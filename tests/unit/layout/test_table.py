"""Tables of chunks survive being written down."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.layout import ChunkTable

offsets = st.lists(st.integers(-1, 2**62), max_size=9)


@given(offsets, st.booleans())
def test_packed_tables_are_the_same(numbers, masked):
    column = np.array(numbers, np.int64)
    masks = np.arange(len(numbers), dtype=np.uint32) if masked and numbers else None
    table = ChunkTable(column, column[::-1].copy(), masks)
    found = ChunkTable.unpack(table.pack())
    assert found.offsets.tolist() == numbers
    assert found.lengths.tolist() == numbers[::-1]
    assert (None if found.masks is None else found.masks.tolist()) == (None if masks is None else masks.tolist())
