"""Draws the pictures of the pages into pictures/: `make docs-pictures`. Look at each of them afterwards."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import hyperslab as hs
from hyperslab.plan import CostModel, Prices, Profile

FOLDER = Path(__file__).parent / "pictures"
# Colours that people who see few colours can tell apart (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8B8B8"
PALE = {BLUE: "#CFE3F0", ORANGE: "#F7DFD1", GREEN: "#CCEBE3", PINK: "#F5E3ED", GREY: "#EFEFEF"}
INK = "#222222"


def figure(width: float, height: float) -> Figure:
    drawn = Figure(figsize=(width, height), layout="constrained")
    drawn.get_layout_engine().set(w_pad=0.06, h_pad=0.09)
    return drawn


def empty(ax: Any, x: tuple[float, float], y: tuple[float, float]) -> None:
    ax.set(xlim=x, ylim=y)
    ax.set_axis_off()


def box(ax: Any, x: float, y: float, width: float, height: float, colour: str, text: str = "", **more: Any) -> None:
    """Draw a box with a text in it."""
    ax.add_patch(Rectangle((x, y), width, height, facecolor=PALE[colour], edgecolor=colour, linewidth=1.2))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5, color=INK, **more)


def arrow(ax: Any, start: tuple[float, float], end: tuple[float, float], colour: str = INK) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.1})


def plan() -> Figure:
    """What `explain[...].plot()` draws, of chunks that are read in part."""
    session = hs.Session(profile="s3", prices="aws")
    array = hs.create("memory://pictures/plain", (4096, 4096), "i4", chunks=(512, 512), layout="plain", session=session)
    drawn = figure(6.6, 4.9)
    array.explain[1000:1500, 500:1700].plot(drawn.subplots())
    return drawn


def gaps() -> Figure:
    """Needed bytes of an object, and what closing the smallest gaps costs: the example of the page on planning."""
    ranges = [(7, 9), (13, 16), (17, 18), (20, 22)]
    closed = [(ranges, ""), ([(7, 9), (13, 18), (20, 22)], ""), ([(7, 9), (13, 22)], "  ← best"), ([(7, 22)], "")]
    model = CostModel(Profile("toy", 3.0, (1,), (1.0,), 1), Prices.named("free"))
    drawn = figure(7.2, 2.5)
    ax = drawn.subplots()
    for row, (requests, best) in enumerate(closed):
        nbytes = sum(stop - start for start, stop in requests)
        for start, stop in requests:
            box(ax, start, -row, stop - start, 0.62, ORANGE if best else GREY)
        for start, stop in ranges:
            ax.add_patch(Rectangle((start, 0.16 - row), stop - start, 0.3, facecolor=BLUE))
        count = f"{len(requests)} request" + "s" * (len(requests) > 1)
        text = f"{count}, {nbytes} bytes: {model.cost(len(requests), nbytes):.0f} s{best}"
        ax.text(23, 0.3 - row, text, va="center", fontsize=9, color=INK, weight="bold" if best else "normal")
    ax.text(7, 1.0, "needed bytes (blue), and the requests that bring them (frames)", fontsize=9, color=INK)
    empty(ax, (6.5, 34), (-3.15, 1.35))
    return drawn


def recorded(folder: str) -> tuple[hs.Array, str]:
    """Return an array in large, square chunks, and a log of reads that are long and flat."""
    rng = np.random.default_rng(7)
    session = hs.Session(profile="s3", prices="aws", cache_bytes=0)
    url, cells = "memory://pictures/strips.zarr", rng.random((2400, 3200), np.float32)
    array = hs.save(url, cells, chunks=(400, 400), shards=False, session=session, overwrite=True)
    with hs.record(folder + "/w.hslog"):
        for y, x in rng.integers(0, (2360, 2000), (60, 2)).tolist():
            array[y : y + 40, x : x + 1200]
        for y, x in rng.integers(0, (2200, 3000), (12, 2)).tolist():
            array[y : y + 200, x : x + 200]
    return array, folder + "/w.hslog"


def advice() -> Figure:
    """What `advice.plot()` draws."""
    with tempfile.TemporaryDirectory() as folder:
        array, log = recorded(folder)
        drawn = figure(9.0, 4.6)
        hs.advise(array, log).plot(drawn.subplots(1, 2))
    return drawn


def reads() -> Figure:
    """What `workload.plot()` draws."""
    with tempfile.TemporaryDirectory() as folder:
        array, log = recorded(folder)
        drawn = figure(9.0, 4.2)
        hs.Workload.load(log).of(array).plot(drawn)
    return drawn


def shard() -> Figure:
    """The bytes of a shard."""
    drawn = figure(7.6, 2.6)
    ax = drawn.subplots()
    for at in range(6):
        box(ax, at, 2, 1, 0.7, BLUE, f"chunk {at}\n8 + 8 bytes")
    box(ax, 6, 2, 0.8, 0.7, PINK, "crc32c\n4 bytes")
    ax.text(0, 2.85, "the index: where each chunk begins, and how long it is", fontsize=9, color=INK)
    widths, at = (1.0, 0.8, 1.1, 0.9, 1.2, 0.8), 0.0
    for number, width in enumerate(widths):
        box(ax, at, 0.2, width * 1.02, 0.7, GREEN, f"chunk {number}\nzstd")
        box(ax, at + width * 1.02, 0.2, 0.16, 0.7, PINK)
        if number in (0, 4):
            arrow(ax, (number + 0.5, 2), (at + 0.12, 0.9), BLUE)
        at += width * 1.02 + 0.16
    ax.text(0, -0.2, "then the chunks, each with its own checksum: one can be read, and checked, alone", fontsize=9)
    empty(ax, (-0.05, 7.4), (-0.4, 3.2))
    return drawn


def collection() -> Figure:
    """How an array of a collection is found."""
    drawn = figure(8.2, 3.2)
    ax = drawn.subplots()
    box(ax, 0, 0.9, 1.6, 1.2, ORANGE, "collection.json\n\nwhich segments\nthere are")
    for at, y in ((1.75, 1.75), (1.25, 0.25)):
        box(ax, 2.3, y, 1.7, 1.0, BLUE, "index/ … .seg\n\nblocks, and a table\nof the blocks")
        arrow(ax, (1.6, at), (2.3, y + 0.5), ORANGE)
    box(ax, 4.7, 1.75, 1.5, 1.0, PINK, "a block\n\nup to 256 names,\nsorted")
    arrow(ax, (4.0, 2.25), (4.7, 2.25), BLUE)
    for at in range(5):
        box(ax, 4.7 + 0.66 * at, 0.25, 0.66, 0.9, GREEN, "cells" if at == 1 else "")
    ax.text(4.7, 0.0, "packs/ … .pack: the cells of arrays, one after the other", fontsize=8.5, color=INK)
    arrow(ax, (5.45, 1.75), (5.69, 1.17), PINK)
    ax.text(
        6.35, 2.25, "of each array:\npack, start, bytes,\ndtype, shape, crc32c", fontsize=8.5, color=INK, va="center"
    )
    empty(ax, (-0.05, 8.05), (-0.15, 2.85))
    return drawn


def split() -> Figure:
    """The two ways in which `hs.apply` cuts an array, and what is read twice."""
    drawn = figure(7.6, 3.9)
    ways = (
        ("layout-aware: columns as wide as memory\nallows; here one, nothing is read twice", 8, 2),
        ("general: parts as cubic as can be;\nsides of columns are read twice", 4, 4),
    )
    for ax, (title, width, height) in zip(drawn.subplots(1, 2), ways, strict=True):
        for x in range(0, 8, width):
            for y in range(0, 8, height):
                box(ax, x, y, width, height, GREY)
        top = 8 - height
        box(ax, 0, top - height, width, height, BLUE, "made now")
        ax.add_patch(Rectangle((0, top), width, 0.5, facecolor=GREEN, alpha=0.6))
        ax.text(width / 2, top + 0.62, "kept from the part above", ha="center", va="bottom", fontsize=8.5, color=INK)
        if width < 8:
            ax.add_patch(Rectangle((width, top - height), 0.5, height, facecolor=ORANGE, alpha=0.6))
            ax.text(width + 0.65, 2, "read again for\nthis column,\nlater", va="center", fontsize=8.5, color=INK)
        arrow(ax, (-0.45, 7.9), (-0.45, 0.1), GREY)
        ax.set_title(title, fontsize=9.5, loc="left")
        empty(ax, (-0.7, 8.1), (-0.1, 8.1))
        ax.set_aspect("equal")
    return drawn


def batches() -> Figure:
    """Which chunks a batch touches, fully shuffled and shuffled by blocks."""
    from hyperslab.torch import BlockSampler, SlabDataset

    rng = np.random.default_rng(4)
    starts = rng.integers(0, 448, (1000, 2))
    array = hs.create("memory://pictures/field", (512, 512), "f4", chunks=(64, 64))
    dataset = SlabDataset(array, np.stack([starts, starts + 48], axis=2))
    orders = (("shuffle=True", rng.permutation(1000)), ('shuffle="blocks"', list(BlockSampler(dataset, blocks=4))))
    drawn = figure(7.6, 4.1)
    for ax, (title, order) in zip(drawn.subplots(1, 2), orders, strict=True):
        batch = starts[np.asarray(order[:25])]
        touched = {
            (y, x)
            for top, left in batch
            for y in (top // 64, (top + 47) // 64)
            for x in (left // 64, (left + 47) // 64)
        }
        for y, x in touched:
            ax.add_patch(Rectangle((64 * x, 64 * y), 64, 64, facecolor=PALE[BLUE]))
        for top, left in batch:
            ax.add_patch(Rectangle((left, top), 48, 48, facecolor="none", edgecolor=ORANGE, linewidth=1.1))
        ticks = range(0, 513, 64)
        ax.set(xlim=(0, 512), ylim=(512, 0), xticks=ticks, yticks=ticks, aspect="equal")
        ax.tick_params(labelsize=7)
        ax.grid(color=GREY, linewidth=0.6)
        ax.set_title(f"{title}: {len(touched)} chunks for 25 samples", fontsize=9.5, loc="left")
    return drawn


PICTURES: tuple[Callable[[], Figure], ...] = (plan, gaps, advice, reads, shard, collection, split, batches)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for draw in PICTURES:
        # Without the version of Matplotlib the same picture is the same file.
        path = FOLDER / f"{draw.__name__}.png"
        draw().savefig(path, dpi=110, bbox_inches="tight", pad_inches=0.12, metadata={"Software": None})


if __name__ == "__main__":
    main()
