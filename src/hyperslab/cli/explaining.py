"""`hyperslab explain`: the plan of a read, printed, as JSON or as a picture."""

import json
import os
from typing import Any

import click

from hyperslab.cli.keys import parse_key
from hyperslab.cli.opening import opened_array
from hyperslab.cli.reading import waiting
from hyperslab.errors import InvalidInputError
from hyperslab.plan.explain import Explanation
from hyperslab.plan.picture import blank_axes
from hyperslab.store.callee import URL_VARIABLE, Function

__all__ = ["show_plan"]

_DOTS_PER_INCH = 150


def show_plan(
    url: str,
    text: str,
    options: dict[str, Any],
    *,
    analyze: bool,
    as_json: bool,
    plot: str | None,
    phi: float | None,
    method: Any,
    profile: str | None,
    prices: str | None,
    location: str | None,
    function: str | None,
) -> None:
    """Print what reading a key would send and cost; with `analyze` read it, too."""
    key = parse_key(text)
    # Its key is in the environment, as on a command line everybody could see it.
    called = None if function is None else Function.from_environment({**os.environ, URL_VARIABLE: function})
    with opened_array(url, options, profile=profile, prices=prices, location=location, function=called) as array:
        explanation = array.explain(key, phi=phi, method=method)
        if plot is not None:
            _draw(explanation, plot)
        told: Any = explanation
        if analyze:
            with waiting("reading"):
                told = explanation.analyze()
        click.echo(json.dumps(told.to_dict(), indent=2, allow_nan=False) if as_json else str(told))


def _draw(explanation: Explanation, path: str) -> None:
    axes = blank_axes(explanation)
    kinds = axes.figure.canvas.get_supported_filetypes()
    kind = os.path.splitext(path)[1].lstrip(".").lower()
    if kind not in kinds:
        raise InvalidInputError(f"a picture's file ends in one of {', '.join(sorted(kinds))}, not {path!r}")
    explanation.plot(axes)
    axes.figure.savefig(path, format=kind, dpi=_DOTS_PER_INCH)
