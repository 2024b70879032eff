"""Carries plans out: sessions, the scheduler, retries, caches, budgets, ledgers."""

from hyperslab.execute.ledger import Ledger, Metrics, ReadRecord, Sink
from hyperslab.execute.metadata import StoreReader
from hyperslab.execute.read import Options, ReadTask, aread, plan_reads, read
from hyperslab.execute.result import Result
from hyperslab.execute.run import Snapshot
from hyperslab.execute.session import Session, check_kind, default_session

__all__ = [
    "Ledger",
    "Metrics",
    "Options",
    "ReadRecord",
    "ReadTask",
    "Result",
    "Session",
    "Sink",
    "Snapshot",
    "StoreReader",
    "aread",
    "check_kind",
    "default_session",
    "plan_reads",
    "read",
]
