"""A picture of advice: the reads, over the chunks as they lie now and as they would lie."""

from textwrap import fill
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_seconds, say_usd
from hyperslab.tune.advice import Findings
from hyperslab.tune.figures import Means
from hyperslab.tune.forms import Form, Shape
from hyperslab.tune.reads import Reads
from hyperslab.workload.picture import shown_axes

__all__ = ["draw"]

_MOST_BOXES = 200
# With more lines than this along an axis there is nothing but lines to be seen: then not every one is drawn.
_MOST_LINES = 80
# Letters that fit below a panel, side by side.
_WIDTH = 64


def draw(findings: Findings, reads: Reads, axes: Any = None) -> Any:
    """Draw two panels, on `axes` if two are given; return them."""
    axes = _new_axes() if axes is None else _checked(axes)
    shown = _two_axes(findings.shape, reads)
    titles = ("now", "advised: stay as it is" if findings.keep else "advised")
    forms, means = (findings.now, findings.best), (findings.trained.now, findings.trained.best)
    for ax, title, form, mean in zip(axes, titles, forms, means, strict=True):
        _panel(ax, findings.shape, shown, form, reads)
        ax.set_title(f"{title}\n{_figures(mean)}".replace("$", r"\$"), fontsize=10, loc="left")
    return axes


def _figures(means: Means) -> str:
    dollars = f", {say_usd(means.usd)}" if means.usd else ""
    return f"{means.chunks:,.1f} chunks, {say_seconds(means.seconds)}{dollars} a read"


def _new_axes() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError("a picture needs matplotlib: pip install 'hyperslab[plot]'") from None
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    figure.suptitle(
        "red: reads; light lines: borders of chunks; dark lines: borders of shards", fontsize=9, x=0.01, ha="left"
    )
    return figure.subplots(1, 2)


def _checked(axes: Any) -> list[Any]:
    given = list(np.ravel(np.asarray(axes, object)))
    if len(given) != 2 or not all(hasattr(ax, "add_collection") for ax in given):
        raise InvalidInputError("advice is drawn on two axes of matplotlib, such as plt.subplots(1, 2)[1]")
    return given


def _two_axes(shape: Shape, reads: Reads) -> tuple[int | None, int]:
    """Return the axes that are drawn, upright and across; without the first, reads are drawn one below the other."""
    found = shown_axes(shape, np.asarray(reads.weights @ (reads.counts / np.array(shape))))
    if len(found) == 2:
        return found[0], found[1]
    return None, found[0] if found else 0


def _panel(ax: Any, shape: Shape, shown: tuple[int | None, int], form: Form, reads: Reads) -> None:
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    up, across = shown
    some = reads.sample(_MOST_BOXES)
    width, height = shape[across], len(some) if up is None else shape[up]
    grids = [(form.chunks, "0.75", 0.5)] + ([] if form.shards is None else [(form.shards, "0.35", 1.0)])
    for sizes, colour, line in grids:
        lines = _lines(width, sizes[across], height, upright=True)
        if up is not None:
            lines += _lines(height, sizes[up], width, upright=False)
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=line))
    starts, counts = some.starts, some.counts
    rows = (range(len(some)), [1] * len(some)) if up is None else (starts[:, up].tolist(), counts[:, up].tolist())
    boxes = zip(starts[:, across].tolist(), counts[:, across].tolist(), *rows, strict=True)
    ax.add_collection(
        PatchCollection(
            [Rectangle((x, y), w, h) for x, w, y, h in boxes],
            facecolor=(0.8, 0.1, 0.1, 0.12), edgecolor=(0.7, 0, 0, 0.6), linewidth=0.6,
        )
    )  # fmt: skip
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("reads, one below the other" if up is None else f"axis {up} (cells)", fontsize=9)
    if up is None:
        ax.set_yticks([])
    ax.tick_params(labelsize=8)
    ax.set_xlabel(f"axis {across} (cells)\n{_caption(form, shape, shown)}", fontsize=9)


def _caption(form: Form, shape: Shape, shown: tuple[int | None, int]) -> str:
    drawn = [axis for axis in shown if axis is not None]
    sparse = any(_step(shape[axis], form.chunks[axis]) > 1 for axis in drawn)
    lines = [f"chunks {form.chunks}{', of which not every border is drawn' if sparse else ''}"]
    lines += [] if form.shards is None else [f"shards {form.shards}"]
    return "\n".join(fill(line, _WIDTH) for line in lines)


def _step(length: int, size: int) -> int:
    """Return which borders are drawn: each, or every so many-th."""
    return -(-length // size // _MOST_LINES) or 1


def _lines(length: int, size: int, other: int, *, upright: bool) -> list[list[tuple[float, float]]]:
    places = range(0, length + 1, size * _step(length, size))
    return [[(at, end) if upright else (end, at) for end in (0, other)] for at in places]
