"""Reports: titles, facts and tables, written as plain text, in colour for a terminal, or as HTML."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

__all__ = ["WIDTH", "Facts", "Report", "Table", "html_text", "plain_text", "printable", "rich_text", "shown_text"]

WIDTH = 100
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with what they are."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading; the first `left` columns hold words, the others figures.

    `strong` is the row that stands out. A row shorter than the heading has a remark as its last cell.
    """

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    strong: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A title and what stands below it."""

    title: str
    parts: tuple[Facts | Table, ...]


def printable(text: str) -> str:
    r"""Replace what a terminal would act on: names and attributes come from whoever wrote the data.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_text(report: Report) -> str:
    """Write a report as `print` should show it: in colour on a terminal, else plain."""
    try:
        terminal = sys.stdout.isatty()
    except (AttributeError, ValueError):
        # There is no stdout, or it is closed.
        terminal = False
    return rich_text(report) if terminal else plain_text(report)


def plain_text(report: Report) -> str:
    """Write a report as plain text, at most `WIDTH` columns wide.

    >>> print(plain_text(Report("a.zarr", (Facts((("array", "int32"), ("chunks", "(2, 2)"))),))))
    a.zarr
      array   int32
      chunks  (2, 2)
    """
    label_width = max((len(k) for part in report.parts if isinstance(part, Facts) for k, _ in part.pairs), default=0)
    lines = wrap(report.title, WIDTH) or [""]
    for number, part in enumerate(report.parts):
        if number:
            lines.append("")
        lines += _plain_facts(part, label_width) if isinstance(part, Facts) else _plain_table(part)
    return "\n".join(line.rstrip() for line in lines)


def _plain_facts(facts: Facts, label_width: int) -> list[str]:
    lines = []
    hanging = _INDENT + " " * (label_width + 2)
    for label, value in facts.pairs:
        rows = wrap(value, WIDTH - len(hanging)) or [""]
        lines.append(f"{_INDENT}{label:<{label_width}}  {rows[0]}")
        lines += [hanging + row for row in rows[1:]]
    return lines


def _plain_table(table: Table) -> list[str]:
    rows = [table.heading, *table.rows]
    full = [row for row in rows if len(row) == len(table.heading)]
    widths = [max(len(row[i]) for row in full) for i in range(len(table.heading))]
    for row in rows:
        # A remark may be longer than its column, the words before it may not.
        widths = [max(w, len(c)) for w, c in zip(widths, row[: table.left], strict=False)] + widths[table.left :]
    return [_INDENT + _plain_row(row, widths, table) for row in rows]


def _plain_row(row: Sequence[str], widths: Sequence[int], table: Table) -> str:
    cells = []
    for i, cell in enumerate(row):
        remark = len(row) < len(table.heading) and i == len(row) - 1
        words = i < table.left or remark
        cells.append(cell if remark else f"{cell:<{widths[i]}}" if words else f"{cell:>{widths[i]}}")
    return "  ".join(cells)


def rich_text(report: Report) -> str:
    """Write a report with colours, as wide as the terminal but no wider than `WIDTH`."""
    from rich.console import Console

    console = Console(force_terminal=True, highlight=False)
    console.width = min(console.width, WIDTH)
    with console.capture() as captured:
        console.print(rich_parts(report))
    return captured.get().rstrip("\n")


def rich_parts(report: Report) -> Any:
    """Return a report as something that rich prints."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[Any] = [Text(report.title, "bold")]
    for number, part in enumerate(report.parts):
        if number:
            parts.append(Text())
        parts.append(Padding(_rich_facts(part) if isinstance(part, Facts) else _rich_table(part), (0, 0, 0, 2)))
    return Group(*parts)


def _rich_facts(facts: Facts) -> Any:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, value in facts.pairs:
        grid.add_row(label, Text(value))
    return grid


def _rich_table(table: Table) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="cyan", pad_edge=False)
    for i, name in enumerate(table.heading):
        grid.add_column(Text(name), justify="left" if i < table.left else "right", no_wrap=i >= table.left)
    for number, row in enumerate(table.rows):
        if len(row) < len(table.heading):
            # A remark goes with the words, for it would widen a column of figures.
            *words, remark = row
            row = (*words[:-1], f"{words[-1]}\n{remark}", *[""] * (len(table.heading) - len(words)))
            grid.add_row(*map(Text, row), style="dim")
        else:
            grid.add_row(*map(Text, row), style="bold green" if number == table.strong else "")
    return grid


def html_text(report: Report) -> str:
    """Write a report for a notebook."""
    parts = [f"<p><b>{escape(report.title)}</b></p>"]
    for part in report.parts:
        if isinstance(part, Facts):
            rows = "".join(
                f"<tr><td style='text-align:left;opacity:.6'>{escape(k)}</td>"
                f"<td style='text-align:left'>{escape(v)}</td></tr>"
                for k, v in part.pairs
            )
            parts.append(f"<table>{rows}</table>")
        else:
            parts.append(_html_table(part))
    return "<div>" + "".join(parts) + "</div>"


def _html_table(table: Table) -> str:
    head = "".join(f"<th style='text-align:{_side(i, table)}'>{escape(h)}</th>" for i, h in enumerate(table.heading))
    body = []
    for number, row in enumerate(table.rows):
        span = len(table.heading) - len(row) + 1
        tags = [f"<td style='text-align:{_side(i, table)}'>{escape(c)}</td>" for i, c in enumerate(row)]
        if span > 1:
            tags[-1] = f"<td colspan={span} style='text-align:left;opacity:.6'>{escape(row[-1])}</td>"
        weight = " style='font-weight:bold'" if number == table.strong else ""
        body.append(f"<tr{weight}>{''.join(tags)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _side(column: int, table: Table) -> str:
    return "left" if column < table.left else "right"
