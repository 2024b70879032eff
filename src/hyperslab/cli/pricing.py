"""`hyperslab prices`: what the price books say, of when they are, and what is assumed."""

import json
from collections.abc import Iterator
from typing import Any

import click

from hyperslab.errors import InvalidInputError
from hyperslab.execute.home import home
from hyperslab.execute.own_prices import KeptBook, all_books, stale_days
from hyperslab.plan.phrases import say_bytes, say_seconds
from hyperslab.plan.price_book import LOCATIONS, FunctionPrices, RegionPrices
from hyperslab.plan.prices import Prices
from hyperslab.plan.render import Facts, Report, Table, printable, shown_text

__all__ = ["show_prices"]

_PER_REQUESTS = 1000


def show_prices(
    *, provider: str | None = None, region: str | None = None, location: str | None = None, as_json: bool = False
) -> None:
    """Print the books, of one provider or of all; of one region, for a reader in one place."""
    if location is not None and location not in LOCATIONS:
        raise InvalidInputError(f"a location is one of {', '.join(LOCATIONS)}, not {location!r}")
    chosen = _chosen(provider, region)
    locations = LOCATIONS if location is None else (location,)
    if as_json:
        plain = {kept.book.provider: _plain(kept, region, locations) for kept in chosen}
        click.echo(json.dumps(plain, indent=2, allow_nan=False))
        return
    click.echo("\n\n".join(shown_text(_report(kept, region, locations)) for kept in chosen))
    if provider is None:
        click.echo(f"\nYour own books go before these: {printable(str(home() / 'prices'))}/*.toml")


def _chosen(provider: str | None, region: str | None) -> list[KeptBook]:
    books = all_books()
    if provider is not None and provider not in books:
        raise InvalidInputError(f"there is no price book of {provider!r}; there are {', '.join(books)}")
    chosen = [kept for name, kept in books.items() if provider in (None, name)]
    if region is None:
        return chosen
    having = [kept for kept in chosen if region in kept.book.regions]
    if not having:
        known = ", ".join(each for kept in chosen for each in kept.book.regions)
        raise InvalidInputError(f"no price book has a region {region!r}; there are {known}")
    return having


def _report(kept: KeptBook, region: str | None, locations: tuple[str, ...]) -> Report:
    book = kept.book
    dated = book.dated if stale_days(book.dated) is None else f"{book.dated}: more than a year ago, may have changed"
    facts = [("dated", dated), ("source", printable(book.source))]
    if kept.own is not None:
        facts.append(("own book", printable(str(kept.own))))
    facts.append(("by default", f"{book.region}, {book.tier}, read from the internet"))
    parts: list[Facts | Table] = [Facts(tuple(facts)), _table(kept, region, locations)]
    function = book.regions[region or book.region].function
    if function is not None:
        parts.append(Facts(tuple(_function_facts(function))))
    if notes := list(_notes(kept, region)):
        parts.append(Facts(tuple(("remarks" if not number else "", note) for number, note in enumerate(notes))))
    return Report(book.provider, tuple(parts))


def _table(kept: KeptBook, region: str | None, locations: tuple[str, ...]) -> Table:
    rows = []
    for name, tier, prices in _rows(kept, region, locations):
        first = prices[0]
        costs = [first.request_usd * _PER_REQUESTS, first.put_usd * _PER_REQUESTS]
        costs += [each.byte_usd * 1e9 for each in prices]
        rows.append((f"{name}, {tier}", *map(_exact, costs)))
    return Table(("region, tier", "1k reads", "1k writes", *[f"GB {each}" for each in locations]), tuple(rows))


def _rows(
    kept: KeptBook, region: str | None, locations: tuple[str, ...]
) -> Iterator[tuple[str, str, tuple[Prices, ...]]]:
    for name, found in kept.book.regions.items():
        if region in (None, name):
            for tier in found.tiers:
                books = [Prices.from_book(kept.book, region=name, tier=tier, location=each) for each in locations]
                yield name, tier, tuple(books)


def _exact(usd: float) -> str:
    """Write a figure of a list with all its digits; nobody prices finer than these."""
    return "$" + (f"{usd:.12f}".rstrip("0").rstrip(".") or "0")


def _function_facts(function: FunctionPrices) -> Iterator[tuple[str, str]]:
    yield "function", printable(function.service) or "beside the data"
    compute = f"{_exact(function.gb_second_usd)} a GB-second"
    if function.cpu_second_usd:
        compute += f" and {_exact(function.cpu_second_usd)} a CPU-second"
    yield "calls", f"{_exact(function.call_usd * 1e6)} a million, failed ones too; {compute}"
    yield "billed by", f"{say_seconds(function.step_s)}, at least {say_seconds(function.least_s)}"
    memory = f"{function.memory_mb:,} MB if nothing else is said"
    yield "memory", f"{memory}; {function.memory_least_mb:,} to {function.memory_most_mb:,} MB"
    yield "limits", "; ".join(_limits(function))


def _limits(function: FunctionPrices) -> Iterator[str]:
    if function.answer_bytes is not None and function.reply_bytes is not None:
        words = f"answers up to {say_bytes(function.reply_bytes)}"
        yield words + (f" as base64, so {say_bytes(function.answer_bytes)}" if function.reply_base64 else "")
    if function.stream_bytes is not None:
        slow = ""
        if function.stream_bytes_s is not None:
            slow = f", past {say_bytes(function.stream_free_bytes or 0)} at {say_bytes(int(function.stream_bytes_s))}/s"
        yield f"streamed up to {say_bytes(function.stream_bytes)}{slow}"
    yield f"within {function.timeout_s:,.0f} s"


def _notes(kept: KeptBook, region: str | None) -> Iterator[str]:
    """Yield the remarks of a book, each once, with all that it holds for."""
    subjects: dict[str, list[str]] = {}
    first = region or kept.book.region
    others = [] if region else [name for name in kept.book.regions if name != first]
    for name in (first, *others):
        for subject, verified, note in _remarks(kept.book.regions[name]):
            words = ("" if verified else "not verified: ") + (note or ("" if verified else "no reason is given"))
            known = subjects.setdefault(words, [])
            if subject not in known:
                known.append(subject if name == first else f"{name} {subject}")
    for words, named in subjects.items():
        if words:
            yield printable(f"{', '.join(named)}: {words}")


def _remarks(found: RegionPrices) -> Iterator[tuple[str, bool, str]]:
    yield "egress", found.egress.verified, found.egress.note
    for name, tier in found.tiers.items():
        yield name, tier.verified, tier.note
    if found.function is not None:
        yield "function", found.function.verified, found.function.note


def _plain(kept: KeptBook, region: str | None, locations: tuple[str, ...]) -> dict[str, Any]:
    book = kept.book
    regions: dict[str, Any] = {}
    for name, tier, prices in _rows(kept, region, locations):
        found = book.regions[name]
        entry = regions.setdefault(name, {"label": found.label, "tiers": {}, "function": _function_plain(found)})
        entry["tiers"][tier] = {
            "request_usd": prices[0].request_usd,
            "put_usd": prices[0].put_usd,
            "retrieval_byte_usd": prices[0].retrieval_byte_usd,
            "byte_usd": {each.location: each.byte_usd for each in prices},
            "verified": found.tiers[tier].verified and found.egress.verified,
        }
    return {
        "dated": book.dated,
        "stale": stale_days(book.dated) is not None,
        "source": book.source,
        "currency": book.currency,
        "own_book": None if kept.own is None else str(kept.own),
        "region": book.region,
        "tier": book.tier,
        "regions": regions,
    }


def _function_plain(found: RegionPrices) -> dict[str, Any] | None:
    if found.function is None:
        return None
    function = found.function
    return {name: getattr(function, name) for name in function.__dataclass_fields__}
