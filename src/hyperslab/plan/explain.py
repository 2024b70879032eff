"""Explanations: a plan told to a person, with the alternatives that were rejected. Nothing is sent for one."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isinf, prod
from typing import Any, Protocol, get_args

from hyperslab.layout.wire import travels
from hyperslab.plan.breakdown import breakdown, count_objects
from hyperslab.plan.cost import Estimate
from hyperslab.plan.narrate import (
    analysis_report,
    explanation_report,
    is_typical,
    method_name,
    plan_report,
    result_nbytes,
)
from hyperslab.plan.phrases import say_key
from hyperslab.plan.plan import Method, Plan
from hyperslab.plan.render import html_text, plain_text, rich_parts, shown_text
from hyperslab.selection import Points, Selection

__all__ = ["Alternative", "Analysis", "Explanation", "Measured", "describe", "explain"]

# Alternatives that would take longer to plan than a person waits are not tried.
_MOST_RANGES = 2_000_000
_MOST_CHUNKS = 100_000
# Algorithm 1 goes chunk by chunk and range by range in Python.
_MOST_PAPER_CHUNKS = 20_000
_MOST_PAPER_RANGES = 20_000


class Measured(Protocol):
    """What a read really took: the ledger of `execute`."""

    requests: int
    lookups: int
    calls: int
    bytes: int
    retries: int
    cache_hits: int
    seconds: float
    usd: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to plan the same read; `not_tried` says why there is no estimate."""

    method: str
    estimate: Estimate | None
    cost_ratio: float | None = None
    not_tried: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation:
    """What a read will send and is predicted to cost. Print it.

    `to_dict()` is the same for programs, `plot()` draws the chunks, `analyze()` reads once and compares. Jupyter shows
    it as tables. `plan.estimate` has the figures (`requests`, `needed_bytes`, `fetched_bytes`, `lookups`,
    `lookup_bytes`, `seconds`, `usd`, `exact`; of calls `calls`, `reply_bytes`, `function_bytes`, `function_gets`,
    `function_s`), `alternatives` those of the other methods, each with `method`, `estimate` and `cost_ratio`.

    >>> import numpy as np
    >>> import hyperslab as hs
    >>> a = hs.save("memory://doc/explain", np.zeros((400, 400)), chunks=(100, 100), layout="plain")
    >>> explanation = a.explain[10:20, 50:150]
    >>> explanation.method, explanation.plan.estimate.needed_bytes, explanation.analyze().measured.requests
    ('optimiser', 8000, 2)
    """

    url: str
    selection: Selection | Points
    plan: Plan
    alternatives: tuple[Alternative, ...]
    run: Callable[[], Measured]

    @property
    def method(self) -> str:
        """The method that was chosen or forced: "optimiser", "map" (of local files), "get", "merge" …"""
        return method_name(self.plan)

    def __str__(self) -> str:
        return shown_text(explanation_report(self))

    def __repr__(self) -> str:
        return plain_text(explanation_report(self))

    def __rich__(self) -> Any:
        return rich_parts(explanation_report(self))

    def _repr_html_(self) -> str:
        return html_text(explanation_report(self))

    def analyze(self) -> "Analysis":
        """Read once, drop the result, and put what was measured beside what was predicted."""
        return Analysis(self, self.run())

    def plot(self, ax: Any = None) -> Any:
        """Draw the grid of chunks, each in the colour of the way it comes; needs `hyperslab[plot]`.

        Draws on `ax`, axes of Matplotlib, or on new ones, and returns them. Of an array with more than two axes
        the two are shown along which most chunks are touched.
        """
        from hyperslab.plan.picture import draw

        return draw(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, ready for JSON.

        url           where the array is
        array         shape, dtype, chunks, shards (None without), nbytes
        selection     key (as typed), shape (of the result), cells (different ones), nbytes
        chunks        touched, of (all of the array), objects (that hold the touched ones)
        method        "optimiser", "map", "get", "merge", "fetch", "paper" or "call"
        forced        whether the caller named the method
        ways          one for each way that bytes come ("LOOKUP", "RANGE", "GET", "CALL", "MAP", "CACHE", "ABSENT"):
                      way, chunks, requests, needed_bytes, fetched_bytes, exact
        predicted     requests, needed_bytes, fetched_bytes, lookups, lookup_bytes, seconds, usd, exact, calls,
                      reply_bytes, function_bytes, function_gets, function_s
        fees          dollars for requests, transfer, calls, compute, inside (the function's own requests)
        alternatives  one for each: method, the same figures as `predicted`, cost_ratio (to the chosen one);
                      or method and not_tried
        model         profile (name, typical, measured_at, latency_s, concurrency, stream_bytes_per_s,
                      best_bytes_per_s), prices (name, dated, provider, region, tier, location, source, request_usd,
                      byte_usd, put_usd), function (None, or start_s, byte_s, chunk_s, cut_s, decoded_byte_s,
                      work_at_once (None: at_once), read_at_once (None: at_once), cold_s, at_once, call_usd,
                      second_usd, reply_bytes), phi (a number, or "infinity")
        """
        layout = self.plan.reads[0].layout
        return {
            "url": self.url,
            "array": {
                "shape": list(layout.shape),
                "dtype": str(layout.dtype),
                "chunks": list(layout.chunks),
                "shards": list(layout.object_shape) if layout.index else None,
                "nbytes": layout.nbytes,
            },
            "selection": {
                "key": say_key(self.selection),
                "shape": list(self.selection.result_shape),
                "cells": self.selection.size,
                "nbytes": result_nbytes(self.plan, self.selection),
            },
            "chunks": {
                "touched": self.plan.chunk_count,
                "of": prod(layout.grid),
                "objects": sum(count_objects(read) for read in self.plan.reads),
            },
            "method": self.method,
            "forced": self.plan.method is not None,
            "ways": [_fields_of(line) | {"way": line.way.name} for line in breakdown(self.plan)],
            "predicted": _fields_of(self.plan.estimate),
            "fees": _fields_of(self.plan.model.fees(self.plan.estimate)),
            "alternatives": [_alternative_dict(each) for each in self.alternatives],
            "model": _model_dict(self.plan),
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Analysis:
    """An explanation with what the read really took. Print it.

    `explanation` is what was predicted, `measured` what happened: `requests`, `lookups`, `bytes`, `retries`,
    `cache_hits`, `seconds`, `usd`, `calls` and what else `Session.metrics` counts.
    """

    explanation: Explanation
    measured: Measured

    def errors_percent(self) -> dict[str, float | None]:
        """How far each prediction was off, in percent of what was measured; None where nothing was measured."""
        predicted, measured = self.explanation.plan.estimate, self.measured
        pairs = {
            "requests": (predicted.requests, measured.requests),
            "lookups": (predicted.lookups, measured.lookups),
            "calls": (predicted.calls, measured.calls),
            "bytes": (predicted.all_bytes, measured.bytes),
            "seconds": (predicted.seconds, measured.seconds),
            "usd": (predicted.usd, measured.usd),
        }
        return {name: _off_percent(*pair) for name, pair in pairs.items()}

    def __str__(self) -> str:
        return shown_text(analysis_report(self))

    def __repr__(self) -> str:
        return plain_text(analysis_report(self))

    def __rich__(self) -> Any:
        return rich_parts(analysis_report(self))

    def _repr_html_(self) -> str:
        return html_text(analysis_report(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation's values and two more: `measured` and `error_percent`.

        measured       requests, lookups, calls, bytes, retries, cache_hits, seconds, usd
        error_percent  requests, lookups, calls, bytes, seconds, usd: (predicted - measured) / measured × 100;
                       None where nothing was measured but something was predicted
        """
        names = ("requests", "lookups", "bytes", "retries", "cache_hits", "seconds", "usd")
        measured = {name: getattr(self.measured, name) for name in names}
        return self.explanation.to_dict() | {"measured": measured, "error_percent": self.errors_percent()}


def explain(
    url: str,
    selection: Selection | Points,
    plan: Callable[[Method | None], Plan],
    method: Method | None,
    run: Callable[[], Measured],
) -> Explanation:
    """Plan a selection as it will be read, and in every other way that does not take too long.

    `plan` makes the plan for a method, `run` carries the read out. Of the alternatives only their estimates are
    kept: plans of many ranges are large.
    """
    chosen = plan(method)
    names: list[Method | None] = [None, *get_args(Method)]
    if chosen.model.function is None:
        names.remove("call")
    others = tuple(_try(name, chosen, plan) for name in names if name != method)
    return Explanation(url, selection, chosen, others, run)


def describe(plan: Plan) -> str:
    """Write what a plan sends and is predicted to cost, as plain text."""
    return plain_text(plan_report(plan))


def _try(method: Method | None, chosen: Plan, plan: Callable[[Method | None], Plan]) -> Alternative:
    reason = _too_much(method, chosen)
    if reason:
        return Alternative(method or "optimiser", None, not_tried=reason)
    other = plan(method)
    return Alternative(method_name(other), other.estimate, _ratio(other.estimate, chosen))


def _too_much(method: Method | None, chosen: Plan) -> str:
    """Say why planning with `method` would take too long, or return ''."""
    most_chunks, most_ranges = _MOST_CHUNKS, _MOST_RANGES
    if method == "paper":
        most_chunks, most_ranges = _MOST_PAPER_CHUNKS, _MOST_PAPER_RANGES
    if chosen.chunk_count > most_chunks:
        return f"too many chunks ({chosen.chunk_count:,})"
    if method == "call" and chosen.lookups:
        return "calls are planned once the shards' indexes are known"
    if method == "call":
        return next((reason for read in chosen.reads if (reason := travels(read.layout)) is not None), "")
    ranges = sum(read.run_count for read in chosen.reads)
    return f"too many ranges ({ranges:,})" if ranges > most_ranges else ""


def _ratio(estimate: Estimate, chosen: Plan) -> float | None:
    """Return the cost of an estimate in costs of the chosen plan; None where the chosen one costs nothing."""
    model, best = chosen.model, chosen.estimate
    mine, its = model.weigh(estimate), model.weigh(best)
    if isinf(model.phi) and not its:
        # Nothing is billed: then it is the time that differs.
        mine, its = estimate.seconds, best.seconds
    if not its:
        return None if mine else 1.0
    return mine / its


def _off_percent(predicted: float, measured: float) -> float | None:
    if not measured:
        return None if predicted else 0.0
    return (predicted - measured) / measured * 100


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _alternative_dict(alternative: Alternative) -> dict[str, Any]:
    if alternative.estimate is None:
        return {"method": alternative.method, "not_tried": alternative.not_tried}
    figures = _fields_of(alternative.estimate)
    return {"method": alternative.method, **figures, "cost_ratio": alternative.cost_ratio}


def _model_dict(plan: Plan) -> dict[str, Any]:
    profile, prices, phi = plan.model.profile, plan.model.prices, plan.model.phi
    return {
        "profile": {
            "name": profile.name,
            "typical": is_typical(profile),
            "measured_at": profile.measured_at,
            "latency_s": profile.latency_s,
            "concurrency": profile.concurrency,
            "stream_bytes_per_s": profile.stream_bandwidth,
            "best_bytes_per_s": max(profile.bandwidth),
        },
        "prices": {name: getattr(prices, name) for name in _PRICES},
        "function": _function_dict(plan),
        "phi": "infinity" if isinf(phi) else phi,
    }


_PRICES = (
    "name", "dated", "provider", "region", "tier", "location", "source", "request_usd", "byte_usd", "put_usd",
)  # fmt: skip


def _function_dict(plan: Plan) -> dict[str, Any] | None:
    function = plan.model.function
    if function is None:
        return None
    figures = {"call_usd": function.prices.call_usd, "second_usd": function.second_usd}
    return _fields_of(function.profile) | figures | {"reply_bytes": function.reply_bytes}
