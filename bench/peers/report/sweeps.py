"""Figures of the sweeps: phi, chunk sizes, lines and planning, as the paper's Figures 10, 11 and 12."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import fmean, median
from typing import Any

from bench.peers.report.looks import METHODS, Looks, legend, method_of
from bench.peers.report.svg import Axis, Panel, number, panel_grid, round_seconds, safe, short
from hyperslab.plan.phrases import say_bytes, say_seconds, say_usd

__all__ = ["chunk_sizes", "lines", "phi_sweep", "planning"]

Rows = Sequence[Mapping[str, Any]]


def phi_sweep(rows: Rows) -> str:
    """Figure 10: seconds and dollars by phi."""
    rows = [row for row in rows if _good(row.get("seconds"))]
    found = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        here = sorted((row for row in rows if row["preset"] == preset), key=lambda row: float(row["phi"]))
        phis = list(dict.fromkeys(float(row["phi"]) for row in here))
        panels = [
            _by_phi(f"{preset}: seconds", here, phis, ("seconds", "predicted_s"), round_seconds),
            _by_phi(f"{preset}: dollars", here, phis, ("usd",), say_usd),
            _by_phi(f"{preset}: bytes", here, phis, ("bytes",), lambda value: short(value) + "B"),
        ]
        found.append(panel_grid(panel for panel in panels if panel is not None))
    return "\n".join(found)


def _by_phi(
    title: str, rows: Rows, phis: list[float], names: Sequence[str], say: Callable[[float], str]
) -> Panel | None:
    """The first of `names` was measured, a second was predicted."""
    series = {
        name: [(n, value) for n, phi in enumerate(phis) if (value := _middle(rows, phi, name)) is not None]
        for name in names
    }
    values = [value for points in series.values() for _, value in points]
    if not values:
        return None
    panel = Panel(
        title,
        f"{title} by phi: {'; '.join(f'{phis[n]:g} {say(value)}' for n, value in series[names[0]])}.",
        Axis(-0.5, len(phis) - 0.5, label="φ: what a dollar is worth, in seconds", ticks=_phi_ticks(phis)),
        Axis.over(values, log=False, say=say),
        left=66,
    )
    for name, points in reversed(series.items()):
        measured = name == names[0]
        panel.line(points, "s0" if measured else "plain dashed")
        for n, value in points:
            tip = f"φ {phis[n]:g}: {'measured' if measured else 'predicted'} {say(value)}"
            panel.mark(
                "star" if measured else "circle", n, value, "s0 full" if measured else "plain hollow", tip, size=4
            )
    return panel


def _phi_ticks(phis: list[float]) -> tuple[tuple[float, str], ...]:
    """Name at most seven, and always the last."""
    every, last = -(-len(phis) // 7), len(phis) - 1
    return tuple((n, short(phi) if isfinite(phi) else "∞") for n, phi in enumerate(phis) if (last - n) % every == 0)


def _middle(rows: Rows, phi: float, name: str) -> float | None:
    values = [row[name] for row in rows if float(row["phi"]) == phi and _good(row.get(name))]
    return median(values) if values else None


def chunk_sizes(rows: Rows, looks: Looks, ours: str) -> str:
    """Figure 11: queries per minute and per dollar against the chunks' size."""
    good = [row for row in rows if row.get("seconds") and all(map(_good, row["seconds"])) and not row.get("error")]
    if not good:
        return ""
    found = []
    for preset in dict.fromkeys(row["preset"] for row in good):
        here = [row for row in good if row["preset"] == preset]
        panels = []
        for workload in dict.fromkeys(row["workload"] for row in here):
            group = [row for row in here if row["workload"] == workload]
            panels += [_sizes(workload, group, looks, ours, dollars) for dollars in (False, True)]
        found += [f"<h3>{safe(preset)}</h3>", panel_grid(panel for panel in panels if panel is not None)]
    names = [name for name in looks if any(row["system"] == name for row in good)]
    methods = [name for name in METHODS if any(row.get("method") == name for row in good)]
    return "\n".join([legend(looks, names, (), methods), *found])


def _sizes(workload: str, rows: Rows, looks: Looks, ours: str, dollars: bool) -> Panel | None:
    def value(row: Mapping[str, Any]) -> float | None:
        return (1 / row["usd"] if _good(row.get("usd")) else None) if dollars else 60 / fmean(row["seconds"])

    series: dict[tuple[str, str | None], list[tuple[float, float, Mapping[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: row["chunk_bytes"]):
        if (found := value(row)) is not None:
            series.setdefault((row["system"], row.get("method")), []).append((row["chunk_bytes"], found, row))
    points = [point for each in series.values() for point in each]
    if not points:
        return None
    unit = "queries per dollar" if dollars else "queries per minute"
    ends = [y for _, y, _ in points]
    if not dollars:
        ends += [60 / end for *_, row in points for end in (min(row["seconds"]), max(row["seconds"]))]
    x, y, row = max(points, key=lambda point: point[1])
    panel = Panel(
        f"{workload}: {'per dollar' if dollars else 'per minute'}",
        f"{workload}: {unit} against chunk size. "
        f"Most: {looks[row['system']].title} at {say_bytes(int(x))}, {number(y)}.",
        Axis.over((x for x, *_ in points), log=True, label="bytes of a chunk", say=lambda v: short(v) + "B"),
        Axis.over(ends, log=True, label=unit),
    )
    for (system, method), each in sorted(series.items(), key=lambda item: (item[0][0] == ours, item[0][1] is None)):
        css = looks[system].css if method is None else method_of(method).css
        panel.line([(x, y) for x, y, _ in each], css + ("" if method is None else " thin"))
        for x, y, row in each:
            if not dollars:
                panel.line([(x, 60 / max(row["seconds"])), (x, 60 / min(row["seconds"]))], css + " thin")
            shape = " × ".join(map(str, row.get("chunks") or ()))
            name = looks[system].title + (f", {method}" if method else "")
            tip = f"{name}, {say_bytes(int(x))} ({shape}): {number(y)} {unit}"
            if method is None:
                panel.mark(looks[system].shape, x, y, css + " full", tip, size=4.5)
            else:
                panel.disc(method_of(method).letter, x, y, css, tip)
    return panel


def lines(rows: Rows, looks: Looks, ours: str) -> str:
    """Figures 12b and 12c: needed bytes per second against the line's bandwidth and latency, by method."""
    good = [row for row in rows if row.get("seconds") and all(map(_good, row["seconds"])) and not row.get("error")]
    panels = []
    for axis, workload in dict.fromkeys((row["axis"], row["workload"]) for row in good):
        panels.append(
            _line(axis, workload, [r for r in good if (r["axis"], r["workload"]) == (axis, workload)], looks, ours)
        )
    if not panels:
        return ""
    methods = [name for name in METHODS if any(row.get("method") == name for row in good)]
    return legend(looks, [ours], (), methods) + panel_grid(panels)


def _line(axis: str, workload: str, rows: Rows, looks: Looks, ours: str) -> Panel:
    wide = axis == "bandwidth"
    scale = 1e-6 if wide else 1e3
    series: dict[str | None, list[tuple[float, float, Mapping[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: row["value"]):
        rate = row["needed_bytes"] / min(row["seconds"]) / 1e6
        series.setdefault(row.get("method"), []).append((scale * row["value"], rate, row))
    points = [point for each in series.values() for point in each]
    panel = Panel(
        f"{workload}: {axis}",
        f"{workload}: needed MB per second against {axis}. "
        + "; ".join(
            f"{method or 'optimiser'} {' '.join(f'{y:.3g}' for _, y, _ in each)}" for method, each in series.items()
        ),
        Axis.over((x for x, *_ in points), log=True, label="bandwidth, MB/s" if wide else "latency, ms"),
        Axis.over((y for _, y, _ in points), log=False, label="needed MB per second", room=1.12),
    )
    for method, each in sorted(series.items(), key=lambda item: item[0] is None):
        css = looks[ours].css if method is None else method_of(method).css
        panel.line([(x, y) for x, y, _ in each], css + ("" if method is None else " thin"))
        for x, y, row in each:
            tip = f"{method or 'optimiser'} at {x:g} {'MB/s' if wide else 'ms'}: {number(y)} MB/s of needed bytes"
            tip += f", {say_bytes(row['bytes'])} moved"
            if method is None:
                panel.mark(looks[ours].shape, x, y, css + " full", tip)
            else:
                panel.disc(method_of(method).letter, x, y, css, tip)
    return panel


def planning(rows: Rows) -> str:
    """Figure 12a: the planner's own seconds against the array's size."""
    good = [row for row in rows if _good(row.get("seconds")) and _good(row.get("array_bytes"))]
    return panel_grid(
        _planned(
            workload, sorted((row for row in good if row["workload"] == workload), key=lambda row: row["array_bytes"])
        )
        for workload in dict.fromkeys(row["workload"] for row in good)
    )


def _planned(workload: str, rows: Rows) -> Panel:
    series = {
        name: [(row["array_bytes"], row[name], row) for row in rows if _good(row.get(name))] for name in _PLANNERS
    }
    points = series["seconds"]
    panel = Panel(
        f"{workload}: planning",
        f"{workload}: seconds of planning against the array's bytes: "
        + "; ".join(f"{say_bytes(int(x))} {say_seconds(y)}" for x, y, _ in points),
        Axis.over((x for x, *_ in points), log=True, label="bytes of the array", say=lambda v: short(v) + "B"),
        Axis.over((y for each in series.values() for _, y, _ in each), log=True, say=round_seconds),
    )
    for name, (shape, css, words) in reversed(_PLANNERS.items()):
        if series[name]:
            panel.line([(x, y) for x, y, _ in series[name]], css.split()[0])
        for x, y, row in series[name]:
            tip = f"{say_bytes(int(x))} in {row['chunks']:,} chunks: planned in {say_seconds(y)}, {words}"
            panel.mark(shape, x, y, css, tip)
    return panel


# The planner's seconds when it can send requests only, and when it may call a function.
_PLANNERS = {
    "seconds": ("star", "s0 full", "requests only"),
    "function_seconds": ("circle", "plain hollow", "a function at hand"),
}


def _good(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value) and value > 0
