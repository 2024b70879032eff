"""The time that a read may take: its deadline, and the seconds of its budgets."""

import time

from hyperslab.errors import BudgetError, DeadlineError, HyperslabError, StoreError

__all__ = ["Clock"]


class Clock:
    """Runs from the moment it is made; looked at between two steps of a read, from any thread.

    >>> Clock(None).left_s() is None
    True
    """

    def __init__(self, deadline_s: float | None, budget_s: float | None = None) -> None:
        self.deadline_s, self.budget_s = deadline_s, budget_s
        self.end: float | None = None
        if deadline_s is not None or budget_s is not None:
            self.end = time.monotonic() + min(s for s in (deadline_s, budget_s) if s is not None)
        self._stopped = False

    def stop(self) -> None:
        """Let the next look at the clock end the read: nobody waits for it any more."""
        self._stopped = True

    def check(self) -> None:
        """Raise if the time is over."""
        if self._stopped:
            raise StoreError("the read was cancelled")
        if self.end is not None and time.monotonic() > self.end:
            raise self.over()

    def left_s(self) -> float | None:
        """Return the seconds that are left, None if there is no limit."""
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def over(self) -> HyperslabError:
        """Return the error for a read whose time is over."""
        if self.budget_s is not None and (self.deadline_s is None or self.budget_s < self.deadline_s):
            return BudgetError(
                f"the read was stopped at its budget (seconds: {self.budget_s:g}); loosen it or read less"
            )
        return DeadlineError(f"the read did not finish within its deadline of {self.deadline_s:g} s; allow more time")
