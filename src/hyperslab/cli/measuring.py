"""`hyperslab measure`: how a store behaves, measured, kept for later reads, shown and drawn."""

import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

import click

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.execute.profiles import all_profiles, find_known
from hyperslab.measure import measure
from hyperslab.measure.picture import blank_figure, fill
from hyperslab.measure.result import Measurement, known_report
from hyperslab.plan.render import shown_text
from hyperslab.store import locate

__all__ = ["measure_store", "show_profiles"]

_DOTS_PER_INCH = 150


def measure_store(
    url: str,
    options: dict[str, Any],
    *,
    seconds: float,
    megabytes: float,
    object: str | None,
    function: str | None,
    plot: str | None,
    as_json: bool,
    save: bool,
) -> None:
    """Measure the store of a URL, with a bar on stderr if that is a terminal, and print what was found."""
    if plot is not None:
        _check_kind(plot)
    found = measure(
        url, storage_options=options or None, function=function, seconds=seconds, megabytes=megabytes,
        object=object, save=save, progress=True if sys.stderr.isatty() else None,
    )  # fmt: skip
    click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False) if as_json else str(found))
    if plot is not None:
        _draw(found, plot)


def show_profiles(url: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    """Print what was measured of the store of a URL; without one, of all stores."""
    if url is None:
        known = all_profiles()
    else:
        address = locate(url, options or None)[0].address
        one = find_known(address)
        if one is None:
            raise NotFoundError(f"{address} was not measured yet; `hyperslab measure {url}` does that")
        known = [one]
    if as_json:
        told = [
            {"address": each.address, "profile": each.profile.to_dict(), "drift": each.learner.drift()}
            for each in known
        ]
        click.echo(json.dumps(told, indent=2, allow_nan=False))
        return
    now = datetime.now(UTC)
    click.echo("\n\n".join([shown_text(known_report(each, now)) for each in known]) or "no store was measured yet")


def _check_kind(path: str) -> str:
    """Return the kind of picture that a file's name asks for; refuse what cannot be drawn there, before measuring."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise InvalidInputError("drawing needs Matplotlib; install it with: pip install 'hyperslab[plot]'") from None
    kinds = FigureCanvasBase.get_supported_filetypes()
    kind = os.path.splitext(path)[1].lstrip(".").lower()
    if kind not in kinds:
        raise InvalidInputError(f"a picture's file ends in one of {', '.join(sorted(kinds))}, not {path!r}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InvalidInputError(f"there is no folder {folder!r} for the picture; make it, or choose another")
    return kind


def _draw(found: Measurement, path: str) -> None:
    figure = blank_figure(found)
    fill(found, figure)
    figure.savefig(path, format=_check_kind(path), dpi=_DOTS_PER_INCH)
