"""Which prices hold: the bundled books, and a person's own beside them in `prices/*.toml` of their folder.

An own book of a provider that is bundled is laid over it, value by value; one of another provider stands by itself.
They are read once, when prices are first asked for. A book that is more than a year old warns, once.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path

from hyperslab.errors import InvalidInputError
from hyperslab.execute.home import home
from hyperslab.plan.price_book import (
    PROVIDERS,
    PriceBook,
    bundled_book,
    bundled_text,
    day_of,
    laid_over,
    parse_book,
    read_toml,
)
from hyperslab.plan.prices import LOCATIONS, Prices, split_name

__all__ = ["KeptBook", "StalePricesWarning", "all_books", "find_prices", "prices_for", "stale_days", "warn_if_stale"]

# Lists change about once a year.
_STALE_DAYS = 365
_LARGEST_FILE = 1 << 18
_SCHEMES = {"s3": "aws", "az": "azure", "gs": "google", "http": "free", "file": "free", "memory": "free"}
_warned: set[tuple[str, str]] = set()


class StalePricesWarning(UserWarning):
    """Prices are more than a year old: what is predicted in dollars may be off."""


def prices_for(scheme: str, *, region: str | None, location: str | None, name: str | None) -> Prices:
    """Return the prices of a store by its scheme, or those with a name.

    Without a location the reader is on the internet. A region that the book does not have is priced as the one that
    the book takes when none is named: `Prices.region` says which.

    >>> prices_for("s3", region=None, location="same-region", name=None).byte_usd
    0.0
    >>> prices_for("file", region=None, location=None, name=None).name
    'free'
    """
    chosen = name or _SCHEMES.get(scheme, "aws")
    known = region if region and region in _regions(split_name(chosen)[0]) else None
    return find_prices(chosen, region=known, location=location)


def find_prices(
    name: str,
    region: str | None = None,
    tier: str | None = None,
    location: str | None = None,
    *,
    today: date | None = None,
) -> Prices:
    """Return the prices of a provider, or with a name like "aws-same-region"; a person's own go first.

    >>> find_prices("azure", region="westeurope", tier="cool").region
    'westeurope'
    """
    if name == "free":
        return Prices.named("free")
    prices = _found(str(home()), name, region, tier, location)
    warn_if_stale(prices, today=today)
    return prices


def warn_if_stale(prices: Prices, *, today: date | None = None) -> None:
    """Warn, once for each book, of prices that are more than a year old."""
    key = (prices.provider, prices.dated)
    if key in _warned:
        return
    days = stale_days(prices.dated, today)
    if days is not None:
        _warned.add(key)
        warnings.warn(
            f"the prices of {prices.provider} are dated {prices.dated}, {days:,} days ago, and may have changed; "
            f"see {prices.source or 'its price list'} and give newer ones in {home() / 'prices'}",
            StalePricesWarning,
            stacklevel=2,
        )


def stale_days(dated: str, today: date | None = None) -> int | None:
    """How many days ago a book was dated, if that is too long; else None.

    >>> stale_days("2020-01", date(2026, 11, 16)), stale_days("2026-11", date(2026, 11, 16))
    (2511, None)
    """
    days = ((today or datetime.now(UTC).date()) - day_of(dated)).days
    return days if days > _STALE_DAYS else None


@dataclass(frozen=True, slots=True, eq=False)
class KeptBook:
    """A book, and the person's file that it is from or that lies over it."""

    book: PriceBook
    own: Path | None = None


def all_books() -> Mapping[str, KeptBook]:
    """Return the books by provider: the bundled ones, then a person's own."""
    return _books(str(home()))


@lru_cache(maxsize=16)
def _books(folder: str) -> Mapping[str, KeptBook]:
    books = {provider: KeptBook(bundled_book(provider)) for provider in PROVIDERS}
    for path in _own_files(Path(folder) / "prices"):
        kept = KeptBook(_own_book(path), path)
        provider = kept.book.provider
        if provider in books and (other := books[provider].own) is not None:
            raise InvalidInputError(f"price books {other} and {path} are both of {provider!r}; keep one of them")
        books[provider] = kept
    return books


@lru_cache(maxsize=256)
def _found(folder: str, name: str, region: str | None, tier: str | None, location: str | None) -> Prices:
    books = _books(folder)
    provider, named_location = split_name(name)
    if provider not in books:
        raise InvalidInputError(
            f"no prices named {name!r}; there are free, {', '.join(books)}, and each with "
            f"{', '.join(f'-{each}' for each in LOCATIONS)} after it"
        )
    if named_location and location and named_location != location:
        raise InvalidInputError(f"prices {name!r} are for a reader in another place than location={location!r}")
    where = named_location or location or "internet"
    return Prices.from_book(books[provider].book, region=region, tier=tier, location=where)


def _regions(provider: str) -> Mapping[str, object]:
    kept = all_books().get(provider) if provider != "free" else None
    return {} if kept is None else kept.book.regions


def _own_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(".toml"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InvalidInputError(f"the folder of prices {folder} cannot be read: {error.strerror}") from None


def _own_book(path: Path) -> PriceBook:
    """Read one file: over the bundled book of its provider, if there is one."""
    values = read_toml(_text_of(path), str(path))
    provider = values.get("provider")
    if provider in PROVIDERS and isinstance(provider, str):
        base = read_toml(bundled_text(provider), provider)
        # Whoever prices anew says of when.
        base.pop("dated")
        values = laid_over(base, values, str(path))
    return parse_book(values, str(path))


def _text_of(path: Path) -> str:
    # Of what is not a plain file, some never ends, and some never begins.
    if not path.is_file():
        raise InvalidInputError(f"price book {path} is not a file; remove it")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise InvalidInputError(f"price book {path} is larger than {_LARGEST_FILE:,} bytes; it is no price book")
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(f"price book {path} is not UTF-8 text; mend or remove it") from None
    except OSError as error:
        raise InvalidInputError(f"price book {path} cannot be read: {error.strerror}; mend or remove it") from None
