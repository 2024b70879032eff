"""The result in Markdown, for the documentation: a few tables for each preset, and where we lose."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.peers.report.looks import Looks
from bench.peers.report.summary import RULES, Loss, Summary, losses, of_result, our_name
from bench.peers.report.svg import number
from bench.peers.report.sweeps_for_docs import sweep_tables
from hyperslab.plan.phrases import say_bytes
from hyperslab.plan.render import printable

__all__ = ["markdown"]

_RULE_WORDS = {"same": "On the same chunks", "any": "Each on its best layout"}
_MEASURE_WORDS = {"per_minute": "queries per minute", "per_dollar": "queries per dollar"}


def markdown(result: Mapping[str, Any]) -> str:
    """Return tables of systems by workloads: queries per minute, dollars per million queries, bytes of a query.

    The best of each column is bold. Tables of the sweeps follow, if there were any.
    """
    looks, ours = Looks(result), our_name(result)
    summaries = of_result(result)
    plain = [each for each in summaries if each.plain]
    parts = []
    for preset in dict.fromkeys(each.preset for each in plain):
        here = [each for each in plain if each.preset == preset]
        parts += [
            f"### {_text(preset)}",
            "Queries per minute:",
            _table(here, looks, lambda each: each.per_minute, number, most=True),
            "Dollars per million queries:",
            _table(here, looks, lambda each: 1e6 / each.per_dollar if each.per_dollar else None, number, most=False),
            "Bytes of a query:",
            _table(here, looks, lambda each: each.bytes, lambda value: say_bytes(round(value)), most=False),
        ]
    if varied := [*sweep_tables(result, looks)]:
        parts += ["### One thing varied at a time", *varied]
    parts += ["### Where we lose", *_lost(losses(summaries, ours), looks)]
    return "\n\n".join(parts) + "\n"


def _table(
    group: Sequence[Summary],
    looks: Looks,
    value: Callable[[Summary], float | None],
    say: Callable[[float], str],
    *,
    most: bool,
) -> str:
    workloads = list(dict.fromkeys(each.workload for each in group))
    cells = {(each.system, each.layout, each.workload): each for each in group}
    best = {
        name: (max if most else min)(found)
        for name in workloads
        if (found := [seen for each in group if each.workload == name and (seen := value(each)) is not None])
    }
    lines = ["| | " + " | ".join(map(_text, workloads)) + " |", "|---|" + "---:|" * len(workloads)]
    for system, layout in dict.fromkeys((each.system, each.layout) for each in group):
        row = []
        for name in workloads:
            each = cells.get((system, layout, name))
            seen = None if each is None else value(each)
            if seen is None:
                row.append("failed" if each is not None and each.error else "–")
            else:
                row.append(f"**{say(seen)}**" if seen == best[name] else say(seen))
        lines.append(f"| {_text(looks[system].title)}, {_text(layout)} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _lost(found: Sequence[Loss], looks: Looks) -> list[str]:
    if not found:
        return ["Nowhere: no peer has more queries per minute or per dollar."]
    parts = []
    for rule in RULES:
        here = [f"- {_say(loss, looks)}" for loss in found if loss.rule == rule]
        parts.append(f"{_RULE_WORDS[rule]}:" if here else f"{_RULE_WORDS[rule]}: nowhere.")
        if here:
            parts.append("\n".join(here))
    return parts


def _say(loss: Loss, looks: Looks) -> str:
    peer = f"{_text(loss.preset)}, {_text(loss.workload)}: {_text(looks[loss.peer].title)} ({_text(loss.peer_layout)})"
    words = _MEASURE_WORDS[loss.measure]
    if loss.factor is None or loss.our_value is None:
        return f"{peer} has {number(loss.peer_value)} {words}, we failed"
    return f"{peer} has {loss.factor:.2f}× our {words} ({number(loss.peer_value)} against {number(loss.our_value)})"


def _text(text: Any) -> str:
    """Return a text that means itself in a Markdown table.

    >>> _text("a|b*c<d>")
    'a\\\\|b\\\\*c&lt;d&gt;'
    """
    found = printable(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join("\\" + c if c in "\\|*_`[]" else c for c in found)
