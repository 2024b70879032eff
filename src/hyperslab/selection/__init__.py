"""Keys become selections, selections become parts of chunks. Pure: NumPy only, no input or output."""

from hyperslab.selection.axis import Axis, AxisParts, Picks, Span, project
from hyperslab.selection.box import Box, boxes_of_run
from hyperslab.selection.compose import compose
from hyperslab.selection.parse import parse, parse_points
from hyperslab.selection.selection import NEW, Fields, Points, Selection

__all__ = [
    "NEW",
    "Axis",
    "AxisParts",
    "Box",
    "Fields",
    "Picks",
    "Points",
    "Selection",
    "Span",
    "boxes_of_run",
    "compose",
    "parse",
    "parse_points",
    "project",
]
