"""Presets: how far the store is, how wide the line, how quick the function. Each figure has its reason here.

Common to "same-region" and "internet": the store begins an answer 18 ms after a request has arrived. AWS says to expect
100–200 ms; most answers of a busy bucket begin after 10–30 ms, and a quick store is the harder case for a planner, as
each request costs less than it seems. One connection gets 85 MB/s at most: AWS advises to plan with 85–90 MB/s for each
request in flight. All lines of a client are at most 1 Gbit/s: with server, client and line on two cores, more would
measure the cores.
"""

from dataclasses import dataclass, field

__all__ = ["PRESETS", "Line", "Preset", "Provider", "location_of", "preset_named"]

_GIGABIT = 125e6
_LEAST_QUEUE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line between two hosts: the same rate each way, and a queue in front of it.

    >>> Line(rtt_s=0.1, bytes_per_s=125e6).queue_bytes / 1e6
    25.0
    """

    rtt_s: float
    bytes_per_s: float
    connection_bytes_per_s: float | None = None
    short_queue_bytes: int | None = None  # to try what losses do

    @property
    def queue_bytes(self) -> int:
        """Twice what is under way on a full line; at least what 256 connections send at their start, twice over."""
        return self.short_queue_bytes or max(int(2 * self.rtt_s * self.bytes_per_s), _LEAST_QUEUE_BYTES)

    def rate(self, connections: int) -> float:
        """Return the bytes per second of all packets together, with so many connections."""
        if self.connection_bytes_per_s is None:
            return self.bytes_per_s
        return min(self.bytes_per_s, connections * self.connection_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Provider:
    """What a provider of functions does that a process on this machine does not.

    A call takes a free instance, or waits `cold_s` for a new one; an instance has one call at a time and is let go
    after `idle_s`. Beyond `instances` calls are refused (429). `warm_s` is from a call's arrival to its start. An
    instance with `memory_mb` = 1769 has one core at AWS; here they share this machine's cores at their full speed. It
    reads `bytes_per_s`, however many connections it opens: about 600 Mbit/s.
    """

    cold_s: float = 0.4
    warm_s: float = 0.010
    idle_s: float = 300.0
    instances: int = 64
    memory_mb: int = 1769
    bytes_per_s: float = 75e6


@dataclass(frozen=True, slots=True)
class Preset:
    """A cloud as one client sees it. `outside` joins the client with all else, `region` the function with the store."""

    name: str
    why: str
    outside: Line
    first_byte_s: float = 0.018
    # An instance of this size has about 600 Mbit/s; a few of them share what this machine can carry.
    region: Line = field(default_factory=lambda: Line(0.001, 2 * _GIGABIT, 75e6))
    provider: Provider = field(default_factory=Provider)

    @property
    def latency_s(self) -> float:
        """From a small request on an open connection to its answer."""
        return self.outside.rtt_s + self.first_byte_s


_ALL = (
    Preset(
        "same-region",
        "A machine beside the store: 1 ms there and back, nearly all of the latency is the store's own.",
        Line(0.001, _GIGABIT, 85e6),
    ),
    Preset(
        "internet",
        "A good line at home or in an office (250 Mbit/s), 30 ms from the region: bytes are what is scarce.",
        Line(0.030, 250e6 / 8, 85e6),
    ),
    Preset(
        "paper-50",
        "The paper's nearest client: 50 ms to the answer of a small request, 1 Gbit/s, nothing else added.",
        Line(0.050, _GIGABIT),
        first_byte_s=0.0,
    ),
    Preset("paper-90", "The paper's client across the continent.", Line(0.090, _GIGABIT), first_byte_s=0.0),
    Preset("paper-150", "The paper's client across the ocean.", Line(0.150, _GIGABIT), first_byte_s=0.0),
)
PRESETS = {preset.name: preset for preset in _ALL}


def preset_named(name: "str | Preset") -> Preset:
    """Return a preset by its name.

    >>> preset_named("paper-90").latency_s
    0.09
    """
    if isinstance(name, Preset):
        return name
    if name not in PRESETS:
        raise SystemExit(f"no preset named {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def location_of(preset: str) -> str:
    """Return where a preset's client is, as price books name it.

    >>> location_of("same-region"), location_of("paper-50")
    ('same-region', 'internet')
    """
    return "same-region" if preset == "same-region" else "internet"
