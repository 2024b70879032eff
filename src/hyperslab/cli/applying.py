"""`hyperslab apply`."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

import hyperslab as hs
from hyperslab.cli.writing import lengths_of, options_for, short
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.plan.render import printable

__all__ = ["apply_to", "function_named"]


def apply_to(
    name: str, urls: tuple[str, ...], options: dict[str, Any], *, boundary: tuple[str, ...], explain: bool,
    overwrite: bool, memory: str | None, layout: str, **sizes: str | None,
) -> None:  # fmt: skip
    """Apply a function of a module to arrays, with a bar on stderr if that is a terminal."""
    function = function_named(name)
    lengths = {key: lengths_of(key, text) for key, text in sizes.items()}
    split, stride = lengths.pop("split"), lengths.pop("stride")
    output = {key: value for key, value in {**lengths, "layout": layout}.items() if value is not None}
    store = next((found for url in urls if (found := options_for(url, options)) is not None), None)
    with Session() as session:
        made = hs.apply(
            function, *urls[:-1], out=urls[-1], boundary=boundary_of(boundary), stride=stride, chunks=split,
            output=output, memory_bytes=memory, overwrite=overwrite, explain=explain,
            progress=True if sys.stderr.isatty() else None, storage_options=store, session=session,
        )  # fmt: skip
        if explain:
            click.echo(str(made))
        else:
            click.echo(f"{printable(made.url)}: {short(made)}", err=True)


def function_named(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; modules of the current directory are found, too."""
    module, colon, inside = name.partition(":")
    if not colon or not module or not inside:
        raise InvalidInputError(f"a function is named module:function, such as mystencils:laplace; not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise InvalidInputError(f"module {module!r} cannot be imported: {error}") from None
    for part in inside.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InvalidInputError(f"module {module!r} has no function {inside!r}")
    function: Callable[..., Any] = found
    return function


def boundary_of(texts: tuple[str, ...]) -> Any:
    """Return what lies beyond the edges: one for all axes, or one for each; numbers are constants.

    >>> boundary_of(("nearest",)), boundary_of(("periodic", "0.5")), boundary_of(())
    ('nearest', ['periodic', 0.5], 'nearest')
    """
    found = [_number(text) for text in texts]
    if not found:
        return "nearest"
    return found[0] if len(found) == 1 else found


def _number(text: str) -> Any:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text
