"""Small charts as inline SVG: axes, marks, lines and bars whose colours the page's style sheet decides.

Drawn by hand so that a chart follows the page from light to dark, each mark can say what it is when pointed at, and the
same figures always give the same bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, cos, floor, log10, pi, sin
from typing import Any

from hyperslab.plan.render import printable

__all__ = [
    "SHAPES",
    "Axis",
    "Panel",
    "number",
    "panel_grid",
    "round_seconds",
    "rows_axis",
    "safe",
    "shape_path",
    "short",
]


def safe(text: Any) -> str:
    """Return a text as HTML shows it, whoever wrote it; what cannot be printed is spelt out.

    >>> safe('<b> & "c"' + chr(27))
    '&lt;b&gt; &amp; &quot;c&quot;\\\\x1b'
    """
    return escape(printable(str(text)))


def short(value: float) -> str:
    """Write a number for an axis: two or three digits and a unit.

    >>> [short(v) for v in (0, 0.05, 0.5, 20, 1500, 2e6, 5e12)]
    ['0', '0.05', '0.5', '20', '1.5k', '2M', '5T']
    """
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def number(value: float) -> str:
    """Write a number for a table: three digits that count, thousands apart.

    >>> [number(v) for v in (0.01234, 1.5, 22.04, 1234.5, 1234567.0)]
    ['0.0123', '1.50', '22.0', '1,234', '1,234,567']
    """
    if value == 0:
        return "0"
    digits = max(0, 2 - floor(log10(abs(value))))
    return f"{value:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie, from 0 to 1.

    >>> Axis.over([1, 100], log=True, room=1.0).at(10.0)
    0.5
    """

    low: float
    high: float
    log: bool = False
    label: str = ""
    ticks: tuple[tuple[float, str], ...] = ()

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        *,
        log: bool,
        label: str = "",
        room: float = 1.35,
        low: float | None = None,
        say: Callable[[float], str] = short,
    ) -> "Axis":
        """Return an axis around values, with some room, or from `low`. A log axis spans a factor of 4 at least."""
        found = list(values)
        if not log:
            high = max([*found, 0.0]) * room or 1.0
            return cls(0.0, high, False, label, tuple((tick, say(tick)) for tick in _linear_ticks(high)))
        start, high = min(found) / room if low is None else low, max(found) * room
        lacks = max(1.0, 4 * start / high) if room > 1 else 1.0
        if low is None:
            start, lacks = start / lacks**0.5, lacks**0.5
        high *= lacks
        return cls(start, high, True, label, tuple((tick, say(tick)) for tick in _log_ticks(start, high)))

    def at(self, value: float) -> float:
        if self.log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def rows_axis(names: Sequence[str]) -> Axis:
    """Return an axis of names, from top to bottom; row n lies at n.

    >>> rows_axis(["a", "b"]).at(0) > rows_axis(["a", "b"]).at(1)
    True
    """
    return Axis(len(names) - 0.5, -0.5, ticks=tuple(enumerate(names)))


# Labels of an axis are at least so far from each other, as a share of it.
_NEAREST = 0.145


def _log_ticks(low: float, high: float) -> list[float]:
    """Choose round values, none too near to another; powers of ten come first.

    >>> _log_ticks(0.8, 1200)
    [1.0, 10.0, 100.0, 1000.0]
    >>> _log_ticks(15, 240)
    [20.0, 50.0, 100.0, 200.0]
    >>> _log_ticks(270, 1100)
    [300.0, 400.0, 500.0, 700.0, 1000.0]
    >>> _log_ticks(1, 1e7)
    [1.0, 100.0, 10000.0, 1000000.0]
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        found = [tick for n in decades for step in steps if low <= (tick := float(f"{step}e{n}")) <= high]
        if len(found) >= 3:
            break
    kept: list[float] = []
    for tick in sorted(found, key=lambda tick: (not log10(tick).is_integer(), tick)):
        if all(abs(log10(tick / other)) >= _NEAREST * log10(high / low) for other in kept):
            kept.append(tick)
    return sorted(kept)


def _linear_ticks(high: float) -> list[float]:
    """Choose round values from 0.

    >>> _linear_ticks(11.0)
    [0.0, 2.5, 5.0, 7.5, 10.0]
    """
    rough = high / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * n for n in (1, 2, 2.5, 5, 10) if unit * n >= rough * 0.999)
    return [float(f"{step * n:.6g}") for n in range(int(high / step) + 1)]


def _polygon(corners: int, turn: float, inner: float = 1.0) -> list[tuple[float, float]]:
    """Return points on a circle of one; with `inner` every other one lies nearer, as in a star."""
    count = corners * (2 if inner != 1 else 1)
    return [
        ((inner if n % 2 and inner != 1 else 1) * sin(turn + 2 * pi * n / count),
         -(inner if n % 2 and inner != 1 else 1) * cos(turn + 2 * pi * n / count))
        for n in range(count)
    ]  # fmt: skip


_ARM = 0.38
_PLUS = [
    (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM), (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM),
    (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
]  # fmt: skip
# Shapes with an inside, so that each can be filled or hollow; by about the same area.
SHAPES: dict[str, list[tuple[float, float]]] = {
    "star": [(1.35 * x, 1.35 * y) for x, y in _polygon(5, 0, 0.45)],
    "square": [(0.82 * x, 0.82 * y) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))],
    "up": [(1.15 * x, 1.15 * y) for x, y in _polygon(3, 0)],
    "diamond": [(1.15 * x, 1.15 * y) for x, y in _polygon(4, 0)],
    "down": [(1.15 * x, 1.15 * y) for x, y in _polygon(3, pi)],
    "pentagon": _polygon(5, 0),
    "cross": [(0.75 * (x - y), 0.75 * (x + y)) for x, y in _PLUS],
    "hexagon": _polygon(6, pi / 6),
    "plus": [(1.05 * x, 1.05 * y) for x, y in _PLUS],
    "circle": [],
}


def shape_path(shape: str, x: float, y: float, size: float) -> str:
    """Return the path of a mark around a place.

    >>> shape_path("square", 10, 10, 5)
    'M5.9 5.9L14.1 5.9L14.1 14.1L5.9 14.1Z'
    """
    if not SHAPES[shape]:
        r = round(0.95 * size, 1)  # two halves meet only when radius and width are rounded alike
        return f"M{_n(x - r)} {_n(y)}a{_n(r)} {_n(r)} 0 1 0 {_n(2 * r)} 0a{_n(r)} {_n(r)} 0 1 0 {_n(-2 * r)} 0Z"
    return "M" + "L".join(f"{_n(x + size * dx)} {_n(y + size * dy)}" for dx, dy in SHAPES[shape]) + "Z"


def _n(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


@dataclass(slots=True)
class Panel:
    """One chart. `about` says for those who cannot see it what it shows."""

    title: str
    about: str
    x: Axis
    y: Axis
    width: int = 290
    height: int = 230
    left: int = 48
    right: int = 12
    _parts: list[str] = field(default_factory=list)

    _TOP, _BOTTOM = 26, 40

    def px(self, value: float) -> float:
        return self.left + self.x.at(value) * (self.width - self.left - self.right)

    def py(self, value: float) -> float:
        return self.height - self._BOTTOM - self.y.at(value) * (self.height - self._TOP - self._BOTTOM)

    def mark(self, shape: str, x: float, y: float, css: str, tip: str, size: float = 5.5, rise: float = 0.0) -> None:
        """Put a mark; `tip` is shown when it is pointed at. `rise` moves it up by so many pixels."""
        path = shape_path(shape, self.px(x), self.py(y) - rise, size)
        self._parts.append(f'<path class="mark {css}" d="{path}"><title>{safe(tip)}</title></path>')

    def line(self, points: Iterable[tuple[float, float]], css: str) -> None:
        path = "L".join(f"{_n(self.px(x))} {_n(self.py(y))}" for x, y in points)
        self._parts.append(f'<path class="line {css}" d="M{path}"/>')

    def area(self, points: Iterable[tuple[float, float]], css: str) -> None:
        path = "L".join(f"{_n(self.px(x))} {_n(self.py(y))}" for x, y in points)
        self._parts.append(f'<path class="area {css}" d="M{path}Z"/>')

    def bar(
        self, start: float, end: float, row: float, css: str, tip: str, *, height: float, drop: float = 0.0
    ) -> None:
        """Put a bar that lies along the x axis; `drop` moves it down by so many pixels from the row's middle."""
        left, right = sorted((self.px(start), self.px(end)))
        top = self.py(row) + drop - height / 2
        self._parts.append(
            f'<rect class="bar {css}" x="{_n(left)}" y="{_n(top)}" width="{_n(max(right - left, 0.8))}" '
            f'height="{_n(height)}"><title>{safe(tip)}</title></rect>'
        )

    def disc(self, letter: str, x: float, y: float, css: str, tip: str, *, rise: float = 0.0) -> None:
        """Put a letter in a circle."""
        at, top = self.px(x), self.py(y) - rise
        self._parts.append(
            f'<g class="disc {css}"><title>{safe(tip)}</title><path d="{shape_path("circle", at, top, 7)}"/>'
            f'<text x="{_n(at)}" y="{_n(top + 3.2)}" text-anchor="middle">{safe(letter)}</text></g>'
        )

    def words(
        self,
        x: float,
        row: float,
        text: str,
        css: str = "",
        *,
        drop: float = 0.0,
        shift: float = 0.0,
        anchor: str = "start",
    ) -> None:
        self._parts.append(
            f'<text class="{css}" x="{_n(self.px(x) + shift)}" y="{_n(self.py(row) + drop)}" '
            f'text-anchor="{anchor}">{safe(text)}</text>'
        )

    def render(self) -> str:
        """Return the element."""
        left, right, top, bottom = self.left, self.width - self.right, self._TOP, self.height - self._BOTTOM
        head = [
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img">',
            f"<title>{safe(self.about)}</title>",
            f'<text class="heading" x="4" y="14">{safe(self.title)}</text>',
        ]
        for value, label in self.x.ticks:
            at = _n(self.px(value))
            head.append(f'<path class="grid" d="M{at} {top}V{bottom}"/>')
            head.append(f'<text class="tick" x="{at}" y="{bottom + 13}" text-anchor="middle">{safe(label)}</text>')
        rows = self.y.low > self.y.high  # names, not a scale
        for value, label in self.y.ticks:
            at = self.py(value)
            if not rows:
                head.append(f'<path class="grid" d="M{left} {_n(at)}H{right}"/>')
            css = "row" if rows else "tick"
            head.append(f'<text class="{css}" x="{left - 5}" y="{_n(at + 3.5)}" text-anchor="end">{safe(label)}</text>')
        at = _n((left + right) / 2)
        head.append(
            f'<text class="axis" x="{at}" y="{self.height - 8}" text-anchor="middle">{safe(self.x.label)}</text>'
        )
        if self.y.label:
            at = _n((top + bottom) / 2)
            head.append(
                f'<text class="axis" x="11" y="{at}" text-anchor="middle" '
                f'transform="rotate(-90 11 {at})">{safe(self.y.label)}</text>'
            )
        return "\n".join([*head, *self._parts, "</svg>"])


def panel_grid(panels: Iterable[Panel]) -> str:
    """Return panels side by side, as many as the window is wide."""
    drawn = "\n".join(panel.render() for panel in panels)
    return f'<div class="panels">\n{drawn}\n</div>' if drawn else ""


def round_seconds(seconds: float) -> str:
    """Write seconds for an axis, shorter than `say_seconds` does.

    >>> round_seconds(0.0), round_seconds(0.02), round_seconds(5.0)
    ('0 s', '20 ms', '5 s')
    """
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if 0 < seconds < limit * 0.9995:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"
