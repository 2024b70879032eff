"""Tries the lab's line with a plain client: latency and bandwidth against what the preset says.

Latency is a request on an open connection and its answer of 1 byte, among 1, 16 or 256 connections that are open: the
round trip and the store's first byte. Bandwidth is what arrives when 1, 16 or 256 connections read without end, after
they have left slow start behind: the line's rate, or the limit of one connection where that is less. Windows are wide
enough for one connection to fill the line; the headers of packets (3.5%) are part of its rate.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, print_table
from bench.lab import network
from bench.lab.lab import PLAIN_PORT, Lab
from bench.lab.presets import PRESETS, Preset

__all__ = ["main"]

CONNECTIONS = (1, 16, 256)
TOLERANCE = 0.10
_PLAIN = str(Path(__file__).with_name("plain.py"))
_WINDOW_S = 3.0


def main(names: list[str]) -> int:
    """Print the table; return 1 if a figure is off by more than 10%."""
    lacks = network.why_not()
    if lacks:
        print(f"the lines cannot be tried here: {lacks}")
        return 1
    figures: list[Figure] = []
    for name in names or list(PRESETS):
        figures += _try(PRESETS[name])
    print_table(figures)
    return 0 if all(figure.passed for figure in figures) else 1


def _try(preset: Preset) -> Iterator[Figure]:
    # Slow start doubles each round trip; an overshoot takes as long again to mend.
    warm_s = 2.0 + 20 * preset.outside.rtt_s
    with Lab(preset, only_network=True) as lab:
        lab.start_plain()
        for count in CONNECTIONS:
            what = f"{preset.name}: latency, {count} connections"
            yield _figure(lab, what, preset.latency_s * 1e3, "ms", 1e3, ["latency", str(count)])
        for count in CONNECTIONS:
            what = f"{preset.name}: bandwidth, {count} connections"
            due = preset.outside.rate(count) / 1e6
            yield _figure(lab, what, due, "MB/s", 1e-6, ["bandwidth", str(count), str(warm_s), str(_WINDOW_S)])


def _figure(lab: Lab, what: str, due: float, unit: str, scale: float, words: list[str]) -> Figure:
    """Measure once, and once more if that is off: others may have had the processors."""
    for note in ("", ", second try"):
        off = scale * _measure(lab, words) / due - 1
        found = f"{due * (1 + off):.4g} {unit} ({off:+.1%}{note})"
        print(f"{what}: {found}", flush=True)
        if abs(off) <= TOLERANCE:
            break
    return Figure(what, f"{due:.4g} {unit} ± 10%", found, abs(off) <= TOLERANCE)


def _measure(lab: Lab, words: list[str]) -> float:
    command = [sys.executable, _PLAIN, words[0], network.ADDRESSES[network.STORE], str(PLAIN_PORT), *words[1:]]
    return float(json.loads(lab.run(command, check=True, stdout=subprocess.PIPE).stdout))
