"""`hyperslab workload`: logs of reads, merged, shown and drawn."""

import json
import os

import click

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count
from hyperslab.workload import Workload

__all__ = ["merge_logs", "show_logs"]

_DOTS_PER_INCH = 150


def merge_logs(paths: tuple[str, ...], output: str, *, force: bool) -> None:
    """Write the reads of several logs, each once, as one Parquet file."""
    if not output.lower().endswith((".parquet", ".pq")):
        raise InvalidInputError(
            f"logs are merged into a Parquet file: its name ends in .parquet, not as {output!r} does"
        )
    if os.path.exists(output) and not force:
        raise InvalidInputError(f"{output!r} is there already; --force replaces it")
    workload = Workload.load(*paths)
    workload.to_parquet(output)
    click.echo(f"{say_count(len(workload), 'read')} of {say_count(len(workload.arrays), 'array')} → {output}")
    if workload.skipped_bytes:
        what = f"{say_count(workload.skipped_frames, 'damaged frame')}, {say_bytes(workload.skipped_bytes)}"
        click.echo(f"skipped in the logs: {what}", err=True)


def show_logs(paths: tuple[str, ...], *, array: str | None, plot: str | None, as_json: bool) -> None:
    """Print what was read and what it cost, array by array; draw the reads of one."""
    workload = Workload.load(*paths)
    chosen = workload if array is None else workload.of(array)
    if plot is not None:
        _draw(chosen, plot)
    summary = chosen.summary()
    click.echo(json.dumps(summary.to_dict(), indent=2, allow_nan=False) if as_json else str(summary))


def _draw(workload: Workload, path: str) -> None:
    if len(workload.arrays) != 1:
        names = ", ".join(workload.arrays) or "none"
        raise InvalidInputError(f"a picture is of one array; choose it with --array: {names}")
    try:
        workload.plot().savefig(path, dpi=_DOTS_PER_INCH)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path!r} cannot be drawn: {error}") from None
