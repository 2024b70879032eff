"""Prices: what a store bills, as values with a date. The figures stand in price books."""

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from math import isfinite

from hyperslab.errors import InvalidInputError
from hyperslab.plan.price_book import LOCATIONS, PROVIDERS, FunctionPrices, PriceBook, bundled_book

__all__ = ["LOCATIONS", "FunctionPrices", "Prices", "split_name"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per request and per byte that leaves the store; `put_usd` per object written.

    What is sent to a store and what is deleted there costs nothing with any of them. A byte's price depends on where
    the reader is (`location`) and holds what its tier takes to get it out, `retrieval_byte_usd`. With a function
    beside the data, a byte that the function reads costs `inside_byte_usd`, one that it sends `reply_byte_usd`; its
    own requests cost `request_usd` each; `function` has the rest, None if the provider has none.

    >>> round(1000 * Prices.named("aws").request_usd, 6)
    0.0004
    """

    name: str
    dated: str
    request_usd: float
    byte_usd: float
    put_usd: float = 0.0
    _: KW_ONLY
    retrieval_byte_usd: float = 0.0
    inside_byte_usd: float = 0.0
    provider: str = ""
    region: str = ""
    tier: str = ""
    location: str = ""
    source: str = ""
    function: FunctionPrices | None = None

    def __post_init__(self) -> None:
        rates = (self.request_usd, self.byte_usd, self.put_usd, self.retrieval_byte_usd, self.inside_byte_usd)
        if not all(isfinite(rate) and rate >= 0 for rate in rates):
            raise InvalidInputError("prices must be finite and not negative")
        if self.retrieval_byte_usd > self.byte_usd:
            raise InvalidInputError("the price of a byte holds that of its retrieval, so it must not be less")

    @property
    def reply_byte_usd(self) -> float:
        """Dollars per byte of a function's answer: it leaves, but was got out of its tier before."""
        return self.byte_usd - self.retrieval_byte_usd

    @staticmethod
    def named(name: str) -> "Prices":
        """Return a built-in price list: "free", or a provider with where the reader is, as "aws-same-region".

        A provider alone is read from the internet.
        """
        if name == "free":
            return Prices("free", bundled_book(PROVIDERS[0]).dated, 0.0, 0.0)
        provider, location = split_name(name)
        if provider not in PROVIDERS:
            known = sorted(["free", *PROVIDERS, *[f"{each}-{where}" for each in PROVIDERS for where in LOCATIONS[:2]]])
            raise InvalidInputError(f"no prices named {name!r}; built in are {', '.join(known)}")
        return Prices.of(provider, location=location or "internet")

    @staticmethod
    def of(
        provider: str, *, region: str | None = None, tier: str | None = None, location: str = "internet"
    ) -> "Prices":
        """Return what a provider's built-in book says for a region, a tier, and where the reader is.

        >>> cold = Prices.of("google", region="europe-west1", tier="nearline", location="same-region")
        >>> round(cold.byte_usd * 1e9, 6), cold.name
        (0.01, 'google-same-region, europe-west1, nearline')
        """
        return _bundled(provider, region, tier, location)

    @staticmethod
    def from_book(
        book: PriceBook, *, region: str | None = None, tier: str | None = None, location: str = "internet"
    ) -> "Prices":
        """Return what a book says for a region, a tier (default: those that it names), and where the reader is."""
        found, costs = book.look_up(region, tier)
        leaves = found.egress.to(location)
        words = [book.provider if location == "internet" else f"{book.provider}-{location}"]
        words += [chosen for chosen, usual in ((region, book.region), (tier, book.tier)) if chosen not in (None, usual)]
        return Prices(
            ", ".join(filter(None, words)),
            book.dated,
            costs.read_usd,
            leaves + costs.retrieval_usd,
            costs.put_usd,
            retrieval_byte_usd=costs.retrieval_usd,
            inside_byte_usd=found.egress.same_region_usd + costs.retrieval_usd,
            provider=book.provider,
            region=region or book.region,
            tier=tier or book.tier,
            location=location,
            source=book.source,
            function=found.function,
        )


def split_name(name: str) -> tuple[str, str | None]:
    """Split a name into provider and location.

    >>> split_name("aws-same-region"), split_name("aws")
    (('aws', 'same-region'), ('aws', None))
    """
    for location in LOCATIONS:
        if name.endswith(f"-{location}"):
            return name.removesuffix(f"-{location}"), location
    return name, None


@lru_cache(maxsize=64)
def _bundled(provider: str, region: str | None, tier: str | None, location: str) -> Prices:
    return Prices.from_book(bundled_book(provider), region=region, tier=tier, location=location)
