"""One budget over all workers: each gets a share, and what it used comes back through memory that all see.

Nothing is locked, so that a worker that is killed blocks nobody: each writes into a row of its own.
"""

import math
from dataclasses import fields
from typing import Any

import torch
from torch.utils.data import get_worker_info

from hyperslab.errors import BudgetError
from hyperslab.execute import Ledger, Session
from hyperslab.execute.ledger import Account
from hyperslab.plan import Budget

__all__ = ["Shares", "take_share"]

_LIMITED = ("requests", "bytes", "usd")
_LIMITS, _SPENT = slice(0, 3), slice(3, 6)
_COUNTED = [field.name for field in fields(Ledger)]
_WHOLE = {field.name for field in fields(Ledger) if isinstance(field.default, int)}


def take_share(session: Session, workers: int) -> None:
    """Leave this process its share of the session's budget, where each of as many workers does the same."""
    if session.account is not None:
        session.account = Account(_part(session.account.left(), workers))


class Shares:
    """Shares of a session's budget for worker processes, and the sum of what they did.

    While workers read, their shares are taken from the session's budget; `settle` gives back what they did not use.
    Each row has, for one worker, up to where it may go since its start, how far it is, and its ledger.
    """

    def __init__(self, session: Session, workers: int) -> None:
        self._session: Session | None = session
        self._rows = torch.zeros((workers, 6 + len(_COUNTED)), dtype=torch.float64)
        self._rows.share_memory_()  # type: ignore[no-untyped-call]
        self._rows[:, _LIMITS] = math.inf
        self._counted = self._rows.clone()
        self._taken = (0, 0, 0.0)
        # In a worker: its account, once it has one.
        self._account: Account | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_session": None}

    # In the process that has the budget

    def hand_out(self) -> None:
        """Let every worker use an equal share of what is left."""
        session, workers = self._session, len(self._rows)
        if session is None or session.account is None:
            return
        share = _part(session.account.left(), workers)
        each = [math.inf if limit is None else limit for limit in (share.requests, share.bytes, share.usd)]
        finite = [0 if math.isinf(limit) else limit * workers for limit in each]
        self._taken = int(finite[0]), int(finite[1]), float(finite[2])
        over = session.account.take(*self._taken)
        if over:
            self._taken = (0, 0, 0.0)
            raise BudgetError(f"the session's budget does not hold the shares of {workers} workers ({over})")
        self._rows[:, _LIMITS] = self._rows[:, _SPENT] + torch.tensor(each, dtype=torch.float64)

    def count(self) -> None:
        """Add to the session's metrics what the workers have done since the last time."""
        if self._session is None:
            return
        now, before = self._rows[:, 6:].clone(), self._counted[:, 6:]
        sums = (now - before).sum(0).tolist()
        self._counted[:, 6:] = now
        values = {name: round(sum_) if name in _WHOLE else sum_ for name, sum_ in zip(_COUNTED, sums, strict=True)}
        self._session.metrics.add(Ledger(**values))

    def settle(self) -> None:
        """Take back what the workers did not use; what they still have under way is counted the next time."""
        self.count()
        if self._session is None or self._session.account is None:
            return
        now = self._rows[:, _SPENT].clone()
        self._rows[:, _LIMITS] = now
        requests, nbytes, usd = (now - self._counted[:, _SPENT]).sum(0).tolist()
        self._counted[:, _SPENT] = now
        taken, self._taken = self._taken, (0, 0, 0.0)
        limited = self._session.account.budget
        self._session.account.give_back(
            taken[0] - round(requests) if limited.requests is not None else 0,
            taken[1] - round(nbytes) if limited.bytes is not None else 0,
            taken[2] - usd if limited.usd is not None else 0.0,
        )

    # In a worker

    def enter(self, session: Session) -> None:
        """Hold the session of this worker to its share, as large as that is by now."""
        row = self._row()
        if row is None or session.account is None:
            return
        if self._account is None:
            self._account = session.account = Account(session.account.budget)
        requests, nbytes, usd = row[_LIMITS].tolist()
        self._account.budget = Budget(
            requests=None if math.isinf(requests) else int(requests),
            bytes=None if math.isinf(nbytes) else int(nbytes),
            usd=None if math.isinf(usd) else usd,
            seconds=self._account.budget.seconds,
        )

    def leave(self, session: Session) -> None:
        """Tell what was used so far."""
        row = self._row()
        if row is None:
            return
        if self._account is not None:
            left = self._account.left()
            for column, name in enumerate(_LIMITED):
                limit = getattr(self._account.budget, name)
                if limit is not None:
                    row[3 + column] = limit - getattr(left, name)
        ledger = session.metrics.snapshot()
        row[6:] = torch.tensor([getattr(ledger, name) for name in _COUNTED], dtype=torch.float64)

    def _row(self) -> torch.Tensor | None:
        info = get_worker_info()
        return None if info is None else self._rows[info.id]


def _part(budget: Budget, workers: int) -> Budget:
    """Return an equal share; seconds hold for each read, and so are not divided."""
    return Budget(
        requests=None if budget.requests is None else budget.requests // workers,
        bytes=None if budget.bytes is None else budget.bytes // workers,
        usd=None if budget.usd is None else budget.usd / workers,
        seconds=budget.seconds,
    )
