"""The picture of a workload: where reads lie in an array, and how large they are. Needs Matplotlib."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count
from hyperslab.plan.render import printable

if TYPE_CHECKING:
    from hyperslab.workload.workload import Workload

__all__ = ["draw", "shown_axes"]

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#BBBBBB"
# More boxes would only be a blot: as many are drawn, evenly chosen.
_MOST_BOXES = 2000
_MOST_SHAPES = 12
# A single bar need not fill its panel, nor a name the title.
_LEAST_BARS = 6
_LONGEST_NAME = 48
_MOST_GRID_LINES = 64


def draw(reads: "Workload", figure: Any = None) -> Any:
    """Draw the reads of one array: their boxes along two axes, and their commonest shapes; return the figure."""
    array = reads.array
    if figure is None:
        figure = _blank_figure()
    summary = reads.summary().arrays[0]
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_boxes(left, reads)
    shapes = summary.shapes[:_MOST_SHAPES]
    names = ["×".join(map(str, each.shape)) or "one cell" for each in shapes]
    right.barh(range(len(shapes)), [100 * each.share for each in shapes], color=_ORANGE)
    right.set_yticks(range(len(shapes)), labels=[_shortened(name) for name in names])
    right.set_ylim(max(len(shapes), _LEAST_BARS) - 0.4, -0.6)
    right.set_xlim(0, 100)
    right.set_xlabel("% of reads", fontsize=9)
    other = f", {say_count(summary.other_shapes, 'other')} not shown" if summary.other_shapes else ""
    right.set_title(f"shapes of reads{other}", fontsize=10, loc="left")
    for ax in (left, right):
        ax.tick_params(labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    name = _shortened(printable(array.url.rstrip("/").rpartition("/")[2]))
    # Reads that were written down, not recorded, have fetched nothing.
    fetched = f", {say_bytes(summary.fetched_bytes)} fetched" if summary.fetched_bytes else ""
    needed = f"{say_bytes(summary.needed_bytes)} needed"
    title = f"{name} {_shortened(str(array.shape))}: {say_count(len(reads), 'read')}, {needed}{fetched}"
    figure.suptitle(title.replace("$", r"\$"), fontsize=11, x=0.01, ha="left")
    return figure


def _blank_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError("drawing needs Matplotlib; install it with: pip install 'hyperslab[plot]'") from None
    return Figure(figsize=(11, 5), layout="constrained")


def _shortened(text: str) -> str:
    """Return a text without its middle, if it is long."""
    half = _LONGEST_NAME // 2
    return text if len(text) <= _LONGEST_NAME else f"{text[:half]}…{text[1 - half :]}"


def shown_axes(shape: tuple[int, ...], share: npt.NDArray[np.float64]) -> list[int]:
    """Return the two axes that are drawn, or fewer: long ones of which reads take neither a cell nor all.

    `share` is what part of each axis a read takes, on average.
    """
    sizes = np.array(shape)
    worth = (1 + np.minimum(share, 1 - share + 1e-9)) * np.log2(1 + sizes)
    long = [axis for axis in np.argsort(-worth, kind="stable").tolist() if sizes[axis] > 1]
    return sorted(long[:2])


def _draw_boxes(ax: Any, reads: "Workload") -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    array = reads.array
    starts, counts = reads.boxes()
    some = np.flatnonzero((counts > 0).all(axis=1))
    share = counts[some].mean(axis=0) / array.shape if len(some) else np.zeros(len(array.shape))
    axes = shown_axes(array.shape, share)
    shown = (
        some[np.unique(np.linspace(0, len(some) - 1, min(len(some), _MOST_BOXES)).astype(int))] if len(some) else some
    )
    # Of an array of one axis, reads are drawn one below the other.
    rows, columns = (None, axes[0] if axes else None) if len(axes) < 2 else axes
    sides = [_side(starts[shown], counts[shown], columns), _side(starts[shown], counts[shown], rows)]
    if columns is not None and rows is None:
        sides[1] = list(range(len(shown))), [1] * len(shown)
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
    borders = ""
    for axis, limit, line in ((columns, ax.set_xlim, ax.axvline), (rows, ax.set_ylim, ax.axhline)):
        size = array.shape[axis] if axis is not None else max(1, len(shown)) if axis is rows and axes else 1
        limit((0, size) if limit == ax.set_xlim else (size, 0))
        if axis is not None and size / max(1, array.chunks[axis]) <= _MOST_GRID_LINES:
            borders = "; lines are borders of chunks"
            for edge in range(0, size, max(1, array.chunks[axis])):
                line(edge, color=_GREY, linewidth=0.5, zorder=0)
    ax.set_xlabel("" if columns is None else f"axis {columns} (cells)", fontsize=9)
    ax.set_ylabel("" if columns is None else "reads, one below the other" if rows is None else f"axis {rows} (cells)",
                  fontsize=9)  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if columns is None:
        ax.set_xticks([])
    if rows is None:
        ax.set_yticks([])
    part = "" if len(shown) == len(some) else f" {len(shown):,} of"
    ax.set_title(f"boxes of{part} {say_count(len(some), 'read')}{borders}", fontsize=10, loc="left")


def _side(starts: Any, counts: Any, axis: int | None) -> tuple[list[int], list[int]]:
    if axis is None:
        return [0] * len(starts), [1] * len(starts)
    return starts[:, axis].tolist(), counts[:, axis].tolist()
