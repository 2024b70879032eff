"""How systems and methods look: one colour and one shape each, the same in every figure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.peers.report.svg import SHAPES, safe, shape_path

__all__ = [
    "LAYOUT_CSS",
    "METHODS",
    "Looks",
    "Method",
    "item",
    "legend",
    "method_of",
    "sample",
    "say_phi",
    "style_sheet",
]

# Colours that people who see few colours can tell apart (Okabe and Ito, and two more), for light and for dark paper.
# Shapes differ too, as ten colours are more than anybody tells apart for sure.
_COLOURS = (
    ("#D55E00", "#FF7F2A"), ("#0072B2", "#4DA6E0"), ("#009E73", "#2FC79B"), ("#3FA7DD", "#8CCFF5"),
    ("#CC79A7", "#E79AC4"), ("#D99400", "#F0B429"), ("#7A7A7A", "#B0B0B0"), ("#6A51C7", "#A793F5"),
    ("#8A8200", "#D6CC3B"), ("#882255", "#D46A9F"),
)  # fmt: skip
_SHAPES = tuple(SHAPES)

# A layout is seen by how a mark is filled.
LAYOUT_CSS = {"same": "full", "default": "half", "best": "hollow"}


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is forced upon every chunk of a read, for comparison with the optimiser."""

    letter: str
    title: str
    css: str


METHODS = {
    "get": Method("G", "get: whole objects", "m-get"),
    "merge": Method("M", "merge: one range of each chunk", "m-merge"),
    "fetch": Method("F", "fetch: every run of cells by itself", "m-fetch"),
    "call": Method("C", "call: the function for each chunk", "m-call"),
    "paper": Method("P", "paper: the paper's optimiser", "m-paper"),
    "stale": Method("S", "stale: the optimiser, told of another line", "m-stale"),
    # Not a method, but seen beside them.
    "φ ∞": Method("$", "φ ∞: the optimiser, when only dollars count", "m-money"),
}
_METHOD_COLOURS = {"m-get": 1, "m-merge": 2, "m-fetch": 4, "m-call": 5, "m-paper": 6, "m-stale": 7, "m-money": 0}


@dataclass(frozen=True, slots=True)
class Look:
    """A system's name for people, its class in the style sheet, and its shape."""

    title: str
    css: str
    shape: str


class Looks:
    """The looks of all systems of a result file, by name, in its order.

    >>> looks = Looks({"systems": {"hyperslab": {"title": "Hyperslab"}}})
    >>> looks["hyperslab"].shape, looks["another"].title
    ('star', 'another')
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        systems = dict(result.get("systems") or {})
        for rows in ("reads", "opens", "chunk_sizes"):
            for row in result.get(rows) or ():
                if row.get("system") is not None:
                    systems.setdefault(row["system"], {})
        self._looks = {name: self._look(n, each.get("title") or name) for n, (name, each) in enumerate(systems.items())}

    def __getitem__(self, name: str) -> Look:
        return self._looks.get(name) or self._look(len(self._looks), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._looks)

    @staticmethod
    def _look(n: int, title: str) -> Look:
        return Look(title, f"s{n % len(_COLOURS)}", _SHAPES[n % len(_SHAPES)])


def method_of(name: str) -> Method:
    """Return how a method looks, known or not."""
    return METHODS.get(name) or Method(name[:1].upper(), name, "m-paper")


def say_phi(phi: float | str) -> str:
    """Write a phi as the result file has it.

    >>> say_phi(100.0), say_phi("inf")
    ('φ 100', 'φ ∞')
    """
    return f"φ {float(phi):g}".replace("inf", "∞")


def legend(looks: Looks, names: Iterable[str], layouts: Iterable[str] = (), methods: Iterable[str] = ()) -> str:
    """Return a list of marks and what they stand for."""
    items = [item(sample(looks[name].shape, f"{looks[name].css} full"), looks[name].title) for name in names]
    words = {
        "same": "filled: the same 16 MB chunks",
        "default": "pale: Hyperslab's own default layout",
        "best": "hollow: the layout its documentation recommends",
    }
    items += [
        item(sample("circle", f"plain {LAYOUT_CSS.get(each, 'full')}"), words.get(each, each)) for each in layouts
    ]
    for name in methods:
        look = method_of(name)
        disc = (
            f'<g class="disc {look.css}"><path d="{shape_path("circle", 9, 9, 7)}"/>'
            f'<text x="9" y="12.2" text-anchor="middle">{look.letter}</text></g>'
        )
        items.append(item(disc, look.title))
    return f'<ul class="legend">{"".join(items)}</ul>'


def sample(shape: str, css: str) -> str:
    return f'<path class="mark {css}" d="{shape_path(shape, 9, 9, 5.5)}"/>'


def item(drawing: str, words: str) -> str:
    return f'<li><svg class="sample" viewBox="0 0 18 18" aria-hidden="true">{drawing}</svg>{safe(words)}</li>'


def style_sheet() -> str:
    """Return the rules that colour systems and methods, for light and for dark paper."""
    lines = [*_rules(0), "@media (prefers-color-scheme: dark) {", *_rules(1), "}"]
    return "\n".join(lines)


def _rules(paper: int) -> list[str]:
    systems = [f".s{n} {{ --c: {pair[paper]} }}" for n, pair in enumerate(_COLOURS)]
    return systems + [f".{css} {{ --c: {_COLOURS[n][paper]} }}" for css, n in _METHOD_COLOURS.items()]
