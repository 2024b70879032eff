"""What a measurement gives: the profile, what it was fitted to, and both as words and as a picture."""

from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from hyperslab.execute.profiles import Known, Point
from hyperslab.measure.calls_fit import CallTiming
from hyperslab.measure.fit import by_size, off_by
from hyperslab.measure.probes import Timing
from hyperslab.plan import FunctionProfile, Profile
from hyperslab.plan.phrases import say_bytes, say_count, say_seconds, say_usd
from hyperslab.plan.render import Facts, Report, Table, html_text, printable, shown_text

__all__ = ["Measurement", "known_report"]


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A measured store. `print` shows it, `plot()` draws it, `profile` is what sessions use.

    `seconds`, `moved_bytes` (up and down) and `usd` are what measuring took; `notes` say what was cut short. `measure`
    gives one.
    """

    url: str
    address: str
    profile: Profile
    timings: tuple[Timing, ...]
    calls: tuple[CallTiming, ...]
    seconds: float
    moved_bytes: int
    usd: float
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> tuple[Point, ...]:
        """What was measured, as rows (kind, requests, bytes of each, seconds); calls by the bytes they read."""
        probes = [(each.kind, each.requests, each.size_bytes, each.seconds) for each in self.timings if each.steady]
        called = [(f"call, {each.kind}", each.calls, each.read_bytes, each.seconds) for each in self.calls]
        return (*probes, *called)

    @property
    def error(self) -> float:
        """By which share of the measured time the profile is off, at the median of all probes."""
        return float(median(off_by(self.profile, self.timings)))

    def __str__(self) -> str:
        return shown_text(self.report())

    def _repr_html_(self) -> str:
        return html_text(self.report())

    def report(self) -> Report:
        """Return the measurement as a title, facts and tables."""
        took = f"{self.seconds:.1f} s, {say_bytes(self.moved_bytes)} moved" + (
            f", {say_usd(self.usd)}" if self.usd else ""
        )
        facts = (("measured in", took), *profile_facts(self.profile), ("fit", f"off by {self.error:.0%} at the median"))
        notes = tuple(("note", note) for note in self.notes)
        return Report(printable(self.url), (Facts((*facts, *notes)), self._level_table(), self._size_table()))

    def _level_table(self) -> Table:
        profile = self.profile
        rates: dict[int, list[float]] = {}
        for each in self.timings:
            if each.steady and each.kind == "level":
                rates.setdefault(each.requests, []).append(each.nbytes / each.seconds)
        rows = [
            (str(n), f"{say_bytes(int(rate))}/s", _range([f"{say_bytes(int(r))}/s" for r in _ends(rates.get(n, []))]))
            for n, rate in zip(profile.in_flight, profile.bandwidth, strict=True)
        ]
        strong = int(np.argmax(profile.bandwidth))
        return Table(("requests in flight", "bandwidth", "seen, with latency"), tuple(rows), strong)

    def _size_table(self) -> Table:
        rows = [
            (say_bytes(size), say_seconds(median(seconds)), _range([say_seconds(s) for s in _ends(seconds)]))
            for (_, size), seconds in by_size(self.timings, "alone").items()
        ]
        return Table(("one request of", "takes", "from … to"), tuple(rows))

    def plot(self, ax: Any = None) -> Any:
        """Draw the curves with Matplotlib and return the axes; into `ax` goes only the bandwidth."""
        from hyperslab.measure.picture import draw

        return draw(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "url": self.url, "address": self.address, "profile": self.profile.to_dict(),
            "points": [list(point) for point in self.points], "seconds": self.seconds,
            "moved_bytes": self.moved_bytes, "usd": self.usd, "error": self.error, "notes": list(self.notes),
        }  # fmt: skip


def profile_facts(profile: Profile) -> tuple[tuple[str, str], ...]:
    """Return a profile in words."""
    best = max(profile.bandwidth)
    # What a small request takes, as the spread is of those; the work is kept apart, as nothing overlaps with it.
    answer_s, spread = profile.latency_s + profile.request_s, ""
    if profile.spread_s is not None:
        spread = f" ({say_seconds(profile.spread_s[0])} to {say_seconds(profile.spread_s[1])} for 8 of 10)"
    facts = [
        ("latency", f"{say_seconds(answer_s)}{spread}, of which {say_seconds(profile.request_s)} are work per request"),
        (
            "bandwidth",
            f"{say_bytes(int(best))}/s at best, {say_bytes(int(profile.stream_bandwidth))}/s for one request",
        ),
        ("requests", f"{profile.n_min} to {profile.n_max} in flight reach 90% of it; reads keep {profile.concurrency}"),
    ]
    if profile.function is not None:
        facts.append(("function", _function_words(profile.function)))
    return tuple(facts)


def _function_words(function: FunctionProfile) -> str:
    speed = f"{say_bytes(int(1 / function.byte_s))}/s read" if function.byte_s else "reading takes no time"
    shared = {"bytes": function.read_at_once, "work": function.work_at_once}
    held = [f"the {what} of {most:.1f}" for what, most in shared.items() if most is not None]
    most = "" if not held else f", {' and '.join(held)}"
    return (
        f"{say_seconds(function.start_s)} a call, {say_seconds(function.chunk_s)} a GET, {speed} "
        f"(± {say_seconds(function.error_s)}), {say_seconds(function.cut_s)} a chunk and "
        f"{say_seconds(function.decoded_byte_s * 1e6)} a MB to decode; {say_seconds(function.cold_s)} more when cold; "
        f"{say_count(function.at_once, 'call')} at once{most}"
    )


def known_report(known: Known, now: datetime) -> Report:
    """Return what is known of a store: its age, the figures, what was learned since."""
    profile = known.profile
    drift = known.learner.drift(known.address.partition("?")[0])
    learned = drift or ("reads agree with it" if known.learner.to_dict()["answers"]["seen"] else "nothing read since")
    facts = (("measured", _age(profile.measured_at, now)), *profile_facts(profile), ("learned", learned))
    return Report(printable(known.address), (Facts(facts),))


def _age(measured_at: str | None, now: datetime) -> str:
    """Say when something was measured.

    >>> _age("2026-11-14T10:00:00+00:00", datetime(2026, 11, 16, 12, tzinfo=UTC))
    '2026-11-14 10:00 UTC, 2 days ago'
    """
    try:
        then = datetime.fromisoformat(measured_at or "").astimezone(UTC)
    except ValueError:
        return "at an unknown time"
    minutes = max(0, int((now - then).total_seconds() // 60))
    hours = minutes // 60
    count, unit = (hours // 24, "day") if hours >= 24 else (hours, "hour") if hours else (minutes, "minute")
    ago = say_count(count, unit)
    return f"{then:%Y-%m-%d %H:%M} UTC, {ago} ago"


def _ends(values: list[float]) -> list[float]:
    return [min(values), max(values)] if values else []


def _range(ends: list[str]) -> str:
    return " … ".join(ends) or "–"
