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
    """Rows under a heading; the first column holds words, the others figures.

    `strong` is the row that stands out. A row of two cells has a remark instead of figures.
    """

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
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
    return "\n".join("".join(text for text, _ in line).rstrip() for line in _lines(report, WIDTH))


def rich_text(report: Report) -> str:
    """Write a report with colours, as wide as the terminal but no wider than `WIDTH`."""
    from rich.console import Console

    console = Console(force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(rich_parts(report, min(console.width, WIDTH)), crop=False)
    return captured.get().rstrip("\n")


def rich_parts(report: Report, width: int = WIDTH) -> Any:
    """Return a report as something that rich prints."""
    from rich.text import Text

    lines = [Text.assemble(*line) for line in _lines(report, width)]
    whole = Text("\n", no_wrap=True, overflow="ignore").join(lines)
    whole.no_wrap, whole.overflow = True, "ignore"
    return whole


# A line is its parts, each with the style that it has where there are colours.
_Line = list[tuple[str, str]]


def _lines(report: Report, width: int) -> list[_Line]:
    labels = [label for part in report.parts if isinstance(part, Facts) for label, _ in part.pairs]
    label_width = max(map(len, labels), default=0)
    lines: list[_Line] = [[(row, "bold")] for row in wrap(report.title, width)]
    for number, part in enumerate(report.parts):
        if number:
            lines.append([])
        lines += _fact_lines(part, label_width, width) if isinstance(part, Facts) else _table_lines(part, width)
    return lines


def _fact_lines(facts: Facts, label_width: int, width: int) -> list[_Line]:
    lines: list[_Line] = []
    hanging = _INDENT + " " * (label_width + 2)
    for label, value in facts.pairs:
        rows = wrap(value, max(20, width - len(hanging))) or [""]
        lines.append([(f"{_INDENT}{label:<{label_width}}  ", "dim"), (rows[0], "")])
        lines += [[(hanging + row, "")] for row in rows[1:]]
    return lines


def _table_lines(table: Table, width: int) -> list[_Line]:
    rows = [table.heading, *table.rows]
    full = [row for row in rows if len(row) == len(table.heading)]
    widths = [max(len(row[i]) for row in full) for i in range(len(table.heading))]
    widths[0] = max(len(row[0]) for row in rows)
    # Should it be too wide, the words give way, not the figures.
    widths[0] = max(12, min(widths[0], width - len(_INDENT) - sum(widths[1:]) - 2 * len(widths[1:])))
    lines: list[_Line] = [[(_row(table.heading, widths), "cyan")]]
    for number, row in enumerate(table.rows):
        remark = len(row) < len(table.heading)
        lines.append([(_row(row, widths), "dim" if remark else "bold green" if number == table.strong else "")])
    return lines


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    words = row[0] if len(row[0]) <= widths[0] else row[0][: widths[0] - 1] + "…"
    cells = [f"{_INDENT}{words:<{widths[0]}}"]
    if len(row) < len(widths):
        return "  ".join([*cells, *row[1:]])
    return "  ".join([*cells, *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))])


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
    head = "".join(f"<th style='text-align:{_side(i)}'>{escape(name)}</th>" for i, name in enumerate(table.heading))
    body = []
    for number, row in enumerate(table.rows):
        tags = [f"<td style='text-align:{_side(i)}'>{escape(cell)}</td>" for i, cell in enumerate(row)]
        if len(row) < len(table.heading):
            span = len(table.heading) - len(row) + 1
            tags[-1] = f"<td colspan={span} style='text-align:left;opacity:.6'>{escape(row[-1])}</td>"
        weight = " style='font-weight:bold'" if number == table.strong else ""
        body.append(f"<tr{weight}>{''.join(tags)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _side(column: int) -> str:
    return "right" if column else "left"
