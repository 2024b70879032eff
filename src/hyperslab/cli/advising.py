"""`hyperslab advise`: which layout would serve recorded reads best; and the change to it."""

import json
import os
import sys
from typing import Any

import click

import hyperslab as hs
from hyperslab.cli.opening import opened_array
from hyperslab.cli.reading import waiting
from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count
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
    if plot is not None:
        _check_picture(plot)
    workload = hs.Workload.load(*logs)
    if workload.skipped_bytes:
        what = f"{say_count(workload.skipped_frames, 'damaged frame')}, {say_bytes(workload.skipped_bytes)}"
        click.echo(f"skipped in the logs: {what}", err=True)
    with opened_array(url, options, profile=profile, prices=prices, location=location) as array:
        with waiting("searching"):
            advice = hs.advise(array, workload, layout=layout, phi=phi, copies=copies)
        if plot is not None:
            advice.plot()[0].figure.savefig(plot, dpi=_DOTS_PER_INCH)
        click.echo(json.dumps(advice.to_dict(), indent=2, allow_nan=False) if as_json else str(advice))
        if apply and not advice.keep:
            changed = advice.apply(progress=True if sys.stderr.isatty() else None)
            click.echo(f"{printable(changed.url)} has chunks {changed.chunks} now; `hyperslab sweep` removes the old "
                       "ones, once nobody reads them any more", err=True)  # fmt: skip


def _check_picture(path: str) -> None:
    """Refuse a file that nothing can be drawn to before it is searched for long."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise InvalidInputError("a picture needs matplotlib: pip install 'hyperslab[plot]'") from None
    kinds = FigureCanvasBase.get_supported_filetypes()
    if os.path.splitext(path)[1].lstrip(".").lower() not in kinds:
        raise InvalidInputError(f"a picture's file ends in one of {', '.join(sorted(kinds))}, not {path!r}")
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise InvalidInputError(f"{path!r} cannot be drawn to; choose a file in a folder that can be written")
