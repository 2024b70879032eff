"""Figures: what a measurement found, beside the bar it is held to."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

__all__ = ["Figure", "at_least", "at_most", "main", "print_table"]

# The line by which `run.py` finds the figures in what a measurement prints.
_MARK = "figures: "


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `passed` is None where there is no bar: the figure is for information."""

    what: str
    bar: str
    figure: str
    passed: bool | None = None


def at_least(what: str, ratio: float, bar: float, note: str = "") -> Figure:
    """Return the figure for "so many times faster"."""
    return Figure(what, f"≥ {bar:g}×", f"{ratio:.3g}×{note}", ratio >= bar)


def at_most(what: str, value: float, bar: float, unit: str = "×", note: str = "") -> Figure:
    """Return the figure for something that must stay small."""
    return Figure(what, f"≤ {bar:g}{unit}", f"{value:.3g}{unit}{note}", bool(value <= bar))


def main(measure: Callable[[bool], Iterable[Figure]]) -> None:
    """Run one measurement from the command line and print its figures."""
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller arrays")
    parser.add_argument("--mark", action="store_true", help="print the figures for run.py, too")
    options = parser.parse_args()
    figures = list(measure(options.quick))
    if options.mark:
        print(_MARK + json.dumps([asdict(figure) for figure in figures]))
    else:
        print_table(figures)


def parse_marked(text: str) -> list[Figure]:
    """Return the figures in the output of a measurement that was run with `--mark`."""
    lines = [line for line in text.splitlines() if line.startswith(_MARK)]
    return [Figure(**fields) for line in lines for fields in json.loads(line[len(_MARK) :])]


def print_table(figures: Iterable[Figure]) -> None:
    """Print figures as a table; plain text, so that it can be pasted anywhere."""
    rows = [("what", "bar", "figure", "")]
    rows += [(f.what, f.bar, f.figure, {True: "pass", False: "MISS", None: ""}[f.passed]) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("─" * width for width in widths))
