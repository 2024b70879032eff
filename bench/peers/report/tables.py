"""The tables of the report, as HTML: what was measured, what was asked of it, who wins, and every figure."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from bench.peers.report.looks import Looks, say_phi
from bench.peers.report.summary import MEASURES, RULES, Loss, Standing, Summary, best_of
from bench.peers.report.svg import number, safe
from hyperslab.plan.phrases import say_bytes, say_count, say_seconds

__all__ = ["bars", "every_figure", "failures", "glance", "lost", "made", "opened", "setting", "won_and_lost"]

_MEASURE_WORDS = {"per_minute": "queries per minute", "per_dollar": "queries per dollar"}
_RULE_WORDS = {"same": "same 16 MB chunks", "any": "each its best layout"}
# Differences smaller than this are noise.
EVEN = 1.05


def made(result: Mapping[str, Any]) -> str:
    """What was measured, when, and on what."""
    about = result.get("made") or {}
    machine = about.get("machine") or {}
    commit = f"<code>{safe(about.get('commit', 'unknown'))}</code>"
    if about.get("dirty"):
        commit += ' <span class="bad">with changes that are not committed</span>'
    took = f", in {say_seconds(about['seconds'])}" if about.get("seconds") else ""
    kinds = (("cpu", ""), ("cores", " cores"), ("memory_gb", " GB of memory"), ("kernel", ""), ("python", ""))
    parts = [f"{'Python ' if name == 'python' else ''}{machine[name]}{unit}" for name, unit in kinds if name in machine]
    versions = ", ".join(f"{name} {number}" for name, number in sorted((about.get("versions") or {}).items()))
    return _facts(
        ("measured", f"{safe(about.get('at', 'at an unknown time'))}, scale “{safe(about.get('scale', '?'))}”{took}"),
        ("commit", commit),
        ("machine", safe(", ".join(parts)) or "unknown"),
        ("versions", safe(versions) or "unknown"),
    )


def setting(result: Mapping[str, Any]) -> str:
    """Presets, workloads, and the layouts of all systems."""
    presets = [
        (
            safe(name), f"{1e3 * each['latency_s']:.3g} ms", f"{each['bytes_per_s'] / 1e6:.4g} MB/s",
            safe(each.get("location", "")), safe(each.get("why", "")),
        )
        for name, each in (result.get("presets") or {}).items()
    ]  # fmt: skip
    workloads = [
        (
            safe(name), safe(each.get("about", "")), safe(each.get("dataset", "")),
            str(len(each["needed_bytes"])), _range(each["needed_bytes"]),
        )
        for name, each in (result.get("workloads") or {}).items()
    ]  # fmt: skip
    layouts = [
        (f"<b>{safe(each.get('title', name))}</b>", safe(layout), safe(text))
        for name, each in (result.get("systems") or {}).items()
        for layout, text in (each.get("layouts") or {}).items()
    ]
    return "\n".join(
        [
            "<h3>The clouds</h3>",
            table(("preset", "latency", "bandwidth", "priced as", "why"), presets),
            "<h3>The workloads</h3>",
            table(("workload", "a query reads", "of", "queries", "needed bytes of a query"), workloads),
            "<details><summary>The systems and their layouts</summary>",
            table(("system", "layout", "what it is"), layouts),
            "</details>",
        ]
    )


def glance(standings: Sequence[Standing], passed: Sequence[Any], looks: Looks, ours: str) -> str:
    """The outcome in a few sentences."""
    said = []
    for rule in RULES:
        for measure in MEASURES:
            here = [each for each in standings if (each.rule, each.measure) == (rule, measure)]
            if here:
                won = sum(each.factor >= 1 for each in here)
                said.append(
                    f"<li><b>{won} of {len(here)}</b>: most {_MEASURE_WORDS[measure]}, {_RULE_WORDS[rule]}</li>"
                )
    found = []
    if said:
        cases = say_count(max(1, len({(each.preset, each.workload) for each in standings})), "case")
        found += [
            f"<p>Of {cases}, each a workload in a cloud, {safe(looks[ours].title)} is first in</p>",
            "<ul>",
            *said,
        ]
        found.append("</ul>")
    if passed:
        held, missed = sum(each is True for each in passed), sum(each is False for each in passed)
        found.append(f"<p>Of {say_count(len(passed), 'bar')} <b>{held} held</b> and <b>{missed} missed</b>.</p>")
    return "\n".join(found)


def bars(rows: Sequence[Mapping[str, Any]]) -> str:
    """What was asked of the figures beforehand."""
    marks = {True: '<span class="good">✓ held</span>', False: '<span class="bad">✗ missed</span>'}
    unknown = '<span class="even">– not judged</span>'
    names = ("what", "bar", "figure", "note")
    missed_first = sorted(rows, key=lambda row: {False: 0, None: 1}.get(row.get("passed"), 2))
    body = [(marks.get(row.get("passed"), unknown), *(_cell(row.get(name)) for name in names)) for row in missed_first]
    return table(("", "what", "bar", "measured", "note"), body)


def won_and_lost(standings: Sequence[Standing], looks: Looks) -> str:
    """Every case: by what factor we win, or lose, against the best peer."""
    cases = {(each.rule, each.measure, each.preset, each.workload): each for each in standings}
    body = []
    for preset, workload in dict.fromkeys((each.preset, each.workload) for each in standings):
        row = [cases.get((rule, measure, preset, workload)) for rule in RULES for measure in MEASURES]
        body.append((_case(preset, workload), *(_standing(each, looks) for each in row)))
    head = [f"{_MEASURE_WORDS[measure]}, {_RULE_WORDS[rule]}" for rule in RULES for measure in MEASURES]
    return table(("case", *head), body, css="mixed roomy")


def _case(preset: str, workload: str) -> str:
    return f'<b>{safe(workload)}</b><br /><span class="who">{safe(preset)}</span>'


def _standing(each: Standing | None, looks: Looks) -> str:
    if each is None:
        return "–"
    peer = f'<span class="who">{safe(looks[each.peer].title)}, {safe(each.peer_layout)}</span>'
    if 1 / EVEN < each.factor < EVEN:
        return f'<span class="even">≈ even, {each.factor:.2f}×</span>, with {peer}'
    if each.factor >= 1:
        return f'<span class="good">▲ {_factor(each.factor)} more</span> than {peer}'
    return f'<span class="bad">▼ {_factor(1 / each.factor)} fewer</span> than {peer}'


def lost(found: Sequence[Loss], summaries: Sequence[Summary], looks: Looks, ours: str) -> str:
    """Every peer that beats us, a line for each case, the worst first."""
    if not found:
        title = safe(looks[ours].title)
        return f"<p>Nowhere in this file: no peer has more queries per minute or per dollar than {title}.</p>"
    parts = []
    for rule, title in (("same", "All on the same 16 MB chunks"), ("any", "Each on its best layout")):
        cases: dict[tuple[str, str, str], list[Loss]] = {}
        for loss in found:
            if loss.rule == rule:
                cases.setdefault((loss.preset, loss.workload, loss.measure), []).append(loss)
        saving = [each for each in summaries if each.system == ours and each.phi == "inf"]
        body = [_lost_case(case, saving, looks) for case in cases.values()]
        parts += [f"<h3>{title}</h3>", table(("case", "ours", "peers that have more"), body)]
    return "\n".join(parts)


def _lost_case(case: Sequence[Loss], saving: Sequence[Summary], looks: Looks) -> tuple[str, ...]:
    """`saving` are our reads for which only dollars count: what a person who loses dollars here could have."""
    first = case[0]
    peers = [
        f"{_times(loss.factor)} <b>{safe(looks[loss.peer].title)}</b>, "
        f"{safe(loss.peer_layout)}: {number(loss.peer_value)}"
        for loss in case
    ]
    words = _MEASURE_WORDS[first.measure]
    own = (
        f"{words}: failed"
        if first.our_value is None
        else f"{number(first.our_value)} {words}, {safe(first.our_layout)}"
    )
    if first.measure == "per_dollar":
        here = [each for each in saving if (each.preset, each.workload) == (first.preset, first.workload)]
        cheap = best_of((each for each in here if first.rule == "any" or each.layout == "same"), "per_dollar")
        if cheap is not None:
            own += f'<br /><span class="who">with φ ∞: {number(cheap.per_dollar or 0)}, {safe(cheap.layout)}</span>'
    return _case(first.preset, first.workload), own, f'<span class="lines">{"<br />".join(peers)}</span>'


def _times(factor: float | None) -> str:
    if factor is None:
        return '<span class="bad">we failed</span>'
    even = factor < EVEN
    return f'<span class="{"even" if even else "bad"}">{_factor(factor)}{" (about even)" if even else ""}</span>'


def _factor(factor: float) -> str:
    """Write a factor.

    >>> _factor(1.234), _factor(23.4), _factor(2340.0)
    ('1.23×', '23.4×', '2,340×')
    """
    return f"{number(factor)}×"


def failures(summaries: Iterable[Summary], others: Iterable[Mapping[str, Any]], looks: Looks) -> str:
    """What could not be read, in each system's own words; `others` are the rows of openings and sweeps."""
    body = [
        (safe(each.preset), safe(each.workload), _name(each, looks), f'<span class="words">{safe(each.error)}</span>')
        for each in summaries
        if each.error is not None
    ]
    for row in others:
        if row.get("error"):
            system = [f"<b>{safe(looks[row['system']].title)}</b>"] if row.get("system") else []
            told = [f"{name.replace('_', ' ')} {row[name]}" for name in _TOLD if row.get(name) is not None]
            what = row.get("workload") or row.get("dataset") or "–"
            words = f'<span class="words">{safe(row["error"])}</span>'
            body.append((safe(row.get("preset", "–")), safe(what), ", ".join([*system, *map(safe, told)]), words))
    return table(("preset", "workload", "system", "its words"), body) if body else ""


_TOLD = ("layout", "method", "phi", "chunk_bytes", "axis", "value")


def opened(rows: Sequence[Mapping[str, Any]], looks: Looks) -> str:
    """What opening a dataset took."""
    body = [
        (
            *(safe(row.get(name)) for name in ("preset", "dataset")), safe(looks[row["system"]].title),
            safe(row.get("layout")), _figure(row.get("seconds")), _count(row.get("requests")),
            _bytes(row.get("bytes")),
        )
        for row in rows
    ]  # fmt: skip
    return table(("preset", "dataset", "system", "layout", "seconds", "requests", "bytes"), body)


_HEAD = (
    "system", "queries per minute", "median rounds", "queries per dollar", "seconds", "requests", "calls", "bytes",
    "inside requests", "predicted off by", "rounds", "opening s", "opening requests",
)  # fmt: skip


def every_figure(
    summaries: Sequence[Summary], opens: Sequence[Mapping[str, Any]], datasets: Mapping[str, str], looks: Looks
) -> str:
    """All summaries, a table for each preset and workload, folded away. `datasets` are those of the workloads."""
    known = {(row["preset"], row["dataset"], row["system"], row["layout"]): row for row in opens}
    parts = []
    for preset, workload in dict.fromkeys((each.preset, each.workload) for each in summaries):
        here = [each for each in summaries if (each.preset, each.workload) == (preset, workload)]
        data = datasets.get(workload, "")
        body = [_figures_row(each, known.get((preset, data, each.system, each.layout), {}), looks) for each in here]
        parts.append(f"<details><summary>{safe(preset)}, {safe(workload)}</summary>")
        parts += [_wrapped(_HEAD, "\n".join(body), "numbers"), "</details>"]
    return "\n".join(parts)


def _figures_row(each: Summary, opening: Mapping[str, Any], looks: Looks) -> str:
    name = _name(each, looks)
    if each.error is not None:
        words = f'<td colspan="{len(_HEAD) - 1}" class="words">failed: {safe(each.error)}</td>'
        return f"<tr><td>{name}</td>{words}</tr>"
    off = "–" if each.predicted_error is None else f"{100 * each.predicted_error:.0f}%"
    cells = (
        name, _figure(each.per_minute), _figure(each.median_per_minute), _figure(each.per_dollar),
        _figure(each.seconds), _count(each.requests), _count(each.calls), _bytes(each.bytes),
        _count(each.inside_requests), off, str(each.rounds), _figure(opening.get("seconds")),
        _count(opening.get("requests")),
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], css: str = "mixed") -> str:
    """Return a table of cells that are HTML already."""
    body = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return _wrapped(head, "\n".join(body), css) if body else "<p>None.</p>"


def _wrapped(head: Sequence[str], body: str, css: str) -> str:
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    table_ = f'<table class="{css}"><thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    # What does not fit is moved sideways by itself, not with the page; the keyboard can do that, too.
    return f'<div class="wide" tabindex="0">{table_}</div>'


def _facts(*pairs: tuple[str, str]) -> str:
    return '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs) + "</dl>"


def _name(each: Summary, looks: Looks) -> str:
    more = [each.layout, each.method, None if each.phi is None else say_phi(each.phi)]
    return f"<b>{safe(looks[each.system].title)}</b> {safe(', '.join(word for word in more if word))}"


def _cell(value: Any) -> str:
    return number(value) if _is_number(value) else safe("" if value is None else value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _figure(value: Any) -> str:
    return number(value) if _is_number(value) else "–"


def _count(value: Any) -> str:
    """Write what is mostly whole.

    >>> _count(8.0), _count(1234.25), _count(None)
    ('8', '1,234.2', '–')
    """
    return f"{value:,.1f}".removesuffix(".0") if _is_number(value) else "–"


def _bytes(value: Any) -> str:
    return say_bytes(round(value)) if _is_number(value) else "–"


def _range(values: Sequence[int]) -> str:
    if not values:
        return "–"
    low, high = say_bytes(min(values)), say_bytes(max(values))
    return low if low == high else f"{low} to {high}"
