"""From probes to a profile: figures by which the cost model predicts what reads take. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, log
from statistics import median

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.measure.probes import Timing
from hyperslab.plan import CostModel, Prices, Profile

__all__ = ["by_size", "fit_profile", "off_by"]

# Requests and the bytes of each, by which the number in flight is chosen.
_TYPICAL_READS = ((256, 1 << 12), (256, 1 << 16), (64, 1 << 20))
# Requests that take no longer than this, against each by itself, were not held up by the others.
_UNHURRIED = 1.15
# At least so much of a probe, beyond its latency, is transfer: the client's work overlaps with some of it.
_LEAST_TRANSFER = 0.3
_LEAST_S = 1e-6
# Probes of so many sizes, this near to the quickest, have filled the line.
_PLATEAU, _NEAR = 3, 0.95
# How much better a refinement must fit for a figure to be moved at all; and the smallest move.
_STIFFNESS, _LEAST_STEP = 0.05, 0.01

Floats = npt.NDArray[np.float64]
Points = tuple[tuple[int, float], ...]


def fit_profile(timings: Sequence[Timing], *, name: str, measured_at: str) -> Profile:
    """Return the profile that probes show: latency, the client's work, one request alone, bandwidth by level."""
    steady = _counted(timings)
    answers = [each.seconds for each in steady if each.kind == "answer"]
    if not answers:
        raise InvalidInputError("nothing was answered within the time and bytes allowed; allow more of them")
    answer_s = median(answers)
    request_s = _request_s(steady, answer_s)
    latency_s = max(_LEAST_S, answer_s - request_s)
    alone = _alone(steady, answer_s)
    if not alone:
        raise InvalidInputError("nothing larger than an empty answer fitted in the time and bytes allowed; allow more")
    levels = _levels(steady, latency_s, request_s, alone)
    low, high = np.percentile(answers, (10, 90)).tolist()
    first = Profile(
        name, latency_s, tuple(levels), tuple(levels.values()), max(levels), request_s,
        alone=alone, spread_s=(low, high), measured_at=measured_at,
    )  # fmt: skip
    refined = _refined(first, steady)
    # What single probes have bent is straightened once more: a dent or a spike at one level is chance.
    smooth = tuple(_smooth(dict(zip(refined.in_flight, refined.bandwidth, strict=True))).values())
    refined = replace(refined, bandwidth=smooth)
    return refined.with_concurrency(_concurrency(refined))


def _counted(timings: Sequence[Timing]) -> list[Timing]:
    """Return the steady probes; of a kind and number that has none, what there is."""
    known = {(each.kind, each.requests) for each in timings if each.steady}
    rest = [each for each in timings if (each.kind, each.requests) not in known and each.kind != "connect"]
    return [*[each for each in timings if each.steady], *[replace(each, steady=True) for each in rest]]


def by_size(timings: Iterable[Timing], kind: str) -> dict[tuple[int, int], list[float]]:
    """Group the seconds of steady probes of a kind by (requests, bytes of each)."""
    groups: dict[tuple[int, int], list[float]] = defaultdict(list)
    for each in timings:
        if each.kind == kind and each.steady:
            groups[each.requests, each.size_bytes].append(each.seconds)
    return dict(sorted(groups.items()))


def _request_s(steady: list[Timing], answer_s: float) -> float:
    """The work for each of many small requests: what they take longer than one, each."""
    work = [
        max(0.0, median(seconds) - answer_s) / requests for (requests, _), seconds in by_size(steady, "small").items()
    ]
    return median(work) if work else 0.0


def _alone(steady: list[Timing], answer_s: float) -> Points:
    """One request by its size: seconds beyond those of the smallest, never falling."""
    sizes = {size: median(seconds) - answer_s for (_, size), seconds in by_size(steady, "alone").items()}
    if not sizes:
        return ()
    times = np.maximum.accumulate([0.0, *sizes.values()]).tolist()
    least = min(each.size_bytes for each in steady if each.kind == "answer")
    return tuple(zip((min(least, *sizes) - 1, *sizes), times, strict=True))


def _stream(alone: Points) -> float:
    """Bytes per second of one connection at full speed: what the last of the bytes took of the largest request."""
    size, seconds = alone[-1]
    whole = size / max(seconds, _LEAST_S)
    # Against several smaller ones, as any of them may have been unlucky.
    slopes = [
        (size - some) / (seconds - took)
        for some, took in alone
        if size / 64 <= some <= size / 2 and took < 0.9 * seconds
    ]
    return max(whole, median(slopes)) if slopes else whole


def _levels(steady: list[Timing], latency_s: float, request_s: float, alone: Points) -> dict[int, float]:
    """Bytes per second by the number of requests in flight: what the cost model must divide by to get the time seen."""
    stream = _stream(alone)
    seen: dict[int, float] = {}
    unhurried = set()
    beyond = {each: median(seconds) - latency_s for each, seconds in by_size(steady, "level").items()}
    line = _line({each: each[0] * each[1] / max(seconds, _LEAST_S) for each, seconds in beyond.items()})
    # By size: of a level's probes the largest, which comes last, tells most.
    for (requests, size), beyond_s in beyond.items():
        work_s = min(requests * request_s, beyond_s - requests * size / line)
        transfer_s = max(beyond_s - work_s, _LEAST_TRANSFER * beyond_s, _LEAST_S)
        seen[requests] = requests * size / transfer_s
        if transfer_s <= _UNHURRIED * _interpolated(alone, size, stream):
            unhurried.add(requests)
    best = max(seen.values(), default=stream)
    # Where requests did not hold each other up, more of their bytes would have gone faster still.
    rates = {n: max(rate, min(n * stream, best)) if n in unhurried else rate for n, rate in seen.items()}
    return _smooth({1: min(stream, best), **rates})


def _line(rates: dict[tuple[int, int], float]) -> float:
    """Bytes per second of the whole line, where several probes came as near to it as they could; else infinite.

    The client's work overlaps with the transfer where the line is slow: no bytes come faster than the line lets them.

    >>> _line({(4, 1): 9.0, (8, 1): 30.0, (16, 1): 31.0, (32, 1): 30.5, (64, 1): 28.0}), _line({(4, 1): 9.0})
    (31.0, inf)
    """
    best = max(rates.values(), default=0.0)
    near = [rate for rate in rates.values() if rate > _NEAR * best]
    return best if len(near) >= _PLATEAU else inf


def _smooth(rates: dict[int, float]) -> dict[int, float]:
    """Replace each level's rate by the middle one of its own and its neighbours'; the last is at most the best of them.

    >>> _smooth({1: 5.0, 2: 9.0, 4: 30.0, 8: 10.0, 16: 11.0, 32: 20.0})
    {1: 5.0, 2: 9.0, 4: 10.0, 8: 11.0, 16: 11.0, 32: 11.0}
    """
    values = list(rates.values())
    inner = [median(values[i - 1 : i + 2]) for i in range(1, len(values) - 1)]
    last = [min(values[-1], max(inner, default=values[-1]))] if len(values) > 1 else []
    return dict(zip(rates, [values[0], *inner, *last], strict=True))


def _interpolated(alone: Points, nbytes: int, stream: float) -> float:
    sizes, times = np.array(alone).T
    return float(np.interp(nbytes, sizes, times) + max(0.0, nbytes - float(sizes[-1])) / stream)


def _concurrency(profile: Profile) -> int:
    """How many requests to keep in flight: as many as make reads of many requests, small and large, the quickest."""

    def cost(level: int) -> float:
        model = CostModel(profile.with_concurrency(level), Prices.named("free"))
        return sum(log(float(model.seconds(n, n * size, size))) for n, size in _TYPICAL_READS)

    return min([n for n in profile.in_flight if n >= profile.n_min], key=cost)


def _refined(first: Profile, steady: list[Timing]) -> Profile:
    """Move all figures a little, one after the other, until the cost model agrees best with all probes together."""
    sizes = np.array([(each.requests, each.nbytes, each.size_bytes) for each in steady]).T
    seen = np.log([each.seconds for each in steady])
    # Each group of like probes counts as much as another, however often it was repeated.
    counts = Counter((each.kind, each.requests, each.size_bytes) for each in steady)
    weights = np.array([counts[each.kind, each.requests, each.size_bytes] ** -0.5 for each in steady])

    def loss(moves: Floats) -> float:
        model = CostModel(_moved(first, moves), Prices.named("free"))
        off = np.log(model.seconds(*sizes)) - seen
        # Beyond a tenth, errors count as they are, not squared: a few slow answers must not bend everything.
        robust = np.sqrt(1 + (off / 0.1) ** 2) - 1
        return float(weights @ robust) + _STIFFNESS * float(np.abs(moves).sum())

    return _moved(first, _descended(loss, 2 + len(first.in_flight) + len(first.alone)))


def _moved(profile: Profile, moves: Floats) -> Profile:
    """Return the profile with its figures multiplied by the exponentials of the moves."""
    scale, levels = np.exp(moves), len(profile.in_flight)
    # The latency was seen by itself, many times; one connection's rate is seen only in the largest requests by
    # themselves, and nothing else holds it in place.
    scale[0] = scale[2] = 1.0
    best = max(profile.bandwidth)
    curve = np.array([time for _, time in profile.alone]) * scale[2 + levels :]
    times = np.maximum.accumulate(curve).tolist()
    return replace(
        profile,
        latency_s=profile.latency_s * float(scale[0]),
        request_s=profile.request_s * float(scale[1]),
        bandwidth=tuple(np.minimum(np.array(profile.bandwidth) * scale[2 : 2 + levels], best).tolist()),
        alone=tuple([(size, time) for (size, _), time in zip(profile.alone, times, strict=True)]),
    )


def _descended(loss: Callable[[Floats], float], count: int) -> Floats:
    """Return the moves with the least loss that steps along one figure at a time lead to."""
    moves, step = np.zeros(count), 0.32
    best = loss(moves)
    while step > _LEAST_STEP:
        before = best
        for i in range(count):
            for way in (step, -step):
                moves[i] += way
                now = loss(moves)
                if now < best:
                    best = now
                    break
                moves[i] -= way
        if best > before - 1e-3:
            step /= 2
    return moves


def off_by(profile: Profile, timings: Iterable[Timing]) -> list[float]:
    """How far the cost model is off for each steady probe, as a share of the time seen."""
    # Probes are sent all at once, whatever the concurrency of reads is.
    model = CostModel(profile.with_concurrency(profile.in_flight[-1]), Prices.named("free"))
    return [
        abs(float(model.seconds(each.requests, each.nbytes, each.size_bytes)) - each.seconds) / each.seconds
        for each in timings
        if each.steady
    ]
