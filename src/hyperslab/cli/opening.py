"""Options that say how a store is reached, and opening what a URL names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any

import click

import hyperslab as hs
from hyperslab.cli.failures import State, listed
from hyperslab.errors import InvalidInputError

__all__ = ["opened", "opened_array", "with_store"]

# These may be shown; whatever else is given may be a secret.
_HARMLESS = {
    "endpoint", "endpoint_url", "region", "region_name", "anonymous", "anon", "profile", "requester_pays", "targets",
}  # fmt: skip


def with_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of stores; it gets them as one argument `options`."""

    def collected(state: State, *, pairs: tuple[str, ...], anonymous: bool, endpoint: str | None, **rest: Any) -> Any:
        options: dict[str, Any] = dict(_pair(pair, state) for pair in pairs)
        if anonymous:
            options["anonymous"] = True
        if endpoint is not None:
            options["endpoint"] = endpoint
        return function(options=options, **rest)

    decorated: Callable[..., Any] = click.pass_obj(collected)
    update_wrapper(decorated, function)
    for option in (
        click.option("--endpoint", metavar="URL", help="An S3 server of your own."),
        click.option("--anonymous", is_flag=True, help="Ask without credentials."),
        click.option(
            "-S", "--storage-option", "pairs", multiple=True, metavar="KEY=VALUE", help="For the store; repeatable."
        ),
    ):
        decorated = option(decorated)
    return decorated


def _pair(text: str, state: State) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        # Not repeated in the message: it may be the secret itself.
        raise click.BadParameter("is written KEY=VALUE", param_hint="-S")
    if name.strip().lower().removeprefix("aws_") not in _HARMLESS:
        state.secrets.append(value)
    return name.strip(), value


@contextmanager
def opened(url: str, options: dict[str, Any], **settings: Any) -> Iterator[hs.Array | hs.Group]:
    """Open what is at a URL in a session of its own, which is closed at the end."""
    with hs.Session(**settings) as session:
        yield hs.open(url, storage_options=options or None, session=session)


@contextmanager
def opened_array(url: str, options: dict[str, Any], **settings: Any) -> Iterator[hs.Array]:
    """The same for an array; a group is refused with the names of its members."""
    with opened(url, options, **settings) as found:
        if not isinstance(found, hs.Array):
            names = list(found)
            inside = f"it holds {listed(names)}" if names else "it is empty"
            raise InvalidInputError(f"{url} is a group, not an array: {inside}; add a name to the URL")
        yield found
