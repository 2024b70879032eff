"""Advice as the user gets it: a plan with figures, which prints as a report, and is nothing until it is applied."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hyperslab.collections.advising import Findings, HeldOut, Settings, Tell, checked, find_plan
from hyperslab.collections.plans import Plan
from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count, say_phi, say_seconds, say_usd
from hyperslab.plan.render import Facts, Report, Table, html_text, printable, shown_text
from hyperslab.tune.placement.problem import Cost
from hyperslab.workload.place import clean_url

if TYPE_CHECKING:
    from hyperslab.collections.collection import Collection

__all__ = ["CollectionAdvice", "advise"]

_NAMES = {
    "range": "by name",
    "object": "object-weighted METIS",
    "P1": "query-weighted METIS (P1)",
    "PO": "P1, then hill climbing (PO)",
    "C-P": "consolidate, then place (C-P)",
    "P-C": "place, then consolidate (P-C)",
}
_WAYS = {"log": "by the log", "order": "by the order of attributes"}


def advise(collection: "Collection", workload: Any, settings: Settings, progress: Any = None) -> "CollectionAdvice":
    """Say how the arrays of a collection should lie for reads like those of the workload."""
    with _steps(progress, "planning") as tell:
        return CollectionAdvice(collection, find_plan(collection, workload, checked(settings), tell))


class CollectionAdvice:
    """Which arrays should share a pack and which be kept in the tier; nothing is changed until it is applied.

    `print` it to see all of it; `findings` has the figures, `plan` where each array is to lie.
    """

    def __init__(self, collection: "Collection", findings: Findings) -> None:
        self.collection, self.findings = collection, findings
        self._name = clean_url(collection.url) if "://" in collection.url else collection.url

    @property
    def plan(self) -> Plan:
        """Where each array is to lie."""
        return self.findings.plan

    @property
    def keep(self) -> bool:
        """Whether the arrays had better stay where they are."""
        return self.findings.keep

    @property
    def pack_bytes(self) -> int:
        """How many bytes a pack holds at most, as advised or as given."""
        return self.findings.pack_bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Store the plan in a file, for `Collection.apply`."""
        self.plan.save(path)

    def apply(self, *, progress: Any = None) -> "Collection":
        """Pack the arrays anew as advised, see `Collection.apply`; return the collection as it is then.

        Where the arrays had better stay where they are, nothing is done.
        """
        # To apply it is to say that the collection may be changed, whatever it was opened for.
        changed = self.collection.to_be_changed()
        if not self.keep:
            changed.apply(self.plan, progress=progress)
        return changed

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain values, ready for JSON."""
        return values_of(self.findings, self._name)

    def __str__(self) -> str:
        return shown_text(report_of(self.findings, self._name))

    def __repr__(self) -> str:
        found = self.findings
        told = "keep" if self.keep else f"{found.packs} packs of {found.pack_bytes} bytes, {found.keyed_arrays} keys"
        return f"<hyperslab.CollectionAdvice {self._name!r}: {told}>"

    def _repr_html_(self) -> str:
        return html_text(report_of(self.findings, self._name))


def report_of(found: Findings, url: str) -> Report:
    """Return what is printed."""
    lost = f"; {say_count(found.lost, 'read')} of arrays that are gone left out" if found.lost else ""
    facts = [
        ("arrays", f"{found.arrays:,} in {say_count(found.packs_now, 'pack')}"),
        ("queries", f"{found.queries:,}{lost}"),
        ("store", f"a pack of {say_bytes(found.pack_bytes)} is touched for {_say(found, found.prices.pack_s)}"),
    ]
    if found.keys is not None:
        each, request = say_seconds(found.keys.key_s), say_seconds(found.keys.request_s)
        facts.append(("tier", f"{say_bytes(found.key_bytes)}; a key takes {each}, a request for keys {request}"))
    facts += [("weighed by", say_phi(found.touches.model.phi)), ("advice", _advice(found))]
    parts: list[Facts | Table] = [Facts(tuple(facts)), _table(found)]
    if len(found.sizes) > 1:
        rows = tuple([(say_bytes(size), _say(found, cost)) for size, cost in sorted(found.sizes.items())])
        parts.append(Table(("size of packs", "a query held out"), rows, sorted(found.sizes).index(found.pack_bytes)))
    return Report(f"Packing of {printable(url)}", tuple(parts))


def _say(found: Findings, cost: float) -> str:
    return say_usd(cost) if found.touches.in_dollars else say_seconds(cost)


def _advice(found: Findings) -> str:
    if found.keep:
        return "stay as it is: no plan is better by a margin on queries that were held out"
    keyed = f", {say_count(found.keyed_arrays, 'array')} in the tier" if found.keyed_arrays else ""
    packs = f"{say_count(found.packs, 'pack')} of up to {say_bytes(found.pack_bytes)}"
    after = found.told.trained if found.told.held_out is None else found.told.held_out
    before = found.now.seconds / found.queries
    times = f"{before / after:,.1f} times less" if after else "nothing"
    return f"{packs}{keyed}, {_WAYS[found.way]}: a query costs {times}"


def _table(found: Findings) -> Table:
    now = found.now.seconds / found.queries
    rows: list[tuple[str, ...]] = [
        ("now", *_counts(found, found.now), *_costs(found, HeldOut(now, now))),
        ("advised", *_counts(found, found.best), *_costs(found, found.told)),
    ]
    rows += [(f"  {_WAYS[way]}", "", "", *_costs(found, each)) for way, each in found.ways.items()]
    rows += [
        (f"  {_NAMES[name]}", "needs pymetis") if each is None else (f"  {_NAMES[name]}", "", "", *_costs(found, each))
        for name, each in found.baselines.items()
    ]
    rows.append(("no plan costs less than", "", "", _say(found, found.bound), ""))
    heading = ("a query, on average", "packs", "keys", "known", "held out")
    return Table(heading, tuple(rows), None if found.keep else 1)


def _counts(found: Findings, cost: Cost) -> tuple[str, str]:
    return f"{cost.touches / found.queries:,.1f}", f"{cost.keys / found.queries:,.1f}"


def _costs(found: Findings, each: HeldOut) -> tuple[str, str]:
    return _say(found, each.trained), "" if each.held_out is None else _say(found, each.held_out)


def values_of(found: Findings, url: str) -> dict[str, Any]:
    """Return advice as plain values, ready for JSON."""
    model = found.touches.model
    return {
        "url": url,
        "arrays": found.arrays,
        "queries": found.queries,
        "lost": found.lost,
        "phi": None if model.phi == float("inf") else model.phi,
        "keep": found.keep,
        "pack_bytes": found.pack_bytes,
        "packs": found.packs,
        "packs_now": found.packs_now,
        "key_bytes": found.key_bytes,
        "keyed_arrays": found.keyed_arrays,
        "prices": {"pack": found.prices.pack_s, "key": found.prices.key_s, "request": found.prices.request_s},
        "now": _cost_values(found, found.now) | {"held_out": found.now.seconds / found.queries},
        "best": _cost_values(found, found.best) | {"held_out": found.told.held_out},
        "way": found.way,
        "ways": {way: {"trained": each.trained, "held_out": each.held_out} for way, each in found.ways.items()},
        "sizes": {str(size): cost for size, cost in found.sizes.items()},
        "baselines": {
            name: None if each is None else {"trained": each.trained, "held_out": each.held_out}
            for name, each in found.baselines.items()
        },
        "bound": found.bound,
    }


def _cost_values(found: Findings, cost: Cost) -> dict[str, float]:
    each = found.queries
    return {"packs": cost.touches / each, "keys": cost.keys / each, "trained": cost.seconds / each}


@contextmanager
def _steps(progress: Any, title: str) -> Iterator[Tell | None]:
    """Give what is to be told of steps: nothing, the user's function, or with True a bar on the terminal."""
    if progress is None or progress is False or callable(progress):
        yield progress or None
        return
    if progress is not True:
        raise InvalidInputError(f"progress is True, or a function of (done, total), not {progress!r:.80}")
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
