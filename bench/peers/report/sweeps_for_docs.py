"""The sweeps in Markdown, for the documentation: one table for each thing that was varied."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from bench.peers.report.looks import Looks
from bench.peers.report.svg import number
from hyperslab.plan.phrases import say_bytes, say_seconds

__all__ = ["sweep_tables"]

Rows = Sequence[Mapping[str, Any]]


def sweep_tables(result: Mapping[str, Any], looks: Looks) -> Iterator[str]:
    """Give paragraphs and tables of the sweeps that a result has.

    >>> rows = [{"array_bytes": 2 * 10**12, "workload": "small box", "seconds": 2e-5, "function_seconds": 3e-5}]
    >>> print([*sweep_tables({"planning": rows}, Looks({}))][1])
    |  | small box |
    | --- | ---: |
    | 2.00 TB | 20.0 µs (30.0 µs) |
    """
    if rows := result.get("phi"):
        yield "Whole columns, by what a dollar is worth in seconds (φ):"
        yield _phi(rows)
    for name in dict.fromkeys(row["workload"] for row in result.get("chunk_sizes") or ()):
        yield f"Queries per minute by the size of plain chunks, {name}:"
        yield _chunk_sizes([row for row in result["chunk_sizes"] if row["workload"] == name], looks)
    for axis, say in (("bandwidth", lambda value: f"{value / 1e6:g} MB/s"), ("latency", say_seconds)):
        if rows := [row for row in result.get("lines") or () if row["axis"] == axis]:
            yield f"Whole rows by {axis}, the quickest of three in milliseconds:"
            yield _lines(rows, say)
    if rows := result.get("planning"):
        yield "Planning by the size of the array, in chunks of 16 MB; with a function to weigh in brackets:"
        yield _planning(rows)


def _phi(rows: Rows) -> str:
    head = ("", "φ", "seconds", "predicted", "dollars for a million", "requests", "calls", "bytes")
    return _table(
        head,
        [
            (
                row["preset"], "∞" if row["phi"] == "inf" else f"{row['phi']:g}", say_seconds(row["seconds"]),
                say_seconds(row["predicted_s"]), number(1e6 * row["usd"]), str(row["requests"]), str(row["calls"]),
                say_bytes(row["bytes"]),
            )
            for row in rows if _is_good(row.get("seconds"))
        ],
    )  # fmt: skip


def _chunk_sizes(rows: Rows, looks: Looks) -> str:
    sizes = sorted({row["chunk_bytes"] for row in rows})
    cells = {(row["system"], row["chunk_bytes"]): row for row in rows if row["method"] is None}

    def say(system: str, size: int) -> str:
        row = cells.get((system, size))
        if row is None:
            return "–"
        good = not row.get("error") and row["seconds"] and all(map(_is_good, row["seconds"]))
        return number(60 / fmean(row["seconds"])) if good else "failed"

    systems = dict.fromkeys(row["system"] for row in rows)
    return _table(
        ("", *map(say_bytes, sizes)),
        [(looks[system].title, *(say(system, size) for size in sizes)) for system in systems],
    )


def _lines(rows: Rows, say: Callable[[float], str]) -> str:
    methods = dict.fromkeys(row["method"] for row in rows)
    cells = {
        (row["value"], row["method"]): row for row in rows if row["seconds"] and all(map(_is_good, row["seconds"]))
    }

    def cell(value: float, method: str | None) -> str:
        row = cells.get((value, method))
        return "–" if row is None else f"{1e3 * min(row['seconds']):.0f}"

    values = dict.fromkeys(row["value"] for row in rows)
    return _table(
        ("", *(method or "optimiser" for method in methods)),
        [(say(value), *(cell(value, method) for method in methods)) for value in values],
    )


def _planning(rows: Rows) -> str:
    names = dict.fromkeys(row["workload"] for row in rows)
    cells = {(row["array_bytes"], row["workload"]): row for row in rows}

    def cell(size: int, name: str) -> str:
        row = cells[size, name]
        return f"{say_seconds(row['seconds'])} ({say_seconds(row['function_seconds'])})"

    sizes = dict.fromkeys(row["array_bytes"] for row in rows)
    return _table(("", *names), [(say_bytes(size), *(cell(size, name) for name in names)) for size in sizes])


def _is_good(seconds: float | None) -> bool:
    return seconds is not None and isfinite(seconds) and seconds > 0


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
