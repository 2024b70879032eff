"""A bill from what the wire has seen: counts times prices."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bench.lab.function import Billed
from bench.lab.meter import CLIENT, FUNCTION, Counts, Reading

if TYPE_CHECKING:
    from hyperslab.plan import Prices

__all__ = ["Bill", "bill"]


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars, by part. `inside_usd` are the function's own requests and bytes."""

    requests_usd: float
    bytes_usd: float
    inside_usd: float
    calls_usd: float
    compute_usd: float

    @property
    def total_usd(self) -> float:
        return sum(getattr(self, each.name) for each in fields(self))


def bill(used: Reading, prices: "Prices", billed: Billed | None = None, *, memory_mb: int = 1769) -> Bill:
    """Return what a provider would ask for: `used` and `billed` are what happened between two readings.

    Bytes of answers that were cut off have left the store, too. What is written is billed as objects; deleting is free.
    """
    direct, inside, called = used.of("s3"), used.of("s3", FUNCTION), used.of("function", CLIENT)
    function, seconds = prices.function, 0.0 if billed is None else billed.seconds
    return Bill(
        requests_usd=_requests_usd(direct, prices),
        bytes_usd=_left(direct) * prices.byte_usd + _left(called) * prices.reply_byte_usd,
        inside_usd=_requests_usd(inside, prices) + _left(inside) * prices.inside_byte_usd,
        calls_usd=0.0 if function is None else called.post * function.call_usd,
        compute_usd=0.0 if function is None else seconds * memory_mb / 1024 * function.gb_second_usd,
    )


def _requests_usd(counts: Counts, prices: "Prices") -> float:
    return (counts.get + counts.head) * prices.request_usd + (counts.put + counts.post) * prices.put_usd


def _left(counts: Counts) -> int:
    return counts.response_bytes + counts.unfinished_bytes
