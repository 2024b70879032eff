"""How the command ends when something goes wrong: one clear line, an exit code, no secrets."""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from hyperslab.errors import HyperslabError, InternalError
from hyperslab.plan.render import printable

__all__ = ["State", "ending_well", "warning_in_one_line"]

INTERRUPTED = 130
BROKEN_PIPE = 141
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "HYPERSLAB_FUNCTION_KEY")
_SHORTEST_SECRET = 4


@dataclass(slots=True)
class State:
    """What all commands of one run share: whether traces are shown, and what is never shown."""

    debug: bool = False
    secrets: list[str] = field(default_factory=list)

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        known = [*self.secrets, *(os.environ.get(name, "") for name in _SECRET_VARIABLES)]
        # Of a key 'name:secret' the secret alone as well.
        known += [text.partition(":")[2] for text in known]
        for secret in sorted(known, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return text


class Failure(click.ClickException):
    """An error as the person at the terminal sees it."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"hyperslab: {self.message}", err=True)


def warning_in_one_line(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning as an error is shown; in which line of our code it arose helps nobody at a terminal."""
    click.echo(f"hyperslab: warning: {printable(' '.join(str(message).split()))}", err=True)


@contextmanager
def ending_well(state: State) -> Iterator[None]:
    """Turn what is raised inside into one line and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except (click.exceptions.Exit, click.ClickException, click.Abort):
        raise
    except BrokenPipeError:
        _close_stdout()
        raise click.exceptions.Exit(BROKEN_PIPE) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001 - nobody else is there to tell the person
        if state.debug:
            click.echo(state.clean(traceback.format_exc()).rstrip(), err=True)
        raise Failure(state.clean(_line(error))) from None


def _line(error: Exception) -> str:
    text = printable(" ".join(str(error).split()))
    if isinstance(error, MemoryError):
        return "there is not enough memory for that; select fewer cells"
    if isinstance(error, HyperslabError) and not isinstance(error, InternalError):
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {text} (a mistake of ours: please report it with the trace that --debug shows)"


def _close_stdout() -> None:
    """Send what is still buffered nowhere, so that Python's own last flush does not complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def listed(names: Sequence[str], most: int = 5) -> str:
    """Name a few of many.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(map(printable, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
