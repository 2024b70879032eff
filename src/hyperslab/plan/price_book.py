"""Price books: dated TOML files of what a provider bills, parsed strictly. The bundled ones lie in `books/`.

    provider, dated, source, currency      whose prices they are, of when, from where
    region, tier, per_requests             what is meant when none is named; requests are priced by so many
    [egress] [tiers.NAME] [function]       what holds in every region, unless the region says otherwise
    [regions.NAME]                         label, and any of egress, tiers.NAME, function again

What is not known is refused: a key that is written wrong would else be a price of nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from importlib.resources import files
from math import isfinite
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError

__all__ = [
    "LOCATIONS", "PROVIDERS", "Egress", "FunctionPrices", "PriceBook", "RegionPrices", "TierPrices", "bundled_book",
    "bundled_text", "day_of", "laid_over", "parse_book", "read_toml",
]  # fmt: skip

# Where the reader is, seen from the data.
LOCATIONS = ("same-region", "other-region", "internet")
PROVIDERS = ("aws", "azure", "google")

# A gigabyte of a price list is 10⁹ bytes here; see the guide on prices.
_GB_BYTES = 1e9
_MEMORY_GB_MB = 1024
_LONGEST_BOOK = 1 << 16
# Keys of a thousand dots take a parser of TOML a thousand times as long as they should; none has more than a few.
_LONGEST_LINE = 1 << 11
_DEEPEST = 8
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_DATED = re.compile(r"\d{4}-\d{2}(?:-\d{2})?")
_REMARKS = ("verified", "note")


@dataclass(frozen=True, slots=True)
class FunctionPrices:
    """What calls of a function beside the data cost, and what bounds them. Values only: `plan/cost.py` multiplies.

    A call is billed `call_usd`, and its time, rounded up to `step_s` and at least `least_s`, by the gigabytes of its
    memory (`gb_second_usd`) and by its processors (`cpu_second_usd`). A call that fails is billed, too.
    `reply_bytes` is the largest answer (None: no limit is stated), which with `reply_base64` holds three quarters of
    that in bytes. A streamed one may have `stream_bytes`, past the first `stream_free_bytes` at `stream_bytes_s`.

    >>> FunctionPrices(2e-7, 1.6e-5, step_s=0.001, least_s=0.1).billed_s(0.0204)
    0.1
    """

    call_usd: float
    gb_second_usd: float
    cpu_second_usd: float = 0.0
    step_s: float = 0.001
    least_s: float = 0.001
    memory_mb: int = 1769
    memory_least_mb: int = 128
    memory_most_mb: int = 10_240
    memory_step_mb: int = 1
    cpus: tuple[tuple[int, float], ...] = ()
    reply_bytes: int | None = None
    reply_base64: bool = False
    stream_bytes: int | None = None
    stream_free_bytes: int | None = None
    stream_bytes_s: float | None = None
    timeout_s: float = 900.0
    service: str = ""
    source: str = ""
    verified: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        rates = (self.call_usd, self.gb_second_usd, self.cpu_second_usd, self.least_s)
        if not all(isfinite(rate) and rate >= 0 for rate in rates):
            raise InvalidInputError("a function's prices must be finite and not negative")
        if not (isfinite(self.step_s) and self.step_s > 0 and self.timeout_s > 0):
            raise InvalidInputError("a function is billed by steps above 0 s, and may run for more than 0 s")
        if not 1 <= self.memory_least_mb <= self.memory_mb <= self.memory_most_mb or self.memory_step_mb < 1:
            raise InvalidInputError("a function's memory lies between its least and its most, in steps from 1 MB on")
        sizes = [memory for memory, _ in self.cpus]
        if sizes != sorted(set(sizes)) or not all(isfinite(count) and count > 0 for _, count in self.cpus):
            raise InvalidInputError("a function's processors are listed by ascending memory, and are above 0")

    def billed_s(self, seconds: Any) -> Any:
        """How many seconds are billed for one call that runs so long; takes a number or an array.

        >>> FunctionPrices(2e-7, 1.6e-5, step_s=0.1, least_s=0.1).billed_s(np.array([0.01, 0.1, 0.25]))
        array([0.1, 0.1, 0.3])
        """
        # What is a step already, but for the last digits of a float, is not rounded to the next.
        steps = np.ceil(np.round(np.asarray(seconds) / self.step_s, 6))
        billed = np.maximum(steps * self.step_s, self.least_s)
        return billed if isinstance(seconds, np.ndarray) else float(billed)

    def memory_gb(self, memory_mb: int | None = None) -> float:
        """The gigabytes that are billed for a function of so many megabytes: rounded up, within what can be had."""
        asked = self.memory_mb if memory_mb is None else memory_mb
        stepped = -(-asked // self.memory_step_mb) * self.memory_step_mb
        return min(max(stepped, self.memory_least_mb), self.memory_most_mb) / _MEMORY_GB_MB

    def cpu_count(self, memory_mb: int | None = None) -> float:
        """The processors that a function of so many megabytes is billed for; 0 where they are not billed."""
        asked = self.memory_mb if memory_mb is None else memory_mb
        fitting = [count for memory, count in self.cpus if memory >= asked]
        return fitting[0] if fitting else self.cpus[-1][1] if self.cpus else 0.0

    def second_usd(self, memory_mb: int | None = None) -> float:
        """Dollars per billed second of a function of so many megabytes: its memory and its processors.

        >>> round(bundled_book("google").look_up()[0].function.second_usd(2048) * 1e6, 6)
        29.0
        """
        return self.memory_gb(memory_mb) * self.gb_second_usd + self.cpu_count(memory_mb) * self.cpu_second_usd

    @property
    def answer_bytes(self) -> int | None:
        """The most bytes that an answer in one piece holds, headers included; None: no limit is stated."""
        if self.reply_bytes is None or not self.reply_base64:
            return self.reply_bytes
        return self.reply_bytes // 4 * 3


@dataclass(frozen=True, slots=True)
class Egress:
    """Dollars per byte that leaves, by where it goes."""

    same_region_usd: float
    other_region_usd: float
    internet_usd: float
    verified: bool = True
    note: str = ""

    def to(self, location: str) -> float:
        """Dollars per byte for a reader there."""
        if location not in LOCATIONS:
            raise InvalidInputError(f"a location is one of {', '.join(LOCATIONS)}, not {location!r}")
        return (self.same_region_usd, self.other_region_usd, self.internet_usd)[LOCATIONS.index(location)]


@dataclass(frozen=True, slots=True)
class TierPrices:
    """Dollars per read, per object written, and per byte that is got out of the tier, wherever it goes."""

    read_usd: float
    put_usd: float
    retrieval_usd: float = 0.0
    verified: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RegionPrices:
    """All that is billed in one region."""

    label: str
    egress: Egress
    tiers: Mapping[str, TierPrices]
    function: FunctionPrices | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PriceBook:
    """What one provider bills, by region and tier; `region` and `tier` are meant when none is named."""

    provider: str
    dated: str
    source: str
    currency: str
    region: str
    tier: str
    regions: Mapping[str, RegionPrices]

    def look_up(self, region: str | None = None, tier: str | None = None) -> tuple[RegionPrices, TierPrices]:
        """Return what a region and a tier of it cost.

        >>> round(bundled_book("aws").look_up(tier="standard-ia")[1].retrieval_usd * 1e9, 6)
        0.01
        """
        region, tier = region or self.region, tier or self.tier
        found = self.regions.get(region)
        if found is None:
            raise InvalidInputError(
                f"the prices of {self.provider} have no region {region!r}, only {', '.join(self.regions)}; "
                "add it in a book of your own"
            )
        if tier not in found.tiers:
            known = ", ".join(found.tiers)
            raise InvalidInputError(f"the prices of {self.provider} in {region} have no tier {tier!r}, only {known}")
        return found, found.tiers[tier]


def day_of(dated: str) -> date:
    """Return the day that a book is of; a month is its first day.

    >>> day_of("2026-11")
    datetime.date(2026, 11, 1)
    """
    try:
        if not _DATED.fullmatch(dated):
            raise ValueError("not a date")
        return date.fromisoformat(dated if len(dated) > len("2026-11") else f"{dated}-01")
    except ValueError:
        raise InvalidInputError(f"a book is dated like 2026-11 or 2026-11-30, not {dated!r}") from None


@lru_cache(maxsize=8)
def bundled_book(provider: str) -> PriceBook:
    """Return the book of a provider that comes with Hyperslab."""
    return parse_book(read_toml(bundled_text(provider), provider), provider)


def bundled_text(provider: str) -> str:
    """Return the file of a provider that comes with Hyperslab."""
    if provider not in PROVIDERS:
        raise InvalidInputError(f"there is no price book of {provider!r}; there are {', '.join(PROVIDERS)}")
    return files("hyperslab.plan").joinpath("books", f"{provider}.toml").read_text(encoding="utf-8")


def read_toml(text: str, name: str) -> dict[str, Any]:
    """Return the values of a book's file; `name` is what errors call it."""
    import tomllib  # not needed by those who only read local files

    if len(text) > _LONGEST_BOOK or max(map(len, text.splitlines()), default=0) > _LONGEST_LINE:
        raise InvalidInputError(
            f"price book {name} has more than {_LONGEST_BOOK:,} characters, or {_LONGEST_LINE:,} in a line; "
            "it is no price book"
        )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"price book {name} is not TOML: {error}; mend or remove it") from None


def laid_over(base: Mapping[str, Any], own: Mapping[str, Any], name: str, depth: int = 0) -> dict[str, Any]:
    """Return the values of a book with those of another in front; what the other prices anew loses its remarks."""
    if depth > _DEEPEST:
        raise InvalidInputError(f"price book {name} has tables in tables {_DEEPEST} deep; it is no price book")
    merged = dict(base)
    if any(not isinstance(value, Mapping) for value in own.values()):
        merged = {key: value for key, value in base.items() if key not in _REMARKS}
    for key, value in own.items():
        below = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = laid_over(below if isinstance(below, Mapping) else {}, value, name, depth + 1)
        else:
            merged[key] = value
    return merged


def parse_book(values: Mapping[str, Any], name: str) -> PriceBook:
    """Return the book that the values of a TOML file make; raises InvalidInputError with `name` and the wrong key.

    >>> parse_book({"provider": "moon"}, "moon.toml")
    Traceback (most recent call last):
    hyperslab.errors.InvalidInputError: price book moon.toml: dated is missing
    """
    top = _Table(values, name)
    provider = top.name_of("provider")
    if provider == "free" or provider.endswith(LOCATIONS):
        raise top.wrong("provider", f"must not be 'free' or end in {' or '.join(LOCATIONS)}")
    dated = top.dated()
    source, currency = top.text("source"), top.text("currency")
    if currency != "USD":
        raise top.wrong("currency", f"must be 'USD', not {_shown(currency)}")
    region, tier = top.name_of("region"), top.name_of("tier")
    unit = top.whole("per_requests", 1_000)
    everywhere = {key: top.table(key) for key in ("egress", "tiers", "function") if top.has(key)}
    regions = {
        key: _region(_Table(laid_over(everywhere, own, name), name, f"regions.{_shown(key, bare=True)}."), unit)
        for key, own in top.tables("regions").items()
    }
    top.done()
    book = PriceBook(provider, dated, source, currency, region, tier, regions)
    if region not in regions or tier not in regions[region].tiers:
        raise top.wrong("region" if region not in regions else "tier", "must be one that the book has prices of")
    return book


def _region(table: "_Table", unit: int) -> RegionPrices:
    label = table.text("label", "")
    egress = table.below("egress")
    same, other, internet = (egress.number(f"{each.replace('-', '_')}_gb_usd") / _GB_BYTES for each in LOCATIONS)
    leaves = Egress(same, other, internet, egress.flag("verified", True), egress.text("note", ""))
    egress.done()
    tiers = {key: _tier(table.below("tiers").below(key), unit) for key in table.tables("tiers")}
    function = _function(table.below("function")) if table.has("function") else None
    table.done()
    return RegionPrices(label, leaves, tiers, function)


def _tier(table: "_Table", unit: int) -> TierPrices:
    tier = TierPrices(
        table.number("reads_usd") / unit,
        table.number("puts_usd") / unit,
        table.number("retrieval_gb_usd", 0.0) / _GB_BYTES,
        table.flag("verified", True),
        table.text("note", ""),
    )
    table.done()
    return tier


def _function(table: "_Table") -> FunctionPrices:
    values: dict[str, Any] = {
        "call_usd": table.number("calls_million_usd") / 1e6,
        "gb_second_usd": table.number("gb_second_usd"),
        "cpu_second_usd": table.number("cpu_second_usd", 0.0),
        "step_s": table.number("step_ms", 1.0) / 1e3,
        "least_s": table.number("least_ms", 0.0) / 1e3,
        "timeout_s": table.number("timeout_s"),
        "reply_base64": table.flag("reply_base64", False),
        "verified": table.flag("verified", True),
        "cpus": table.pairs("cpus"),
    }
    for key in ("memory_mb", "memory_least_mb", "memory_most_mb", "memory_step_mb"):
        values[key] = table.whole(key)
    for key in ("reply_bytes", "stream_bytes", "stream_free_bytes", "stream_bytes_s"):
        values[key] = table.whole(key) if table.has(key) else None
    for key in ("service", "source", "note"):
        values[key] = table.text(key, "")
    table.done()
    try:
        return FunctionPrices(**values)
    except InvalidInputError as error:
        raise InvalidInputError(f"price book {table.name}: {table.where.rstrip('.')}: {error}") from None


class _Table:
    """A table of a book that is being read: every value is asked for once, by its kind; what is left is refused."""

    def __init__(self, values: Mapping[str, Any], name: str, where: str = "") -> None:
        self.values, self.name, self.where = values, name, where
        self._asked: set[str] = set()

    def wrong(self, key: str, words: str) -> InvalidInputError:
        return InvalidInputError(f"price book {self.name}: {self.where}{_shown(key, bare=True)} {words}")

    def has(self, key: str) -> bool:
        return key in self.values

    def _get(self, key: str, other: Any) -> Any:
        self._asked.add(key)
        if key not in self.values and other is None:
            raise self.wrong(key, "is missing")
        return self.values.get(key, other)

    def number(self, key: str, other: float | None = None) -> float:
        value = self._get(key, other)
        # An int may be too large for a float.
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e300
        if not good:
            raise self.wrong(key, f"must be a number from 0 on, not {_shown(value)}")
        return float(value)

    def whole(self, key: str, other: int | None = None) -> int:
        value = self._get(key, other)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 62:
            raise self.wrong(key, f"must be a whole number from 1 on, not {_shown(value)}")
        return value

    def text(self, key: str, other: str | None = None) -> str:
        value = self._get(key, other)
        if not isinstance(value, str):
            raise self.wrong(key, f"must be text, not {_shown(value)}")
        return value

    def flag(self, key: str, other: bool) -> bool:
        value = self._get(key, other)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {_shown(value)}")
        return value

    def name_of(self, key: str) -> str:
        value = self.text(key)
        if not _NAME.fullmatch(value):
            raise self.wrong(key, f"must be small letters, digits, '-', '.' and '_', not {_shown(value)}")
        return value

    def dated(self) -> str:
        value = self._get("dated", None)
        # TOML has dates of its own.
        value = value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else value
        if not isinstance(value, str):
            raise self.wrong("dated", f"must be a date like 2026-11-30, not {_shown(value)}")
        try:
            day_of(value)
        except InvalidInputError:
            raise self.wrong("dated", f"must be a date like 2026-11-30, not {_shown(value)}") from None
        return value

    def pairs(self, key: str) -> tuple[tuple[int, float], ...]:
        value = self._get(key, [])
        words = f"must be a list of [memory in MB, processors], not {_shown(value)}"
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise self.wrong(key, words)
        cells = [_Table({"memory": memory, "cpus": cpus}, self.name, f"{self.where}{key}.") for memory, cpus in value]
        return tuple([(cell.whole("memory"), cell.number("cpus")) for cell in cells])

    def table(self, key: str) -> Mapping[str, Any]:
        value = self._get(key, None)
        if not isinstance(value, Mapping):
            raise self.wrong(key, f"must be a table, not {_shown(value)}")
        return value

    def below(self, key: str) -> "_Table":
        return _Table(self.table(key), self.name, f"{self.where}{_shown(key, bare=True)}.")

    def tables(self, key: str) -> dict[str, Mapping[str, Any]]:
        """Return the tables of a table of them, by name; there must be one."""
        inside = self.below(key)
        found = {name: inside.table(name) for name in inside.values}
        if not found:
            raise self.wrong(key, "has no table in it")
        for name in found:
            if not _NAME.fullmatch(name):
                raise inside.wrong(name, "must have a name of small letters, digits, '-', '.' and '_'")
        return found

    def done(self) -> None:
        """Refuse what nobody asked for."""
        left = [key for key in self.values if key not in self._asked]
        if left:
            known = ", ".join(sorted(self._asked))
            raise self.wrong(left[0], f"is not a key of a price book; known here are {known}")


def _shown(value: Any, *, bare: bool = False) -> str:
    """Write a value of a file in an error: short, and nothing that a terminal would act on."""
    text = repr(value) if not isinstance(value, (Mapping, list)) else f"a {type(value).__name__}"
    text = text[1:-1] if bare and isinstance(value, str) else text
    return text if len(text) <= 60 else text[:59] + "…"
