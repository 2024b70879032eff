"""`hyperslab read`: cells on the screen, or into a .npy file."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from threading import Timer
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from hyperslab.cli.keys import parse_key
from hyperslab.cli.opening import opened_array
from hyperslab.errors import InvalidInputError
from hyperslab.selection import parse

__all__ = ["as_text", "check_output", "read_cells", "save_cells", "waiting"]

_MOST_PRINTED = 10_000
_PATIENCE_S = 0.8


def read_cells(url: str, text: str, options: dict[str, Any], *, output: str | None, force: bool) -> None:
    """Read what the key selects and print it, or write it to `output`."""
    key = parse_key(text)
    if output is not None:
        check_output(output, force)
    with opened_array(url, options) as array:
        selection = parse(key, array.shape, array.dtype.names)
        cells = prod(selection.result_shape)
        if output is None and cells > _MOST_PRINTED:
            raise InvalidInputError(
                f"that is {cells:,} cells, at most {_MOST_PRINTED:,} are printed; select fewer or use -o out.npy"
            )
        with waiting(f"reading {cells:,} cells"):
            result = np.asarray(array.read(selection))
    if output is None:
        click.echo(as_text(result))
    else:
        save_cells(result, output, force)
        click.echo(f"{output}: {result.dtype} {result.shape}", err=True)


def as_text(result: npt.NDArray[Any]) -> str:
    width = shutil.get_terminal_size((100, 24)).columns
    with np.printoptions(threshold=sys.maxsize, linewidth=width):
        return str(result[()])


def check_output(output: str, force: bool) -> None:
    """Refuse before anything is read what could not be written afterwards."""
    folder = os.path.dirname(os.path.abspath(output))
    if os.path.isdir(output):
        raise InvalidInputError(f"{output} is a directory; name a file")
    if os.path.lexists(output) and not force:
        raise InvalidInputError(f"{output} exists already; --force replaces it")
    if not os.path.isdir(folder):
        raise InvalidInputError(f"there is no directory {folder}")


def save_cells(result: npt.NDArray[Any], output: str, force: bool) -> None:
    """Write all of it or nothing: beside the file first, then under its name."""
    folder, name = os.path.split(os.path.abspath(output))
    handle, draft = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, result, allow_pickle=False)
        os.chmod(draft, 0o666 & ~_umask())
        if force:
            os.replace(draft, output)
        else:
            _move_without_replacing(draft, output)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _move_without_replacing(draft: str, output: str) -> None:
    try:
        # Unlike a rename, a link is refused if the file has come to be meanwhile.
        os.link(draft, output)
    except FileExistsError:
        raise InvalidInputError(f"{output} exists already; --force replaces it") from None
    except OSError:
        # A file system without links.
        os.rename(draft, output)
    else:
        os.unlink(draft)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something goes on, on stderr if that is a terminal, once it has taken a while."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"{text} …")
    timer = Timer(_PATIENCE_S, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
