"""Budgets: what a read, or a session, may cost at most."""

from dataclasses import dataclass, fields

from hyperslab.errors import InvalidInputError
from hyperslab.plan.cost import Estimate

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on requests, bytes, dollars and seconds; None is no limit.

    On a session it holds for all its reads together (seconds: for each), on a read for that read.
    A read that is predicted to go over is refused before its first request.

    >>> import hyperslab as hs
    >>> hs.Budget(requests=100, usd=0.01)
    Budget(requests=100, bytes=None, usd=0.01, seconds=None)
    """

    requests: int | None = None
    bytes: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not (isinstance(limit, (int, float)) and limit >= 0):
                raise InvalidInputError(f"a budget's {field.name} must be 0 or more, not {limit!r}")

    def exceeded(self, estimate: Estimate) -> str | None:
        """Say which limit the estimate goes over, or None.

        >>> Budget(requests=10).exceeded(Estimate(requests=12))
        'requests: 12 of at most 10'
        """
        used = (
            ("requests", estimate.all_requests, self.requests),
            ("bytes", estimate.all_bytes, self.bytes),
            ("usd", estimate.usd, self.usd),
            ("seconds", estimate.seconds, self.seconds),
        )
        for name, amount, limit in used:
            if limit is not None and amount > limit:
                shown = f"{amount:.6g}" if isinstance(amount, float) else f"{amount:,}"
                return f"{name}: {shown} of at most {limit:,}"
        return None
