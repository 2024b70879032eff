"""Figures of the reads, each a grid of small panels: the paper's Figures 7, 8, 9 and 14, bytes, and predictions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.peers.report.looks import LAYOUT_CSS, METHODS, Looks, item, legend, method_of, sample, say_phi
from bench.peers.report.summary import Summary, median_error, predictions
from bench.peers.report.svg import Axis, Panel, number, panel_grid, round_seconds, rows_axis, safe, short
from hyperslab.plan.phrases import say_bytes, say_seconds

__all__ = ["bytes_moved", "forced_methods", "per_minute_per_dollar", "plan_mix", "predicted"]

Rows = Sequence[Mapping[str, Any]]
# Seconds and dollars of one thing, in one panel.
_SECONDS, _DOLLARS = "circle", "diamond"


def per_minute_per_dollar(summaries: Sequence[Summary], looks: Looks, ours: str) -> str:
    """Figures 7 and 14: the systems, and beneath them our forced methods."""
    drawn = [each for each in summaries if each.per_minute is not None and each.per_dollar is not None]
    found = []
    for preset in _presets(drawn):
        here = [each for each in drawn if each.preset == preset]
        systems = [each for each in here if each.plain]
        methods = [each for each in here if each.system == ours and each.layout == "same" and each.phi in (None, "inf")]
        found += [f"<h3>{safe(preset)}</h3>", panel_grid(_trade(group, looks, ours) for group in _by_workload(systems))]
        if any(_way(each) for each in methods):
            title = safe(looks[ours].title)
            found += [
                f"<h4>{safe(preset)}: {title}'s plan beside methods that are forced, same chunks</h4>",
                panel_grid(_trade(group, looks, ours) for group in _by_workload(methods) if len(group) > 1),
            ]
    if not found:
        return ""
    names = [name for name in looks if any(each.system == name for each in drawn)]
    return "\n".join([legend(looks, names, _layouts(drawn), _methods(drawn)), *found])


def _trade(group: Sequence[Summary], looks: Looks, ours: str) -> Panel:
    quickest = max(group, key=lambda each: each.per_minute or 0)
    cheapest = max(group, key=lambda each: each.per_dollar or 0)
    about = (
        f"{quickest.preset}, {quickest.workload}: queries per dollar against queries per minute. "
        f"Most per minute: {_who(quickest, looks)}, {number(quickest.per_minute or 0)}. "
        f"Most per dollar: {_who(cheapest, looks)}, {number(cheapest.per_dollar or 0)}."
    )
    panel = Panel(
        quickest.workload,
        about,
        Axis.over((each.per_minute or 0 for each in group), log=True, label="queries per minute →"),
        Axis.over((each.per_dollar or 0 for each in group), log=True, label="queries per dollar →"),
    )
    # Ours lie on top, the planner's own choice above all.
    for each in sorted(group, key=lambda each: (each.system == ours, _way(each) is None)):
        x, y = each.per_minute or 0, each.per_dollar or 0
        tip = f"{_who(each, looks)}: {number(x)} per minute, {number(y)} per dollar"
        if (way := _way(each)) is not None:
            look = method_of(way)
            panel.disc(look.letter, x, y, look.css, tip)
        else:
            look = looks[each.system]
            panel.mark(look.shape, x, y, f"{look.css} {LAYOUT_CSS.get(each.layout, 'full')}", tip)
    return panel


def bytes_moved(summaries: Sequence[Summary], looks: Looks) -> str:
    """How many times the needed bytes came to the client: bars from one."""
    plain = [each for each in summaries if each.plain]
    drawn = [each for each in plain if each.bytes and each.needed_bytes]
    found = []
    for preset in _presets(drawn):
        here = [each for each in plain if each.preset == preset]
        panels = [_factors(group, looks) for group in _by_workload(here) if any(each in drawn for each in group)]
        found += [f"<h3>{safe(preset)}</h3>", panel_grid(panels)]
    return "\n".join([legend(looks, (), _layouts(drawn)), *found]) if found else ""


def _factors(group: Sequence[Summary], looks: Looks) -> Panel:
    names = [name for name in looks if any(each.system == name for each in group)]
    drawn = [each for each in group if each.bytes and each.needed_bytes]
    needed = drawn[0].needed_bytes or 1
    factors = [(each.bytes or 0) / needed for each in drawn]
    rows = {name: [each for each in group if each.system == name] for name in names}
    least = min(drawn, key=lambda each: each.bytes or 0)
    panel = Panel(
        f"{least.workload}: {say_bytes(round(needed))} needed",
        f"{least.preset}, {least.workload}: bytes that came for each needed byte. "
        f"Fewest: {_who(least, looks)}, {say_bytes(round(least.bytes or 0))} of {say_bytes(round(needed))} needed.",
        Axis.over(
            [*factors, 1.0],
            log=True,
            label="bytes moved, times the needed",
            room=1.2,
            low=1.0 if min(factors) >= 1 else None,
            say=lambda factor: f"{short(factor)}×",
        ),
        rows_axis([looks[name].title for name in names]),
        height=66 + 27 * len(names),
        left=86,
    )
    for row, name in enumerate(names):
        for n, each in enumerate(rows[name]):
            drop = (n - (len(rows[name]) - 1) / 2) * 8
            if not each.bytes or not each.needed_bytes:
                panel.words(1.0, row, f"{each.layout} failed", "note", drop=drop + 3, shift=4)
                continue
            css = f"{looks[name].css} {LAYOUT_CSS.get(each.layout, 'full')}"
            tip = f"{_who(each, looks)}: {say_bytes(round(each.bytes))}, {each.bytes / needed:.3g} × the needed"
            panel.bar(1.0, each.bytes / needed, row, css, tip, height=6.5, drop=drop)
    panel.line([(1.0, -0.5), (1.0, len(names) - 0.5)], "rule")
    return panel


_WAYS = (("whole objects", "w-get"), ("ranges", "w-range"), ("calls", "w-call"))


def plan_mix(summaries: Sequence[Summary], ours: str) -> str:
    """Figure 8: how the optimiser has bytes brought, workload by workload, and by phi where it was given."""
    drawn = [each for each in summaries if each.system == ours and each.method is None and each.gets is not None]
    drawn = [each for each in drawn if (each.requests or 0) + (each.calls or 0) > 0]
    if not drawn:
        return ""
    keys = "".join(f'<li><span class="swatch {css}"></span>{name}</li>' for name, css in _WAYS)
    found = [f'<ul class="legend">{keys}</ul>']
    for preset in _presets(drawn):
        here = [each for each in drawn if each.preset == preset]
        panels = [_mix(preset, layout, [each for each in here if each.layout == layout]) for layout in _layouts(here)]
        found += [f"<h3>{safe(preset)}</h3>", panel_grid(panels)]
    return "\n".join(found)


def _mix(preset: str, layout: str, group: Sequence[Summary]) -> Panel:
    names = [each.workload if each.phi is None else f"{each.workload}, {say_phi(each.phi)}" for each in group]
    said = []
    panel = Panel(
        f"layout “{layout}”",
        "",
        Axis(0, 100, label="share of requests, %", ticks=tuple((n, str(n)) for n in (0, 25, 50, 75, 100))),
        rows_axis(names),
        height=66 + 24 * len(names),
        left=92,
        right=46,
    )
    for row, each in enumerate(group):
        requests, gets, calls = each.requests or 0, each.gets or 0, each.calls or 0
        counts = (gets, max(0.0, requests - gets), calls)
        done, shares = 0.0, []
        for (way, css), count in zip(_WAYS, counts, strict=True):
            share = 100 * count / sum(counts)
            if not share:
                continue
            tip = f"{names[row]}: {number(count)} {way}, {share:.0f}%"
            panel.bar(done, done + share, row, css, tip, height=15)
            if share >= 16:
                panel.words(done + share / 2, row, f"{share:.0f}%", f"inside {css}", drop=3.5, anchor="middle")
            shares.append(f"{share:.0f}% {way}")
            done += share
        panel.words(100, row, short(sum(counts)), "note", drop=3.5, shift=5)
        said.append(f"{names[row]} {', '.join(shares)}")
    panel.words(100, 0, "a query", "note", drop=-15, shift=5)
    panel.about = f"{preset}, layout {layout}, how the optimiser reads: {'; '.join(said)}."
    return panel


def forced_methods(summaries: Sequence[Summary], ours: str) -> str:
    """Figure 9: seconds and dollars of each forced method, relative to the optimiser's own plan."""
    mine = [each for each in summaries if each.system == ours and each.phi is None and each.seconds]
    found = []
    for preset in _presets(mine):
        panels = []
        for group in _by_workload([each for each in mine if each.preset == preset and each.layout == "same"]):
            chosen = next((each for each in group if each.method is None), None)
            forced = [each for each in group if each.method is not None]
            if chosen is not None and forced:
                panels.append(_relative(chosen, forced))
        if panels:
            found += [f"<h3>{safe(preset)}</h3>", panel_grid(panels)]
    if not found:
        return ""
    keys = _seconds_and_dollars()
    return "\n".join([keys, *found])


def _relative(chosen: Summary, forced: Sequence[Summary]) -> Panel:
    ratios = [(each, each.seconds / chosen.seconds, _ratio(each.usd, chosen.usd)) for each in forced]  # type: ignore[operator]
    values = [value for _, *pair in ratios for value in pair if value is not None]
    said = "; ".join(
        f"{each.method} {quick:.2g} × the seconds" + (f" and {cheap:.2g} × the dollars" if cheap else "")
        for each, quick, cheap in ratios
    )
    panel = Panel(
        chosen.workload,
        f"{chosen.preset}, {chosen.workload}, forced methods relative to the optimiser: {said}.",
        Axis.over([*values, 1.0], log=True, label="times the optimiser's (left of 1 is better)", room=1.25),
        rows_axis([method_of(each.method or "").title.partition(":")[0] for each in forced]),
        height=66 + 24 * len(forced),
        left=52,
    )
    panel.line([(1.0, -0.5), (1.0, len(forced) - 0.5)], "rule")
    for row, (each, quick, cheap) in enumerate(ratios):
        panel.line([(panel.x.low, row), (panel.x.high, row)], "faint")
        panel.mark(_SECONDS, quick, row, "plain full", f"{each.method}: {quick:.3g} × the seconds", size=5, rise=3)
        if cheap is not None:
            panel.mark(
                _DOLLARS, cheap, row, "plain hollow", f"{each.method}: {cheap:.3g} × the dollars", size=5, rise=-3
            )
    return panel


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _seconds_and_dollars() -> str:
    return (
        f'<ul class="legend">{item(sample(_SECONDS, "plain full"), "seconds")}'
        f"{item(sample(_DOLLARS, 'plain hollow'), 'dollars')}</ul>"
    )


def predicted(reads: Rows, looks: Looks, ours: str) -> str:
    """Seconds as our plans predicted them, against those that were measured."""
    pairs = predictions(reads, ours)
    if not pairs:
        return ""
    found, panels = [], []
    for preset in dict.fromkeys(read["preset"] for read, *_ in pairs):
        here = [pair for pair in pairs if pair[0]["preset"] == preset]
        chosen = [pair for pair in here if pair[0].get("method") is None]
        forced = [pair for pair in here if pair[0].get("method") is not None]
        said = [
            f"{100 * error:.0f}% over {len(each)} reads {kind}"
            for each, kind in ((chosen, "by the optimiser"), (forced, "by forced methods"))
            if (error := median_error(each)) is not None
        ]
        found.append(f"<li><b>{safe(preset)}</b>: median error {' and '.join(said)}</li>")
        panels.append(_scatter(preset, here, looks, ours, said))
    methods = [name for name in METHODS if any(read.get("method") == name for read, *_ in pairs)]
    return "\n".join(["<ul>", *found, "</ul>", legend(looks, [ours], (), methods), panel_grid(panels)])


def _scatter(preset: str, pairs: list[tuple[Any, float, float]], looks: Looks, ours: str, said: list[str]) -> Panel:
    axis = Axis.over([value for _, *both in pairs for value in both], log=True, say=round_seconds)
    panel = Panel(
        preset,
        f"{preset}: predicted against measured seconds; median error {' and '.join(said)}.",
        Axis(axis.low, axis.high, True, "measured", axis.ticks),
        Axis(axis.low, axis.high, True, "predicted", axis.ticks),
        height=280,
        left=58,
    )
    low, high = axis.low, axis.high
    panel.area(
        [(low * 1.2, low), (high, high / 1.2), (high, high), (high / 1.2, high), (low, low * 1.2), (low, low)], "near"
    )
    panel.line([(low, low), (high, high)], "rule")
    for read, guess, seconds in sorted(pairs, key=lambda pair: pair[0].get("method") is None):
        tip = f"{read['workload']}, {read['layout']}, {read.get('method') or 'optimiser'}: "
        tip += f"predicted {say_seconds(guess)}, took {say_seconds(seconds)}"
        if read.get("method") is not None:
            panel.mark("circle", seconds, guess, f"{method_of(read['method']).css} full", tip, size=2.6)
        else:
            panel.mark(looks[ours].shape, seconds, guess, f"{looks[ours].css} full", tip, size=3.8)
    return panel


def _who(each: Summary, looks: Looks) -> str:
    return ", ".join([looks[each.system].title, each.layout, *filter(None, [_way(each)])])


def _way(each: Summary) -> str | None:
    """Return how a read was told to go: a method, or a phi; None for the optimiser as it is."""
    return each.method or (None if each.phi is None else say_phi(each.phi))


def _presets(summaries: Iterable[Summary]) -> list[str]:
    return list(dict.fromkeys(each.preset for each in summaries))


def _by_workload(summaries: Iterable[Summary]) -> Iterator[list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for each in summaries:
        groups.setdefault(each.workload, []).append(each)
    yield from groups.values()


def _layouts(summaries: Sequence[Summary]) -> list[str]:
    there = dict.fromkeys(each.layout for each in summaries)
    return [name for name in LAYOUT_CSS if name in there] + [name for name in there if name not in LAYOUT_CSS]


def _methods(summaries: Sequence[Summary]) -> list[str]:
    return [name for name in METHODS if any(_way(each) == name for each in summaries)]
