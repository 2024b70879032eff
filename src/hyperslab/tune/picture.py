"""A picture of advice: the reads, over the chunks as they lie now and as they would lie."""

from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.tune.advice import Findings
from hyperslab.tune.forms import Form, Shape
from hyperslab.tune.reads import Reads

__all__ = ["draw"]

_MOST_BOXES = 200
# With more lines than this along an axis there is nothing but lines to be seen: then not every one is drawn.
_MOST_LINES = 80


def draw(findings: Findings, reads: Reads, axes: Any = None) -> Any:
    """Draw two panels, on `axes` if two are given; return them."""
    if axes is None:
        axes = _new_axes()
    shown = _two_axes(findings.shape, reads)
    for ax, title, form, means in zip(
        axes, ("now", "advised"), (findings.now, findings.best),
        (findings.trained.now, findings.trained.best), strict=True,
    ):  # fmt: skip
        _panel(ax, findings.shape, shown, form, reads)
        ax.set_title(f"{title}: {means.chunks:,.1f} chunks, {1e3 * means.seconds:,.0f} ms a read", fontsize=10)
    return axes


def _new_axes() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError("a picture needs matplotlib: pip install 'hyperslab[plot]'") from None
    return Figure(figsize=(10, 5), layout="constrained").subplots(1, 2)


def _two_axes(shape: Shape, reads: Reads) -> tuple[int, int]:
    """Return the axes that are drawn, upright and across: where reads differ most from single cells and from all."""
    if len(shape) == 1:
        return 0, 0
    share = reads.weights @ (reads.counts / np.array(shape))
    longest = np.array(shape) > 1
    order = np.argsort(-(longest * (1 + np.minimum(share, 1 - share + 1e-9)) * np.log2(1 + np.array(shape))))
    first, second = sorted(order[:2].tolist())
    return first, second


def _panel(ax: Any, shape: Shape, shown: tuple[int, int], form: Form, reads: Reads) -> None:
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    up, across = shown
    height, width = (shape[up], shape[across]) if up != across else (1, shape[across])
    grids = [(form.chunks, "0.75", 0.5)] + ([] if form.shards is None else [(form.shards, "0.35", 1.0)])
    for sizes, colour, line in grids:
        lines = _lines(width, sizes[across], height, upright=True)
        if up != across:
            lines += _lines(height, sizes[up], width, upright=False)
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=line))
    some = reads.sample(_MOST_BOXES)
    boxes = [_box(start, count, up, across) for start, count in zip(some.starts, some.counts, strict=True)]
    patches = [Rectangle((x - 0.5, y - 0.5), w, h) for x, y, w, h in boxes]
    ax.add_collection(
        PatchCollection(patches, facecolor=(0.8, 0.1, 0.1, 0.12), edgecolor=(0.7, 0, 0, 0.6), linewidth=0.6)
    )
    ax.set_xlim(-0.5, width - 0.5)
    ax.set_ylim(height - 0.5, -0.5)
    ax.set_xlabel(f"axis {across}")
    ax.set_ylabel(f"axis {up}" if up != across else "")
    ax.text(
        0, -0.14, _caption(form, sparse=_step(width, form.chunks[across]) > 1 or _step(height, form.chunks[up]) > 1),
        transform=ax.transAxes, fontsize=8, color="0.3", va="top",
    )  # fmt: skip


def _caption(form: Form, *, sparse: bool) -> str:
    shards = "" if form.shards is None else f", shards {form.shards} (dark lines)"
    return f"red: reads; chunks {form.chunks}{', of which not every border is drawn' if sparse else ''}{shards}"


def _box(start: Any, count: Any, up: int, across: int) -> tuple[int, int, int, int]:
    x, w = int(start[across]), int(count[across])
    return (x, 0, w, 1) if up == across else (x, int(start[up]), w, int(count[up]))


def _step(length: int, size: int) -> int:
    """Return which borders are drawn: each, or every so many-th."""
    return -(-length // size // _MOST_LINES) or 1


def _lines(length: int, size: int, other: int, *, upright: bool) -> list[list[tuple[float, float]]]:
    ends = (-0.5, other - 0.5)
    places = range(0, length + 1, size * _step(length, size))
    return [[(at - 0.5, end) if upright else (end, at - 0.5) for end in ends] for at in places]
