"""The picture of a workload: where reads lie in an array, and how large they are. Needs Matplotlib."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count
from hyperslab.plan.render import printable

if TYPE_CHECKING:
    from hyperslab.workload.workload import Workload

__all__ = ["draw"]

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#BBBBBB"
# More boxes would only be a blot: as many are drawn, evenly chosen.
_MOST_BOXES = 2000
_MOST_SHAPES = 12
_MOST_GRID_LINES = 64


def draw(reads: "Workload", figure: Any = None) -> Any:
    """Draw the reads of one array: their boxes along two axes, and their commonest shapes; return the figure."""
    if figure is None:
        figure = _blank_figure()
    summary = reads.summary().arrays[0]
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_boxes(left, reads)
    shapes = summary.shapes[:_MOST_SHAPES]
    names = ["×".join(map(str, each.shape)) or "one cell" for each in shapes]
    right.barh(range(len(shapes)), [100 * each.share for each in shapes], color=_ORANGE)
    right.set_yticks(range(len(shapes)), labels=names)
    right.invert_yaxis()
    right.set_xlabel("% of reads", fontsize=9)
    other = f", {say_count(summary.other_shapes, 'other')} not shown" if summary.other_shapes else ""
    right.set_title(f"shapes of reads{other}", fontsize=10, loc="left")
    for ax in (left, right):
        ax.tick_params(labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    name = printable(reads.array.url.rstrip("/").rpartition("/")[2])
    needed, fetched = say_bytes(summary.needed_bytes), say_bytes(summary.fetched_bytes)
    title = f"{name} {reads.array.shape}: {say_count(len(reads), 'read')}, {needed} needed, {fetched} fetched"
    figure.suptitle(title.replace("$", r"\$"), fontsize=11, x=0.01, ha="left")
    return figure


def _blank_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError("drawing needs Matplotlib; install it with: pip install 'hyperslab[plot]'") from None
    return Figure(figsize=(11, 5), layout="constrained")


def _shown_axes(reads: "Workload") -> list[int]:
    """Return the two axes along which reads differ most from taking all of them; fewer if there are no two."""
    shape, (starts, counts) = reads.array.shape, reads.boxes()
    long = [axis for axis, size in enumerate(shape) if size > 1]
    partly = [axis for axis in long if (counts[:, axis] < shape[axis]).any() and len(starts)]
    return sorted([*partly, *[axis for axis in long if axis not in partly]][:2])


def _draw_boxes(ax: Any, reads: "Workload") -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    array, axes = reads.array, _shown_axes(reads)
    starts, counts = reads.boxes()
    some = np.flatnonzero((counts > 0).all(axis=1))
    shown = (
        some[np.unique(np.linspace(0, len(some) - 1, min(len(some), _MOST_BOXES)).astype(int))] if len(some) else some
    )
    # An array of one axis is a strip.
    rows, columns = (None, axes[0] if axes else None) if len(axes) < 2 else axes
    sides = [_side(starts[shown], counts[shown], axis) for axis in (columns, rows)]
    patches = [
        Rectangle((x, y), width, height)
        for x, width, y, height in zip(*sides[0], *sides[1], strict=True)
    ]  # fmt: skip
    strength = float(np.clip(12 / max(1, len(shown)), 0.1, 0.5))
    ax.add_collection(PatchCollection(patches, facecolor=_BLUE, edgecolor="none", alpha=strength))
    # Edges of their own: boxes of one row would else be too thin to be seen.
    ax.add_collection(
        PatchCollection(patches, facecolor="none", edgecolor=_BLUE, linewidth=0.6, alpha=min(1, 4 * strength))
    )
    for axis, limit, line in ((columns, ax.set_xlim, ax.axvline), (rows, ax.set_ylim, ax.axhline)):
        size = 1 if axis is None else array.shape[axis]
        limit((0, size) if limit == ax.set_xlim else (size, 0))
        if axis is not None and size / max(1, array.chunks[axis]) <= _MOST_GRID_LINES:
            for edge in range(0, size, max(1, array.chunks[axis])):
                line(edge, color=_GREY, linewidth=0.5, zorder=0)
    ax.set_xlabel("" if columns is None else f"axis {columns} (cells)", fontsize=9)
    if rows is None:
        ax.set_yticks([])
    else:
        ax.set_ylabel(f"axis {rows} (cells)", fontsize=9)
    part = "" if len(shown) == len(some) else f" {len(shown):,} of"
    ax.set_title(f"boxes of{part} {len(some):,} reads; lines are borders of chunks", fontsize=10, loc="left")


def _side(starts: Any, counts: Any, axis: int | None) -> tuple[list[int], list[int]]:
    if axis is None:
        return [0] * len(starts), [1] * len(starts)
    return starts[:, axis].tolist(), counts[:, axis].tolist()
