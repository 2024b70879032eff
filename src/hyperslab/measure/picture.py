"""The picture of a measurement: bandwidth by requests in flight, one request by its size, the function. Matplotlib."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.plan import FunctionProfile
from hyperslab.plan.phrases import say_bytes, say_seconds
from hyperslab.plan.render import printable

if TYPE_CHECKING:
    from hyperslab.measure.result import Measurement

__all__ = ["blank_figure", "draw", "fill"]

_MISSING = "drawing needs Matplotlib; install it with: pip install 'hyperslab[plot]'"
# Colours that people who see few colours can tell apart (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"
_MB = 1e6
_WIDTH, _HEIGHT = 4.6, 3.8


def draw(measurement: "Measurement", ax: Any = None) -> Any:
    """Draw into a figure of its own and return its axes; or only the bandwidth, into the axes given."""
    if ax is not None:
        _bandwidth(measurement, ax)
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    count = _panels(measurement)
    figure = pyplot.figure(figsize=(_WIDTH * count, _HEIGHT), layout="constrained")
    return fill(measurement, figure)


def blank_figure(measurement: "Measurement") -> Any:
    """Return a figure of a good size that no window shows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    return Figure(figsize=(_WIDTH * _panels(measurement), _HEIGHT), layout="constrained")


def fill(measurement: "Measurement", figure: Any) -> Any:
    """Draw all curves into a figure; return its axes."""
    axes = figure.subplots(1, _panels(measurement))
    _bandwidth(measurement, axes[0])
    _alone(measurement, axes[1])
    if measurement.profile.function is not None:
        _function(measurement, measurement.profile.function, axes[2])
    on = (measurement.profile.measured_at or "")[:10]
    name = printable(measurement.address.partition("?")[0])
    figure.suptitle(f"{name}, measured {on}".replace("$", r"\$"), fontsize=11)
    return axes


def _panels(measurement: "Measurement") -> int:
    return 3 if measurement.profile.function is not None else 2


def _bandwidth(measurement: "Measurement", ax: Any) -> None:
    profile = measurement.profile
    rates = np.array(profile.bandwidth) / _MB
    seen = [each for each in measurement.timings if each.kind == "level" and each.steady]
    ax.axvspan(profile.n_min, profile.n_max, color=_GREEN, alpha=0.12, lw=0)
    ax.axhline(0.9 * rates.max(), color=_GREY, lw=0.8, ls=":")
    ax.plot(
        [each.requests for each in seen], [each.nbytes / each.seconds / _MB for each in seen],
        ".", color=_GREY, ms=5, alpha=0.7, label="a probe, latency included",
    )  # fmt: skip
    ax.plot(profile.in_flight, rates, "o-", color=_BLUE, ms=4, label="fitted, without latency")
    ax.plot(
        [profile.concurrency], [float(profile.bandwidth_at(profile.concurrency)) / _MB],
        "D", color=_ORANGE, ms=7, label=f"reads keep {profile.concurrency}",
    )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_xticks(profile.in_flight, [str(n) for n in profile.in_flight])
    # Above all points there is room for the legend.
    ax.set_ylim(0, 1.4 * max([rates.max(), *[each.nbytes / each.seconds / _MB for each in seen]]))
    ax.set_xlabel("requests in flight")
    ax.set_ylabel("MB/s")
    _title(ax, f"bandwidth: 90% of the best from {profile.n_min} to {profile.n_max}")
    ax.legend(fontsize=8, frameon=False, loc="upper left")


def _alone(measurement: "Measurement", ax: Any) -> None:
    profile = measurement.profile
    base_s = profile.latency_s + profile.request_s
    probes = [each for each in measurement.timings if each.kind in ("alone", "answer") and each.steady]
    largest = max([each.size_bytes for each in probes])
    sizes = np.geomspace(min(each.size_bytes for each in probes), largest, 200)
    if profile.spread_s is not None:
        ax.axhspan(*(1e3 * np.array(profile.spread_s)), color=_ORANGE, alpha=0.2, lw=0, label="latency, 8 of 10")
    ax.axhline(1e3 * base_s, color=_ORANGE, lw=1, label=f"latency {say_seconds(base_s)}")
    ax.plot(
        [each.size_bytes for each in probes], [1e3 * each.seconds for each in probes],
        ".", color=_GREY, ms=5, alpha=0.7, label="a probe",
    )  # fmt: skip
    ax.plot(sizes, 1e3 * (base_s + profile.alone_s(sizes)), color=_BLUE, label="fitted")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    marks = [1 << n for n in range(10, 30, 2) if 1 << n <= largest]
    ax.set_xticks(marks, [_binary(n) for n in marks])
    ax.set_xlabel("bytes of the request")
    _plain_numbers(ax)
    ax.set_ylabel("ms")
    _title(ax, "one request by itself")
    ax.legend(fontsize=8, frameon=False, loc="upper left")


def _function(measurement: "Measurement", function: FunctionProfile, ax: Any) -> None:
    base_s = measurement.profile.latency_s + measurement.profile.request_s
    for kind, colour, mark in (("warm", _GREY, "."), ("cold", _ORANGE, "D")):
        seen = [each for each in measurement.calls if each.kind == kind and each.gets == each.chunks == 1]
        ax.plot(
            [each.read_bytes / _MB for each in seen], [1e3 * each.seconds for each in seen],
            mark, color=colour, ms=5, alpha=0.8, label=f"a {kind} call",
        )  # fmt: skip
    most = max(each.read_bytes for each in measurement.calls)
    reads = np.array([0.0, most])
    line = 1e3 * (base_s + function.seconds(reads))
    ax.fill_between(
        reads / _MB, line - 1e3 * function.error_s, line + 1e3 * function.error_s, color=_BLUE, alpha=0.15, lw=0
    )
    ax.plot(reads / _MB, line, color=_BLUE, label=f"fitted, ± {say_seconds(function.error_s)}")
    ax.set_xlim(left=-0.03 * most / _MB)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("MB that the function reads")
    ax.set_ylabel("ms")
    speed = f"{say_bytes(int(1 / function.byte_s))}/s" if function.byte_s else "at once"
    _title(ax, f"function: {say_seconds(function.start_s + function.chunk_s)} and {speed}")
    ax.legend(fontsize=8, frameon=False, loc="upper left")


def _title(ax: Any, text: str) -> None:
    ax.set_title(text, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)


def _plain_numbers(ax: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    low, high = ax.get_ylim()
    ax.set_ylim(low * 0.8, high * 2)


def _binary(nbytes: int) -> str:
    """Write a power of two.

    >>> _binary(1 << 14), _binary(1 << 24)
    ('16 K', '16 M')
    """
    return f"{nbytes >> 20} M" if nbytes >= 1 << 20 else f"{nbytes >> 10} K"
