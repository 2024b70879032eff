"""Prices: what a store bills, as values with a date."""

from dataclasses import dataclass
from functools import lru_cache

from hyperslab.errors import InvalidInputError

__all__ = ["Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per request and per byte that leaves the store; `put_usd` per object written.

    What is sent to a store and what is deleted there costs nothing with any of them.

    >>> round(1000 * Prices.named("aws").request_usd, 6)
    0.0004
    """

    name: str
    dated: str
    request_usd: float
    byte_usd: float
    put_usd: float = 0.0

    def __post_init__(self) -> None:
        if not (self.request_usd >= 0 and self.byte_usd >= 0 and self.put_usd >= 0):
            raise InvalidInputError("prices must not be negative")

    @staticmethod
    def named(name: str) -> "Prices":
        """Return a built-in price list (US list prices)."""
        try:
            return _built_in()[name]
        except KeyError:
            known = ", ".join(sorted(_built_in()))
            raise InvalidInputError(f"no prices named {name!r}; built in are {known}") from None


@lru_cache(maxsize=1)
def _built_in() -> dict[str, Prices]:
    lists = (
        Prices("free", "2026-11", 0.0, 0.0),
        Prices("aws", "2026-11", 0.0004 / 1000, 0.09 / 1e9, 0.005 / 1000),
        Prices("aws-same-region", "2026-11", 0.0004 / 1000, 0.0, 0.005 / 1000),
        # Hot tier, locally redundant; standard storage of one region. Bytes to the internet, first step of the list.
        Prices("azure", "2026-11", 0.0044 / 10_000, 0.087 / 1e9, 0.055 / 10_000),
        Prices("google", "2026-11", 0.0004 / 1000, 0.12 / 1e9, 0.005 / 1000),
    )
    return {prices.name: prices for prices in lists}
