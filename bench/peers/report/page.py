"""The page: sections in their order, and the style sheet. It needs no network and no script."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.report import figures, sweeps, tables
from bench.peers.report.looks import Looks, style_sheet
from bench.peers.report.summary import Summary, losses, of_result, our_name, standings

__all__ = ["page", "write_report"]

_STYLE = Path(__file__).with_name("style.css")
_QUICK, _FULL = "make bench", "make bench-full"


def write_report(result: Mapping[str, Any], path: Path) -> None:
    """Write the page of a result file."""
    path.write_text(page(result), encoding="utf-8")


def page(result: Mapping[str, Any]) -> str:
    """Return the page: HTML that is XML as well."""
    sections = list(_sections(result))
    contents = "".join(f'<li><a href="#{mark}">{title}</a></li>' for mark, title, _ in sections)
    first, *others = [f'<section id="{mark}">\n<h2>{title}</h2>\n{text}\n</section>' for mark, title, text in sections]
    rest = "\n".join(others)
    title = "Hyperslab and its peers in one cloud"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<title>{title}</title>
<style>
{_STYLE.read_text(encoding="utf-8").rstrip()}
{style_sheet()}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>Array libraries read the same data by the same queries, in a cloud that runs on one machine: an object store, a
function beside it, and a line of real TCP with delay and limited bandwidth. Every answer was compared with NumPy's.</p>
{tables.made(result)}
</header>
<main>
{first}
<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>
{rest}
</main>
</body>
</html>
"""


def _sections(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each section's name in links, its title and its text."""
    looks, ours, summaries = Looks(result), our_name(result), of_result(result)
    compared, asked = standings(summaries, ours), result.get("bars") or []
    passed = [row.get("passed") for row in asked]
    yield "glance", "At a glance", tables.glance(compared, passed, looks, ours) or _none(_QUICK)
    yield "setting", "What was measured, and how to read it", _HOW + tables.setting(result) + _REPEAT
    yield "bars", "Bars", tables.bars(asked) if asked else _none(_QUICK)
    lost = _LOST + tables.lost(losses(summaries, ours), summaries, looks, ours)
    yield "lost", "Where we lose", lost if summaries else _none(_QUICK)
    yield "won", "Every case: won and lost", tables.won_and_lost(compared, looks) if compared else _none(_QUICK)
    for name, title, words, drawn, command in [*_of_reads(result, looks, ours), *_of_sweeps(result, looks, ours)]:
        yield name, title, f"<p>{words}</p>\n{drawn}" if drawn else _none(command)
    others = [row for name in ("opens", "phi", "chunk_sizes", "lines") for row in result.get(name) or ()]
    yield "failed", "What failed", tables.failures(summaries, others, looks) or "<p>Nothing.</p>"
    yield "all", "Every figure", _every(result, summaries, looks)


_Figure = tuple[str, str, str, str, str]


def _of_reads(result: Mapping[str, Any], looks: Looks, ours: str) -> Iterator[_Figure]:
    """Yield a figure's name, title, words, drawing and the command that makes it."""
    summaries = of_result(result)
    yield (
        "trade", "Queries per minute and per dollar (the paper's Figures 7 and 14)",
        "Up and to the right is better. Panels have scales of their own: compare within one, not across.",
        figures.per_minute_per_dollar(summaries, looks, ours), _QUICK,
    )  # fmt: skip
    yield (
        "bytes", "Bytes moved for each needed byte",
        "Bars start at 1×, the needed bytes: to the left is compression, to the right is waste. Headers count, too.",
        figures.bytes_moved(summaries, looks), _QUICK,
    )  # fmt: skip
    yield (
        "mix", "What the optimiser chose (Figure 8)",
        "What our reads ask for: whole objects, ranges of objects, calls of the function. To the right, how many.",
        figures.plan_mix(summaries, ours), _QUICK,
    )  # fmt: skip
    yield (
        "forced", "The optimiser and forced methods (Figure 9)",
        "One method for all chunks, forced, instead of a plan. What lies left of 1 beat the optimiser.",
        figures.forced_methods(summaries, ours), _QUICK,
    )  # fmt: skip
    yield (
        "predicted", "Predicted and measured seconds",
        "Each mark is a read. On the line the prediction was right; the band is ±20%.",
        figures.predicted(result.get("reads") or [], looks, ours), _QUICK,
    )  # fmt: skip


def _of_sweeps(result: Mapping[str, Any], looks: Looks, ours: str) -> Iterator[_Figure]:
    """Yield the same, of what only a full run measures."""
    yield (
        "phi", "Seconds or dollars: φ (Figure 10)",
        "The vertical workload: a large φ saves dollars, a small one seconds. Stars are measured, circles predicted.",
        sweeps.phi_sweep(result.get("phi") or []), _FULL,
    )  # fmt: skip
    yield (
        "sizes", "Chunk sizes (Figure 11)",
        "Average of all queries; thin upright lines go from the slowest to the quickest. What failed is left out.",
        sweeps.chunk_sizes(result.get("chunk_sizes") or [], looks, ours), _FULL,
    )  # fmt: skip
    yield (
        "planning", "Planning time and the array's size (Figure 12a)",
        "How long the planner thinks; nothing is fetched. Stars: requests only. Circles: a function is at hand.",
        sweeps.planning(result.get("planning") or []), _FULL,
    )  # fmt: skip
    yield (
        "lines", "Other lines (Figures 12b and 12c)",
        "Needed bytes per second, by bandwidth and by latency, for the optimiser (star) and forced methods.",
        sweeps.lines(result.get("lines") or [], looks, ours), _FULL,
    )  # fmt: skip


def _every(result: Mapping[str, Any], summaries: Sequence[Summary], looks: Looks) -> str:
    opens = result.get("opens") or []
    datasets = {name: each.get("dataset", "") for name, each in (result.get("workloads") or {}).items()}
    found = tables.every_figure(summaries, opens, datasets, looks)
    parts = [f"<p>{_EVERY}</p>", found] if found else [_none(_QUICK)]
    if opens:
        parts.append(f"<details><summary>Opening</summary>{tables.opened(opens, looks)}</details>")
    return "\n".join(parts)


def _none(command: str) -> str:
    return f'<p class="none">Not in this file; <code>{command}</code> makes it.</p>'


_HOW = """<p>Every system reads twice. <b>Same</b>: plain chunks of 16 MB, which all share. <b>Best</b>: the layout and
settings that its own documentation recommends for such reads. Hyperslab also reads its <b>default</b>: what it writes
when nothing is asked for.</p>
<p><b>Queries per minute</b> are by the quickest round of each query, <b>queries per dollar</b> by the middle one, with
AWS's prices for requests, transfer and function seconds. Opening is timed apart; caches of cells are off.</p>
"""

_REPEAT = """<h3>To repeat it</h3>
<p><code>make bench</code> measures in minutes on small data; <code>make bench-full</code> measures all that is here.
Both write a result file and this page. <code>python -m bench.peers.report RESULT.json OUT.html</code> writes the page
of a result file again.</p>
"""

_LOST = """<p>Every peer that does better, the worst for us first. On the same chunks, and with whichever layout is best
for each: the peer's own best against ours.</p>
"""

_EVERY = """All figures are of one query, on average. “Inside” requests are those of the function at the store. “Median
rounds” are queries per minute by the middle round instead of the quickest; “rounds” says how many there were."""
