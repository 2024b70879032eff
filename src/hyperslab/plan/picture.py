"""The picture of a plan: the grid of chunks, coloured by the way each comes. Needs Matplotlib."""

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.plan.breakdown import Way
from hyperslab.plan.phrases import say_bytes, say_count, say_key, say_seconds, say_usd
from hyperslab.plan.pieces import Pieces
from hyperslab.plan.render import printable
from hyperslab.plan.squares import Canvas, Squares, shown_axes, squares_of
from hyperslab.selection import Points, Selection, Span

if TYPE_CHECKING:
    from hyperslab.plan.explain import Explanation

__all__ = ["blank_axes", "draw"]

_MISSING = "drawing needs Matplotlib; install it with: pip install 'hyperslab[plot]'"

# Colours that people who see few colours can tell apart (Okabe and Ito).
_COLOURS = {
    Way.RANGE: "#0072B2",
    Way.LOOKUP: "#CC79A7",
    Way.GET: "#D55E00",
    Way.MAP: "#009E73",
    Way.CACHE: "#8C8C8C",
    Way.ABSENT: "#E8E4D8",
    Way.CALL: "#E69F00",
    Way.INLINE: "#B5B5B5",
}
_NAMES = {
    Way.RANGE: "RANGE: part of an object",
    Way.LOOKUP: "LOOKUP, then RANGE",
    Way.GET: "GET: a whole object",
    Way.MAP: "mapped local file",
    Way.CACHE: "in the cache",
    Way.ABSENT: "not stored",
    Way.CALL: "CALL: cut by the function",
    Way.INLINE: "among the references",
}
_UNTOUCHED = "#F7F7F7"
_OUTLINE = "#111111"
_MOST_GRID_LINES = 64
_MOST_LABELS = 64
_MOST_OUTLINES = 400
_MOST_POINTS = 2000
# Shares are seen as shades: the smallest is still this much of the full colour.
_PALEST = 0.3


def draw(explanation: "Explanation", ax: Any = None) -> Any:
    """Draw the touched part of the grid of chunks, and one chunk around it; return the axes."""
    plan, selection = explanation.plan, explanation.selection
    pieces = plan.reads[0]
    canvas = Canvas.around(pieces, shown_axes(pieces))
    ax = _new_axes(canvas) if ax is None else ax
    squares = squares_of(plan, pieces, canvas)
    _fill(ax, canvas, squares)
    _lines(ax, canvas, pieces)
    _label(ax, canvas, squares)
    _outline(ax, canvas, selection)
    note = _frame(ax, canvas, pieces)
    _legend(ax, squares, lines_above=3 if note else 2)
    ax.set_title(_title(explanation), fontsize=10, loc="left")
    return ax


def blank_axes(explanation: "Explanation") -> Any:
    """Return axes of a good size on a figure that no window shows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    pieces = explanation.plan.reads[0]
    return Figure(figsize=_size_of(Canvas.around(pieces, shown_axes(pieces))), layout="constrained").subplots()


def _size_of(canvas: "Canvas") -> tuple[float, float]:
    """Return a size in inches in which squares of cells are about square, unless that were a strip."""
    height = 1.0 if canvas.axes[0] is None else 6.8 * min(1.2, max(0.25, canvas.ratio))
    return 7.5, height + 1.7


def _new_axes(canvas: "Canvas") -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    _, ax = pyplot.subplots(figsize=_size_of(canvas), layout="constrained")
    return ax


def _title(explanation: "Explanation") -> str:
    plan, estimate = explanation.plan, explanation.plan.estimate
    bound = "" if estimate.exact else "≤ "
    sent = say_count(plan.chunk_count, "mapped chunk") if plan.direct else say_count(estimate.all_requests, "request")
    cost = f", {bound}{say_usd(estimate.usd)}" if estimate.usd else ""
    text = (
        f"{_clip(printable(explanation.url.rstrip('/').rpartition('/')[2]), 40)} "
        f"[{_clip(say_key(explanation.selection), 60)}]\n"
        f"{sent}, {bound}{say_bytes(estimate.all_bytes)} for {say_bytes(estimate.needed_bytes)} needed, "
        f"{bound}{say_seconds(estimate.seconds)}{cost}"
    )
    # To Matplotlib two dollars are a formula.
    return text.replace("$", r"\$")


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _fill(ax: Any, canvas: Canvas, squares: Squares) -> None:
    from matplotlib.colors import to_rgb

    ways = squares.ways
    image = np.empty((*canvas.squares, 3))
    image[...] = to_rgb(_UNTOUCHED)
    strength = (_PALEST + (1 - _PALEST) * squares.shares)[..., None]
    for way, colour in _COLOURS.items():
        here = ways == way
        full = way in (Way.CACHE, Way.INLINE, Way.ABSENT)
        mixed = to_rgb(colour) if full else 1 - strength[here] * (1 - np.array(to_rgb(colour)))
        image[here] = mixed
    (top, bottom), (left, right) = canvas.limits(0), canvas.limits(1)
    ax.imshow(image, extent=(left, right, bottom, top), interpolation="nearest", aspect="auto", zorder=0)


def _lines(ax: Any, canvas: Canvas, pieces: Pieces) -> None:
    """Draw the borders of chunks, and stronger ones between objects that hold several."""
    layout = pieces.layout
    for which, line in ((0, ax.hlines), (1, ax.vlines)):
        edges, across = canvas.edges(which), canvas.limits(1 - which)
        if len(edges) <= _MOST_GRID_LINES + 1:
            line(edges, *across, color="#BBBBBB", linewidth=0.8, zorder=1)
        axis = canvas.axes[which]
        if layout.index is not None and axis is not None:
            size = layout.object_shape[axis]
            first, last = canvas.limits(which)
            borders = np.arange(ceil(first / size), last // size + 1) * size
            if len(borders) <= _MOST_GRID_LINES + 1:
                line(borders, *across, color="#555555", linewidth=1.6, zorder=2)


def _label(ax: Any, canvas: Canvas, squares: Squares) -> None:
    """Write the share of its bytes that is fetched into each touched square, where there are few."""
    rows, columns = np.nonzero(squares.ways >= 0)
    if len(rows) > _MOST_LABELS or max(canvas.squares) > 24:
        return
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        way, share = Way(int(squares.ways[row, column])), float(squares.shares[row, column])
        text = {Way.CACHE: "cache", Way.INLINE: "inline", Way.ABSENT: "absent"}.get(way) or _percent(share)
        dark = way != Way.ABSENT and (share > 0.45 or way == Way.CACHE)
        at = [canvas.edges(0)[row], canvas.edges(1)[column]]
        ax.text(
            at[1] + 0.04 * canvas.chunks[1] * canvas.sides[1],
            at[0] + 0.06 * canvas.chunks[0] * canvas.sides[0],
            text,
            ha="left", va="top", fontsize=8, color="white" if dark else "#222222", clip_on=True, zorder=4,
        )  # fmt: skip


def _percent(share: float) -> str:
    if share >= 0.9995:
        return "100%"
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}" if share >= 0.00095 else "<0.1%"


def _outline(ax: Any, canvas: Canvas, selection: Selection | Points) -> None:
    """Draw a line around what is selected; around all of it where it has too many parts."""
    if not selection.size:
        return
    if isinstance(selection, Points):
        columns, rows = (_cells_at(selection, canvas.axes[which]) for which in (1, 0))
        step = ceil(len(rows) / _MOST_POINTS)
        ax.scatter(
            columns[::step] + 0.5, rows[::step] + 0.5,
            s=14, facecolors="none", edgecolors=_OUTLINE, linewidths=0.9, zorder=3, label="selected points",
        )  # fmt: skip
        return
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    runs = [_runs_of(selection, axis) for axis in canvas.axes]
    whole = len(runs[0]) * len(runs[1]) > _MOST_OUTLINES
    if whole:
        runs = [[(each[0][0], each[-1][1])] for each in runs]
    boxes = [Rectangle((left, top), right - left, bottom - top) for top, bottom in runs[0] for left, right in runs[1]]
    style = "--" if whole else "-"
    label = "selection, from its first cell to its last" if whole else "selection"
    lines = {"facecolor": "none", "edgecolor": _OUTLINE, "linewidth": 1.4, "linestyle": style}
    ax.add_collection(PatchCollection(boxes, match_original=False, zorder=3, **lines))
    ax.plot([], [], color=_OUTLINE, linewidth=1.4, linestyle=style, label=label)


def _cells_at(points: Points, axis: int | None) -> npt.NDArray[Any]:
    return np.zeros(points.size) if axis is None else points.coords[axis]


def _runs_of(selection: Selection, axis: int | None) -> list[tuple[int, int]]:
    """Return the runs of neighbouring cells along an axis, as (start, stop); only the ends if there are very many."""
    if axis is None:
        return [(0, 1)]
    chosen = selection.axes[axis]
    if isinstance(chosen, Span):
        if chosen.step == 1:
            return [(chosen.start, chosen.start + chosen.count)]
        if chosen.count > _MOST_OUTLINES:
            last = chosen.start + (chosen.count - 1) * chosen.step
            # Two ends and enough between them to count as many.
            return [(chosen.start, chosen.start + 1)] + [(last, last + 1)] * _MOST_OUTLINES
    cells = chosen.indices()
    heads = np.flatnonzero(np.diff(cells, prepend=cells[0] - 2) != 1)
    tails = np.append(heads[1:], len(cells)) - 1
    return list(zip(cells[heads].tolist(), (cells[tails] + 1).tolist(), strict=True))


def _frame(ax: Any, canvas: Canvas, pieces: Pieces) -> str:
    """Set limits, ticks at borders of chunks, and names of the axes; return what is said of what is not shown."""
    (top, bottom), (left, right) = canvas.limits(0), canvas.limits(1)
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    for which, axis in ((1, ax.xaxis), (0, ax.yaxis)):
        edges = canvas.edges(which)
        shown = edges[:: ceil(len(edges) / (9 if which else 13))] if canvas.axes[which] is not None else edges[:0]
        axis.set_ticks(shown, labels=[f"{edge:,}" for edge in shown])
    ax.tick_params(labelsize=8)
    for side in ax.spines.values():
        side.set_visible(False)
    note = _note(canvas, pieces)
    if canvas.axes[0] is not None:
        ax.set_ylabel(f"axis {canvas.axes[0]} (cells)", fontsize=9)
    if canvas.axes[1] is not None:
        ax.set_xlabel(f"axis {canvas.axes[1]} (cells)" + (f"\n{note}" if note else ""), fontsize=9)
    return note


def _note(canvas: Canvas, pieces: Pieces) -> str:
    layout = pieces.layout
    notes = []
    shown = [high - low for low, high in zip(canvas.lows, canvas.highs, strict=True)]
    grid = [1 if axis is None else layout.grid[axis] for axis in canvas.axes]
    if shown != grid:
        skipped = slice(int(canvas.axes[0] is None), 2)
        notes.append(f"{_times(shown[skipped])} of {_times(grid[skipped])} chunks are shown")
    if max(canvas.sides) > 1:
        notes.append(f"a square is {_times(canvas.sides)} chunks")
    if len(layout.shape) > 2:
        others = [str(axis) for axis in range(len(layout.shape)) if axis not in canvas.axes]
        notes.append(f"chunks along axis {', '.join(others)} are folded together")
    return "; ".join(notes)


def _times(counts: Any) -> str:
    return " × ".join(f"{count:,}" for count in counts)


def _legend(ax: Any, squares: Squares, *, lines_above: int) -> None:
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    totals = squares.counts.reshape(len(Way), -1).sum(axis=1)
    handles = [
        Patch(
            facecolor=_COLOURS[way],
            edgecolor="#BBBBBB",
            label=f"{_NAMES[way]} ({say_count(int(totals[way]), 'chunk')})",
        )
        for way in Way
        if totals[way]
    ]
    drawn, _ = ax.get_legend_handles_labels()
    below = ax.transAxes + ScaledTranslation(0, -(6 + 13 * lines_above) / 72, ax.figure.dpi_scale_trans)
    shaded = any(totals[way] for way in Way if way not in (Way.CACHE, Way.INLINE, Way.ABSENT))
    ax.legend(
        handles=[*handles, *drawn], loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=2, fontsize=8,
        frameon=False, borderpad=0, title="the darker, the more of a chunk is fetched" if shaded else None,
        title_fontsize=8, alignment="left",
    )  # fmt: skip
