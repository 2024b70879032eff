"""The arithmetic of a result file: queries per minute and per dollar, and where we lose. Pure; no drawing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, median
from typing import Any

__all__ = [
    "MEASURES", "RULES", "Loss", "Standing", "Summary", "best_of", "losses", "median_error", "of_result", "our_name",
    "predictions", "standings", "summarise", "wrong_with",
]  # fmt: skip

Read = Mapping[str, Any]

# Names of the two measures, as attributes of Summary. More is better in both.
MEASURES = ("per_minute", "per_dollar")
# What is compared. "same": both on the layout that all share. "any": our best layout against any of the peer's.
RULES = ("same", "any")


@dataclass(frozen=True, slots=True)
class Summary:
    """All reads of one system, on one layout, by one method, of one workload in one preset.

    Seconds, dollars, requests and bytes are of one query, on average over the queries. Of several rounds the seconds
    are those of the quickest, query by query (`median_per_minute` has the middle one), all else is of the middle one.
    Where a query failed every figure is None, and `error` has the words.
    """

    preset: str
    workload: str
    system: str
    layout: str
    method: str | None
    phi: float | str | None
    queries: int
    rounds: int
    per_minute: float | None = None
    per_dollar: float | None = None  # None, too, where nothing was paid
    median_per_minute: float | None = None
    seconds: float | None = None
    usd: float | None = None
    requests: float | None = None
    gets: float | None = None  # whole objects, of `requests`; None for peers
    calls: float | None = None
    bytes: float | None = None
    sent_bytes: float | None = None
    inside_requests: float | None = None
    inside_bytes: float | None = None
    needed_bytes: float | None = None
    predicted_error: float | None = None  # of seconds: the median of |predicted / measured - 1| over all reads
    predicted_usd_error: float | None = None
    error: str | None = None

    @property
    def plain(self) -> bool:
        """Whether the system read as it does unasked: no method forced, no phi given."""
        return self.method is None and self.phi is None


@dataclass(frozen=True, slots=True)
class Loss:
    """A peer that is better than we are. `factor` is how many times; None where our own reads failed."""

    preset: str
    workload: str
    rule: str  # one of RULES
    measure: str  # one of MEASURES
    peer: str
    peer_layout: str
    peer_value: float
    our_layout: str | None
    our_value: float | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """We beside the best of all peers. `factor` is ours divided by theirs: above one we win."""

    preset: str
    workload: str
    rule: str
    measure: str
    our_layout: str
    our_value: float
    peer: str
    peer_layout: str
    peer_value: float
    factor: float


def summarise(reads: Iterable[Read], workloads: Mapping[str, Mapping[str, Any]] | None = None) -> list[Summary]:
    """Gather reads by preset, workload, system, layout, method and phi, in the order in which these come first.

    With `workloads`, as the result file has them, summaries know the bytes that were needed, and one that lacks queries
    has failed.

    >>> def read(query, round, seconds, usd, error=None):
    ...     return {"preset": "internet", "workload": "camera", "system": "zarrs", "layout": "same", "method": None,
    ...             "phi": None, "query": query, "round": round, "seconds": seconds, "usd": usd, "requests": 4,
    ...             "calls": 0, "bytes": 100, "error": error}
    >>> reads = [read(0, 0, 1.0, 0.01), read(0, 1, 2.0, 0.03), read(1, 0, 4.0, 0.01), read(1, 1, 3.0, 0.01)]
    >>> (one,) = summarise(reads, {"camera": {"needed_bytes": [30, 50]}})
    >>> one.queries, one.per_minute, one.per_dollar, one.needed_bytes  # 120 / (1 + 3), 2 / (0.02 + 0.01)
    (2, 30.0, 66.66666666666667, 40.0)
    >>> (failed,) = summarise([*reads, read(1, 2, 0.0, 0.0, "ValueError: no")])
    >>> failed.per_minute, failed.error
    (None, 'ValueError: no')
    """
    groups: dict[tuple[Any, ...], list[Read]] = {}
    for read in reads:
        key = tuple(read.get(name) for name in ("preset", "workload", "system", "layout", "method", "phi"))
        groups.setdefault(key, []).append(read)
    needed = {name: list(each.get("needed_bytes") or ()) for name, each in (workloads or {}).items()}
    return [_summary(key, group, needed.get(key[1], [])) for key, group in groups.items()]


def of_result(result: Mapping[str, Any]) -> list[Summary]:
    """Return the summaries of a result file."""
    return summarise(result.get("reads") or (), result.get("workloads"))


def our_name(result: Mapping[str, Any]) -> str:
    """Return the name of the system that is ours.

    >>> our_name({"systems": {"zarrs": {"ours": False}, "hyperslab": {"ours": True}}})
    'hyperslab'
    """
    return next((name for name, each in (result.get("systems") or {}).items() if each.get("ours")), "hyperslab")


def losses(summaries: Iterable[Summary], ours: str = "hyperslab") -> list[Loss]:
    """Return every peer that beats us in a preset and workload, the worst for us first, by two rules.

    "same": both on the layout that all share. "any": whichever of its layouts is the peer's best, against whichever of
    our layouts is ours. Our reads count only as the planner chooses by itself, without a method or a phi.

    >>> def of(system, layout, per_minute, per_dollar):
    ...     return Summary("lan", "camera", system, layout, None, None, 3, 1, per_minute, per_dollar)
    >>> found = losses([of("hyperslab", "same", 10.0, 5.0), of("hyperslab", "best", 40.0, 5.0),
    ...                 of("zarrs", "same", 20.0, 4.0), of("zarrs", "best", 30.0, 6.0)])
    >>> [(loss.rule, loss.measure, loss.peer_layout, loss.factor) for loss in found]
    [('same', 'per_minute', 'same', 2.0), ('any', 'per_dollar', 'best', 1.2)]
    """
    found = [loss for cell in _cells(summaries).values() for loss in _losses_in(cell, ours)]
    return sorted(found, key=lambda loss: -(loss.factor or float("inf")))


def standings(summaries: Iterable[Summary], ours: str = "hyperslab") -> list[Standing]:
    """Compare us with the best peer, in every preset and workload where both were asked; by the rules of `losses`.

    >>> def of(system, per_minute):
    ...     return Summary("lan", "camera", system, "same", None, None, 3, 1, per_minute, None)
    >>> [(each.rule, each.peer, each.factor) for each in standings([of("hyperslab", 9.0), of("zarrs", 3.0)])]
    [('same', 'zarrs', 3.0), ('any', 'zarrs', 3.0)]
    """
    found = []
    for (preset, workload), cell in _cells(summaries).items():
        for rule, measure, held in _rules(cell):
            mine = best_of((each for each in held if each.system == ours and each.plain), measure)
            peer = best_of((each for each in held if each.system != ours), measure)
            if mine is not None and peer is not None:
                own, other = getattr(mine, measure), getattr(peer, measure)
                found.append(
                    Standing(
                        preset, workload, rule, measure, mine.layout, own, peer.system, peer.layout, other, own / other
                    )
                )
    return found


def predictions(reads: Iterable[Read], ours: str = "hyperslab") -> list[tuple[Read, float, float]]:
    """Return (read, predicted seconds, measured seconds) of our reads that went well and were predicted.

    >>> [pair for _, *pair in predictions([{"system": "hyperslab", "seconds": 2.0, "predicted_s": 1.5},
    ...                                    {"system": "hyperslab", "seconds": 2.0, "predicted_s": None},
    ...                                    {"system": "zarrs", "seconds": 2.0}])]
    [[1.5, 2.0]]
    """
    return [
        (read, float(read["predicted_s"]), float(read["seconds"]))
        for read in reads
        if read.get("system") == ours and _positive(read.get("predicted_s")) and wrong_with(read) is None
    ]


def median_error(pairs: Sequence[tuple[Read, float, float]]) -> float | None:
    """Return the middle of |predicted / measured - 1|.

    >>> median_error([({}, 1.5, 2.0), ({}, 2.2, 2.0), ({}, 2.0, 2.0)])  # 25%, 10%, 0%
    0.10000000000000009
    """
    return median(abs(predicted / measured - 1) for _, predicted, measured in pairs) if pairs else None


def wrong_with(read: Read) -> str | None:
    """Say why a read must not count; None when it went well.

    >>> wrong_with({"seconds": 1.0}), wrong_with({"seconds": float("nan")}), wrong_with({"seconds": 0, "error": "no"})
    (None, 'took nan seconds', 'no')
    """
    if read.get("error"):
        return str(read["error"])
    return None if _positive(read.get("seconds")) else f"took {read.get('seconds')} seconds"


def best_of(summaries: Iterable[Summary], measure: str) -> Summary | None:
    """Return the one with the most queries per minute, or per dollar; None where none has any."""
    return max(
        (each for each in summaries if getattr(each, measure) is not None),
        key=lambda each: getattr(each, measure),
        default=None,
    )


def _summary(key: tuple[Any, ...], reads: list[Read], needed: list[int]) -> Summary:
    by_query: dict[int, list[Read]] = {}
    for read in reads:
        by_query.setdefault(read["query"], []).append(read)
    rounds = max(len(each) for each in by_query.values())
    faults = list(dict.fromkeys(fault for read in reads if (fault := wrong_with(read)) is not None))
    if not faults and len(by_query) < len(needed):
        faults = [f"only {len(by_query)} of {len(needed)} queries were read"]
    if faults:
        return Summary(*key, len(by_query), rounds, error="; ".join(faults))
    groups = list(by_query.values())
    least = [min(read["seconds"] for read in group) for group in groups]
    middle = [median(read["seconds"] for read in group) for group in groups]
    usd = _per_query(groups, "usd")
    return Summary(
        *key,
        len(groups),
        rounds,
        per_minute=60 * len(groups) / sum(least),
        per_dollar=1 / usd if usd else None,
        median_per_minute=60 * len(groups) / sum(middle),
        seconds=fmean(least),
        usd=usd,
        needed_bytes=fmean(needed) if needed else None,
        predicted_error=_error_of(reads, "predicted_s", "seconds"),
        predicted_usd_error=_error_of(reads, "predicted_usd", "usd"),
        **{name: _per_query(groups, name) for name in _COUNTED},
    )


_COUNTED = ("requests", "gets", "calls", "bytes", "sent_bytes", "inside_requests", "inside_bytes")


def _per_query(groups: list[list[Read]], name: str) -> float | None:
    if not all(_known(read.get(name)) for group in groups for read in group):
        return None
    return fmean(median(read[name] for read in group) for group in groups)


def _error_of(reads: list[Read], predicted: str, measured: str) -> float | None:
    pairs = [(read.get(predicted), read.get(measured)) for read in reads]
    errors = [abs(said / seen - 1) for said, seen in pairs if _known(said) and _positive(seen)]
    return median(errors) if errors else None


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _positive(value: Any) -> bool:
    return _known(value) and value > 0


def _cells(summaries: Iterable[Summary]) -> dict[tuple[str, str], list[Summary]]:
    cells: dict[tuple[str, str], list[Summary]] = {}
    for each in summaries:
        cells.setdefault((each.preset, each.workload), []).append(each)
    return cells


def _rules(cell: Sequence[Summary]) -> Iterator[tuple[str, str, list[Summary]]]:
    """Yield the name of each rule, each measure, and the summaries that may be compared."""
    for rule in RULES:
        held = [each for each in cell if rule == "any" or each.layout == "same"]
        yield from ((rule, measure, held) for measure in MEASURES)


def _losses_in(cell: Sequence[Summary], ours: str) -> Iterator[Loss]:
    for rule, measure, held in _rules(cell):
        mine = [each for each in held if each.system == ours and each.plain]
        if not mine:
            continue  # we were not asked
        best = best_of(mine, measure)
        for peer in dict.fromkeys(each.system for each in held if each.system != ours):
            other = best_of((each for each in held if each.system == peer), measure)
            if other is not None and (best is None or getattr(other, measure) > getattr(best, measure)):
                yield _loss(rule, measure, other, best)


def _loss(rule: str, measure: str, peer: Summary, mine: Summary | None) -> Loss:
    value = getattr(peer, measure)
    own = None if mine is None else getattr(mine, measure)
    return Loss(
        peer.preset, peer.workload, rule, measure, peer.system, peer.layout, value,
        None if mine is None else mine.layout, own, None if own is None else value / own,
    )  # fmt: skip
