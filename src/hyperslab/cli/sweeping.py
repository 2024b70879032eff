"""`hyperslab sweep`."""

from typing import Any

import click

import hyperslab as hs
from hyperslab.execute import Session
from hyperslab.plan.render import printable

__all__ = ["sweep_at"]


def sweep_at(url: str, options: dict[str, Any]) -> None:
    """Delete what changes of layout have left, and say how much that was."""
    with Session() as session:
        count = hs.sweep(url, storage_options=options or None, session=session)
    said = "nothing to sweep" if not count else f"{count:,} old object{'s' * (count != 1)} deleted"
    click.echo(f"{printable(url)}: {said}", err=True)
