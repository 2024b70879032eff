"""`hyperslab advise`: which layout would serve recorded reads best; and the change to it."""

import json
import os
import sys
from typing import Any

import click

import hyperslab as hs
from hyperslab.advising import Advice
from hyperslab.cli.opening import opened_array
from hyperslab.cli.reading import waiting
from hyperslab.errors import InvalidInputError
from hyperslab.plan.render import printable

__all__ = ["show_advice"]

_DOTS_PER_INCH = 150


def show_advice(
    url: str,
    logs: tuple[str, ...],
    options: dict[str, Any],
    *,
    as_json: bool,
    plot: str | None,
    apply: bool,
    copies: int,
    layout: Any,
    phi: float | None,
    profile: str | None,
    prices: str | None,
    location: str | None,
) -> None:
    """Print advice on the array's layout; with `apply` change it, in place."""
    with opened_array(url, options, profile=profile, prices=prices, location=location) as array:
        with waiting("searching"):
            advice = hs.advise(array, hs.Workload.load(*logs), layout=layout, phi=phi, copies=copies)
        if plot is not None:
            _draw(advice, plot)
        click.echo(json.dumps(advice.to_dict(), indent=2, allow_nan=False) if as_json else str(advice))
        if apply and not advice.keep:
            changed = advice.apply(progress=True if sys.stderr.isatty() else None)
            click.echo(f"{printable(changed.url)} has chunks {changed.chunks} now; `hyperslab sweep` removes the old "
                       "ones, once nobody reads them any more", err=True)  # fmt: skip


def _draw(advice: Advice, path: str) -> None:
    axes = advice.plot()
    figure = axes[0].figure
    kinds, kind = figure.canvas.get_supported_filetypes(), os.path.splitext(path)[1].lstrip(".").lower()
    if kind not in kinds:
        raise InvalidInputError(f"a picture's file ends in one of {', '.join(sorted(kinds))}, not {path!r}")
    figure.savefig(path, format=kind, dpi=_DOTS_PER_INCH)
