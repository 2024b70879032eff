"""Servers that are not installed. Apart from how they start, which the benchmarks use without pytest."""

import os
from typing import NoReturn

import pytest

__all__ = ["not_installed"]


def not_installed(message: str) -> NoReturn:
    """Skip what needs a server that is not there; where CI runs, all of them must be."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
