"""Explanations: a plan told to a person, with the alternatives that were rejected."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hyperslab.plan.plan import Method, Plan
from hyperslab.selection import Points, Selection

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What a read will send and is predicted to cost. Print it."""

    url: str
    selection: Selection | Points
    plan: Plan
    alternatives: dict[str, Plan]
    run: Callable[[], Any]


def explain(
    url: str,
    selection: Selection | Points,
    plan: Callable[[Method | None], Plan],
    method: Method | None,
    run: Callable[[], Any],
) -> Explanation:
    """Plan a selection in every way, the chosen one first."""
    methods: tuple[Method, ...] = ("get", "merge", "fetch", "paper")
    others = {name: plan(name) for name in methods if name != method}
    return Explanation(url, selection, plan(method), others, run)
