"""What explanations and analyses say, as reports: which facts, which tables, in which words."""

from math import prod
from typing import TYPE_CHECKING

from hyperslab.errors import InvalidInputError
from hyperslab.layout import Layout
from hyperslab.plan.breakdown import Way, breakdown, count_objects
from hyperslab.plan.cost import Estimate
from hyperslab.plan.phrases import say_bytes, say_count, say_key, say_phi, say_seconds, say_usd
from hyperslab.plan.plan import Plan
from hyperslab.plan.profile import Profile
from hyperslab.plan.render import Facts, Report, Table, printable
from hyperslab.selection import Points, Selection

if TYPE_CHECKING:
    from hyperslab.plan.explain import Alternative, Analysis, Explanation

__all__ = ["analysis_report", "explanation_report", "is_typical", "method_name", "plan_report", "result_nbytes"]

_WAYS = {
    Way.LOOKUP: "LOOKUP  a shard's index",
    Way.RANGE: "RANGE   part of an object",
    Way.GET: "GET     a whole object",
    Way.CALL: "CALL    cut beside the data",
    Way.MAP: "MAP     of a local file",
    Way.CACHE: "CACHE   at hand",
    Way.INLINE: "INLINE  among the references",
    Way.ABSENT: "ABSENT  known not to be stored",
}
_METHODS = {
    "optimiser": "cheapest grouping of the needed bytes",
    "map": "memory-mapped files",
    "get": "whole chunks",
    "merge": "one range a chunk",
    "fetch": "only the needed bytes",
    "paper": "ArrayMorph's Algorithm 1",
    "call": "cut by the function",
}

# The parts of a fee, in the order in which they are told.
_FEES = {
    "requests": "requests",
    "transfer": "transfer",
    "calls": "calls",
    "compute": "the function's time",
    "inside": "the function's own requests",
}


def explanation_report(explanation: "Explanation") -> Report:
    """Tell what a read will send, what else could have been sent, and by which figures that was weighed."""
    plan = explanation.plan
    alternatives = _alternatives_table(plan, explanation.alternatives)
    predicted = Facts((*_prediction(plan), *_why(plan, explanation.alternatives)))
    return Report(
        printable(explanation.url),
        (Facts(_subject(explanation)), _ways_table(plan), predicted, alternatives, Facts(_model(plan))),
    )


def analysis_report(analysis: "Analysis") -> Report:
    """Tell what a read sent beside what was predicted."""
    explanation = analysis.explanation
    report = explanation_report(explanation)
    subject, ways, predicted, alternatives, model = report.parts
    return Report(report.title, (subject, ways, predicted, _measured_table(analysis), alternatives, model))


def plan_report(plan: Plan) -> Report:
    """Tell what a plan sends, whoever made it."""
    touched = say_count(plan.chunk_count, "chunk") + " in " + say_count(_objects(plan), "object")
    facts = (("touches", touched), ("method", _method_in_words(plan)))
    return Report(
        f"a plan of {say_count(len(plan.reads), 'read')}",
        (Facts(facts), _ways_table(plan), Facts((*_prediction(plan), *_model(plan)))),
    )


def _subject(explanation: "Explanation") -> tuple[tuple[str, str], ...]:
    plan, selection = explanation.plan, explanation.selection
    layout = plan.reads[0].layout
    size = say_bytes(result_nbytes(plan, selection))
    grid, objects = say_count(prod(layout.grid), "chunk"), say_count(_objects(plan), "object")
    return (
        ("array", _array_in_words(layout)),
        ("selection", f"[{say_key(selection)}] → {selection.result_shape}, {size}"),
        ("touches", f"{plan.chunk_count:,} of {grid}, in {objects}"),
        ("method", _method_in_words(plan)),
    )


def result_nbytes(plan: Plan, selection: Selection | Points) -> int:
    """Return the bytes of what the user gets."""
    dtype = plan.reads[0].layout.dtype
    if isinstance(selection, Selection):
        dtype = selection.dtype_of(dtype)
    return prod(selection.result_shape) * dtype.itemsize


def _array_in_words(layout: Layout) -> str:
    dtype = str(layout.dtype)
    words = f"{dtype if len(dtype) <= 60 else dtype[:57] + '...'} {layout.shape}, chunks {layout.chunks}"
    if layout.index is not None:
        words += f", shards {layout.object_shape}"
    return words + (", plain" if layout.plain else ", encoded")


def _objects(plan: Plan) -> int:
    return sum(count_objects(read) for read in plan.reads)


def _method_in_words(plan: Plan) -> str:
    if not plan.chunk_count:
        return "nothing is selected, nothing is sent"
    if plan.direct:
        return "map: the cells are copied from memory-mapped files; a mapped chunk counts as one request"
    if not plan.requests.nbytes and not plan.wholes and not plan.calls:
        return f"{method_name(plan)}: nothing is sent, all chunks are at hand or not stored"
    words = f"{method_name(plan)}: {_METHODS[method_name(plan)]}"
    if plan.method is not None:
        words += " (forced)"
    if plan.lookups:
        return words + "; the shards' indexes are asked for first, then the plan is made again"
    if plan.calls:
        called = sum(len(call.owners) for call in plan.calls)
        words += f"; {say_count(called, 'chunk')} by {say_count(len(plan.calls), 'call')}"
        return words + (f", the others by {say_count(_sent(plan), 'request')}" if _sent(plan) else "")
    if plan.wholes and not len(plan.requests):
        return f"{method_name(plan)}: whole objects; {_why_whole(plan)}"
    if plan.method is None:
        words += f"; {say_count(len(plan.needs), 'needed run')} of bytes by {say_count(len(plan.requests), 'request')}"
    return words


def _sent(plan: Plan) -> int:
    return len(plan.requests) + len(plan.wholes)


def _why_whole(plan: Plan) -> str:
    if all(read.layout.index is None for read in plan.reads):
        return "encoded chunks cannot be read in part"
    return "that costs less than to ask for the shards' indexes first"


def method_name(plan: Plan) -> str:
    """Name the method of a plan."""
    return "map" if plan.direct else plan.method or "optimiser"


def _ways_table(plan: Plan) -> Table:
    lines = breakdown(plan)
    rows = [
        (
            _WAYS[line.way],
            f"{line.chunks:,}" if line.chunks else "",
            f"{line.requests:,}",
            say_bytes(line.needed_bytes) if line.chunks else "",
            _bound(line.exact) + say_bytes(line.fetched_bytes),
        )
        for line in lines
    ]
    if len(rows) != 1:
        estimate = plan.estimate
        fetched = _bound(estimate.exact) + say_bytes(estimate.all_bytes)
        needed = say_bytes(sum(line.needed_bytes for line in lines))
        rows.append(("all", f"{plan.chunk_count:,}", f"{estimate.all_requests:,}", needed, fetched))
    return Table(("how", "chunks", "requests", "needed", "fetched"), tuple(rows))


def _bound(exact: bool) -> str:
    return "" if exact else "≤ "


def _prediction(plan: Plan) -> tuple[tuple[str, str], ...]:
    estimate = plan.estimate
    bound = _bound(estimate.exact)
    figures = f"{bound}{say_seconds(estimate.seconds)} and {bound}{say_usd(estimate.usd)}"
    told = (("predicted", f"{figures}; requests and bytes are {_certainty(plan)}"),)
    fees = plan.model.fees(estimate)
    parts = [(name, getattr(fees, name)) for name in _FEES if getattr(fees, name)]
    if len(parts) < 2:
        return told
    return (*told, ("fee", ", ".join(f"{_FEES[name]} {say_usd(usd)}" for name, usd in parts)))


def _why(plan: Plan, alternatives: tuple["Alternative", ...]) -> tuple[tuple[str, str], ...]:
    """Say why chunks are called for, or why not, where there is a function."""
    if plan.model.function is None or plan.method is not None or not plan.estimate.all_requests:
        return ()
    if plan.calls:
        estimate = plan.estimate
        read, reply = say_bytes(estimate.function_bytes), say_bytes(estimate.reply_bytes)
        return (("why", f"the function reads {read} beside the data; {reply} of it travel"),)
    other = next((each for each in alternatives if each.method == "call"), None)
    if other is None or other.estimate is None:
        return (("why", f"no calls: {other.not_tried}"),) if other is not None else ()
    by_call = f"{say_seconds(other.estimate.seconds)} and {say_usd(other.estimate.usd)}"
    return (("why", f"no calls: cut beside the data it would be {by_call}"),)


def _certainty(plan: Plan) -> str:
    if plan.lookups:
        index = "index" if len(plan.lookups) == 1 else "indexes"
        return f"bounds: the {index} of {say_count(len(plan.lookups), 'shard')} must be read first"
    if plan.calls and not plan.wholes:
        return "exact, but for the headers of the calls' answers, which may be shorter"
    if plan.wholes:
        return "bounds: how small chunks were encoded is not known, so they count in full"
    layouts = [read.layout for read in plan.reads if not read.layout.complete]
    sparse = any(layout.sparse and (plan.direct or not layout.packed) for layout in layouts)
    sent = plan.direct or len(plan.requests)
    if plan.confirmed:
        which = "lies as it was" if len(plan.confirmed) == 1 else "lie as they were"
        index = "index is" if len(plan.confirmed) == 1 else "indexes are"
        return f"exact, if {say_count(len(plan.confirmed), 'shard')} {which} written: the {index} read along"
    return "exact if every chunk is stored" if sparse and sent else "exact"


def _alternatives_table(plan: Plan, alternatives: tuple["Alternative", ...]) -> Table:
    rows: list[tuple[str, ...]] = [("▸ " + _short(method_name(plan)), *_figures(plan.estimate, 1.0))]
    grouped: dict[tuple[str, ...], list[str]] = {}
    for each in alternatives:
        if each.estimate is None:
            grouped.setdefault((f"not tried: {each.not_tried}",), []).append(each.method)
        else:
            grouped.setdefault(_figures(each.estimate, each.cost_ratio), []).append(each.method)
    for cells, methods in grouped.items():
        rows.append(("  " + (_short(methods[0]) if len(methods) == 1 else ", ".join(methods)), *cells))
    heading: tuple[str, ...] = ("method", "requests", "lookups", "bytes", "time", "dollars", "cost")
    if all(row[2] == "0" for row in rows if len(row) == len(heading)):
        # No plan has lookups: one column less.
        heading = heading[:2] + heading[3:]
        rows = [row if len(row) < len(heading) else row[:2] + row[3:] for row in rows]
    return Table(heading, tuple(rows), strong=0)


def _short(method: str) -> str:
    return method if method == "optimiser" else f"{method}: {_METHODS[method]}"


def _figures(estimate: Estimate, ratio: float | None) -> tuple[str, ...]:
    bound = _bound(estimate.exact)
    return (
        f"{estimate.requests + estimate.calls:,}",
        f"{estimate.lookups:,}",
        bound + say_bytes(estimate.all_bytes),
        bound + say_seconds(estimate.seconds),
        bound + say_usd(estimate.usd),
        "" if ratio is None else f"{ratio:,.0f}×" if ratio >= 99.5 else f"{ratio:.2f}×",
    )


def _model(plan: Plan) -> tuple[tuple[str, str], ...]:
    profile, prices = plan.model.profile, plan.model.prices
    kind = "typical, not measured" if is_typical(profile) else "as given"
    if profile.measured_at is not None:
        kind = f"measured {profile.measured_at[:10]}"
    behaviour = (
        f"{profile.name} ({kind}): {say_seconds(profile.latency_s)} a request, "
        f"{say_bytes(round(profile.stream_bandwidth))}/s a connection, "
        f"{say_bytes(round(max(profile.bandwidth)))}/s at best, {profile.concurrency:,} in flight"
    )
    bill = f"{say_usd(prices.request_usd)} a request, {say_usd(prices.byte_usd * 1e9)} a GB"
    if not (prices.request_usd or prices.byte_usd):
        bill = "nothing is billed"
    if prices.location:
        bill += f", read from {_LOCATIONS[prices.location]}"
    return (
        ("profile", behaviour),
        *_function_facts(plan),
        ("prices", f"{prices.name} ({prices.dated}): {bill}" if prices.dated else f"{prices.name}: {bill}"),
        ("weighing", say_phi(plan.model.phi)),
    )


_LOCATIONS = {
    "same-region": "the same region",
    "other-region": "another region",
    "internet": "the internet",
}


def _function_facts(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Say how the function behaves and what it bills, if there is one."""
    function = plan.model.function
    if function is None:
        return ()
    profile, prices = function.profile, function.prices
    kind = "measured" if profile == plan.model.profile.function else "typical, not measured"
    words = f"{kind}: {say_seconds(profile.start_s)} a call, {say_seconds(profile.byte_s * 1e6)} a MB, "
    words += f"{say_seconds(profile.cut_s)} a chunk, {profile.at_once:,} at once"
    words += f", the first {say_seconds(profile.cold_s)} more" if profile.cold_s else ""
    if prices.call_usd or function.second_usd:
        words += f"; {say_usd(prices.call_usd)} a call, {say_usd(function.second_usd)} a second"
    return (("function", words),)


def is_typical(profile: Profile) -> bool:
    """Whether a profile is one of the built-in ones, at whatever concurrency."""
    try:
        known = Profile.named(profile.name)
    except InvalidInputError:
        return False
    return (profile.latency_s, profile.in_flight, profile.bandwidth, profile.request_s) == (
        known.latency_s, known.in_flight, known.bandwidth, known.request_s,
    )  # fmt: skip


def _measured_table(analysis: "Analysis") -> Table:
    predicted, measured = analysis.explanation.plan.estimate, analysis.measured
    off = {name: _percent(value) for name, value in analysis.errors_percent().items()}
    bound = _bound(predicted.exact)
    hits = f"{len(analysis.explanation.plan.cached):,}"
    called = predicted.calls or measured.calls
    rows = (
        ("requests", f"{predicted.requests:,}", f"{measured.requests:,}", off["requests"]),
        ("lookups", f"{predicted.lookups:,}", f"{measured.lookups:,}", off["lookups"]),
        *([("calls", f"{predicted.calls:,}", f"{measured.calls:,}", off["calls"])] if called else []),
        ("bytes", bound + say_bytes(predicted.all_bytes), say_bytes(measured.bytes), off["bytes"]),
        ("retries", "0", f"{measured.retries:,}", ""),
        ("cache hits", hits, f"{measured.cache_hits:,}", ""),
        ("time", bound + say_seconds(predicted.seconds), say_seconds(measured.seconds), off["seconds"]),
        ("dollars", bound + say_usd(predicted.usd), say_usd(measured.usd), off["usd"]),
    )
    return Table(("", "predicted", "measured", "the model's error"), rows)


def _percent(value: float | None) -> str:
    if value is None:
        return "none was measured"
    if abs(value) < 0.05:
        return "0%"
    return f"{value:+,.0f}%" if abs(value) >= 9.95 else f"{value:+.1f}%"
