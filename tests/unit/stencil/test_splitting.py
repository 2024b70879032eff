"""How arrays are split: what is left for blocks of input beside the parts of the output."""

import pytest

from hyperslab.selection import Box
from hyperslab.stencil import Reach
from hyperslab.stencil.geometry import Geometry
from hyperslab.stencil.splitting import Input, Problem, choose_split

SHAPE, OBJECTS = (16384, 32768), (1024, 4096)


class Times:
    def seconds(self, requests, nbytes):
        return requests * 1e-6 + nbytes * 1e-9

    def decode_seconds(self, chunks, nbytes):
        return 0.0


@pytest.mark.parametrize("room_mb", [60, 90, 136, 137, 180, 271, 400])
def test_parts_leave_room_for_blocks_worth_reading(room_mb):
    """Plain input may be read row by row, but a few rows at a time take longer to ask for than to read."""
    geometry = Geometry(SHAPE, SHAPE, (0, 0), (1, 1), Reach((1, 1), (1, 1)))
    problem = Problem(geometry, Box((0, 0), SHAPE), (Input((1, 4096), 4),), OBJECTS, 4)
    for split in choose_split(problem, room_mb * 10**6, Times()):
        row_bytes = (split.part[1] + 2) * 4
        assert split.rows * row_bytes >= min(4 << 20, room_mb * 10**6 // 16)
        assert split.buffer_bytes <= room_mb * 10**6
