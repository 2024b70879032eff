"""`hyperslab collection`: many small arrays under names, imported, looked at, read, and packed by how they are read."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import hyperslab as hs
from hyperslab.cli.opening import with_store
from hyperslab.cli.reading import as_text, check_output, save_cells, waiting
from hyperslab.cli.writing import options_for
from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes, say_count
from hyperslab.plan.render import Facts, Report, printable, shown_text
from hyperslab.rechunk import parse_bytes

if TYPE_CHECKING:
    from hyperslab.collections.advice import CollectionAdvice

__all__ = ["collection"]

_MOST_PRINTED = 10_000
_LONGEST_NAME = 80


@click.group()
def collection() -> None:
    """Keep many small arrays under names, packed by how they are read."""


def _with_tier(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a key/value tier."""
    for option in (
        click.option("--tier-bytes", metavar="SIZE", help="What the tier may hold (default: 256MiB)."),
        click.option("--tier", metavar="URL", help="A key/value store beside packs: redis://host:6379/0, lmdb:path."),
    ):
        function = option(function)
    return function


@contextmanager
def _opened(
    url: str, mode: Any, options: dict[str, Any], tier: str | None = None, tier_bytes: str | None = None
) -> Iterator[hs.Collection]:
    room = None if tier_bytes is None else parse_bytes(tier_bytes, "--tier-bytes")
    with hs.Session() as session:
        yield hs.collection(
            url, mode, tier=tier, tier_bytes=room, storage_options=options_for(url, options), session=session
        )


def _bar() -> bool | None:
    """Say whether progress is shown: on stderr, if that is a terminal."""
    return True if sys.stderr.isatty() else None


@collection.command("import")
@click.argument("url")
@click.argument("source")
@click.option("--columns", metavar="NAME,…", help="Attributes to take (default: all).")
@click.option("--no-images", "images", is_flag=True, default=True, flag_value=False, help="Leave images out.")
@click.option("--pack-bytes", metavar="SIZE", default="16MiB", show_default=True, help="What an object holds.")
@with_store
def import_into(
    url: str, source: str, columns: str | None, images: bool, pack_bytes: str, options: dict[str, Any]
) -> None:
    """Store all arrays at SOURCE in the collection at URL, which is made if there is none.

    SOURCE is a directory of .npy files and images, an HDF5 file or a Zarr group. All of it is stored, or nothing.
    """
    with _opened(url, "a", options) as c:
        c.import_from(
            source, columns=None if columns is None else columns.split(","), images=images,
            storage_options=options_for(source, options), pack_bytes=parse_bytes(pack_bytes, "--pack-bytes"),
            progress=_bar(),
        )  # fmt: skip
        click.echo(f"{printable(url)}: {say_count(len(c), 'array')}", err=True)


@collection.command()
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@with_store
def info(url: str, as_json: bool, options: dict[str, Any]) -> None:
    """Say what the collection at URL holds."""
    with _opened(url, "r", options) as c:
        found = {**c.info(), "arrays": len(c)}
        first = [name for name, _ in zip(c, range(3), strict=False)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    columns = ", ".join(f"{printable(name)} ({type_})" for name, type_ in sorted(found["columns"].items()))
    facts = [
        ("arrays", f"{found['arrays']:,}, {say_bytes(found['data_bytes'])} as they were put"),
        ("names", ", ".join(map(_shown, first)) + (", …" if found["arrays"] > len(first) else "")),
        ("attributes", columns or "none"),
        ("index", f"{say_bytes(found['index_bytes'])} in {say_count(found['segments'], 'segment')}"),
        ("changes", f"{found['generation']:,}"),
    ]
    click.echo(shown_text(Report(printable(url), (Facts(tuple(facts)),))))


def _shown(name: str) -> str:
    return repr(printable(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"))


@collection.command()
@click.argument("url")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@click.option("-o", "--output", metavar="FILE", help="Write to a .npy file; several arrays as one with an axis more.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@_with_tier
@with_store
def read(
    url: str, names: tuple[str, ...], output: str | None, force: bool, options: dict[str, Any], **tier: Any
) -> None:
    """Read the arrays NAME… of the collection at URL, by one plan."""
    if output is not None:
        check_output(output, force)
    with _opened(url, "r", options, **tier) as c:
        cells = sum(int(np.prod(entry.shape)) for entry in c.entries(names))
        if output is None and cells > _MOST_PRINTED:
            raise InvalidInputError(
                f"that is {cells:,} cells, at most {_MOST_PRINTED:,} are printed; name fewer or use -o out.npy"
            )
        with waiting(f"reading {say_count(len(names), 'array')}"):
            arrays = c.read_many(names)
    if output is None:
        for name, array in zip(names, arrays, strict=True):
            click.echo((f"{printable(name)}\n" if len(names) > 1 else "") + as_text(array))
        return
    if len({(array.dtype, array.shape) for array in arrays}) > 1:
        raise InvalidInputError("arrays of different dtypes or shapes do not go into one file; write them one by one")
    result = arrays[0] if len(arrays) == 1 else np.stack(arrays)
    save_cells(result, output, force)
    click.echo(f"{output}: {result.dtype} {result.shape}", err=True)


@collection.command()
@click.argument("url")
@click.argument("logs", nargs=-1, required=True, metavar="LOG…")
@click.option("--key-bytes", metavar="SIZE", help="What the plan may keep in the tier (default: all it may hold).")
@click.option("--pack-bytes", metavar="SIZE", help="What a pack may hold (default: what suits best).")
@click.option("--order-by", metavar="NAME,…", help="Attributes that arrays may be packed by.")
@click.option(
    "--by", type=click.Choice(["read", "process"]), default="read", show_default=True, help="What a query is."
)
@click.option("--compare", is_flag=True, help="Also say what other plans cost.")
@click.option("--phi", type=float, metavar="S", help="Seconds that a dollar is worth; 'inf': only dollars count.")
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a file, for 'hyperslab collection apply'.")
@click.option("--apply", is_flag=True, help="Pack the arrays anew as advised.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@_with_tier
@with_store
def advise(
    url: str, logs: tuple[str, ...], output: str | None, apply: bool, as_json: bool, options: dict[str, Any],
    key_bytes: str | None, pack_bytes: str | None, order_by: str | None, tier: str | None, tier_bytes: str | None,
    **choices: Any,
) -> None:  # fmt: skip
    """Say which arrays of the collection at URL should share a pack, or be kept in the tier, for the reads in LOG.

    A LOG is what `hs.record` or HYPERSLAB_RECORD wrote, or `hyperslab workload merge` made of several.
    """
    workload = hs.Workload.load(*logs)
    if workload.skipped_bytes:
        what = f"{say_count(workload.skipped_frames, 'damaged frame')}, {say_bytes(workload.skipped_bytes)}"
        click.echo(f"skipped in the logs: {what}", err=True)
    with _opened(url, "r", options, tier, tier_bytes) as c:
        advice = c.advise(
            workload,
            key_bytes=None if key_bytes is None else parse_bytes(key_bytes, "--key-bytes"),
            pack_bytes=None if pack_bytes is None else parse_bytes(pack_bytes, "--pack-bytes"),
            order_by=None if order_by is None else order_by.split(","),
            progress=_bar(),
            **choices,
        )
        click.echo(json.dumps(advice.to_dict(), indent=2, allow_nan=False) if as_json else str(advice))
        if output is not None:
            advice.save(output)
            click.echo(f"the plan is in {output}", err=True)
        if apply:
            _apply(advice, url)


def _apply(advice: "CollectionAdvice", url: str) -> None:
    if advice.keep:
        click.echo(f"{printable(url)} stays as it is", err=True)
        return
    advice.apply(progress=_bar())
    _say_applied(url)


def _say_applied(url: str) -> None:
    click.echo(
        f"{printable(url)} is packed as planned; old packs stay until they are swept (Collection.sweep)", err=True
    )


@collection.command()
@click.argument("url")
@click.argument("plan")
@_with_tier
@with_store
def apply(url: str, plan: str, options: dict[str, Any], **tier: Any) -> None:
    """Pack the arrays of the collection at URL anew, as the file PLAN says, which 'advise -o' made.

    Calling again after an interruption goes on where it was.
    """
    with _opened(url, "r+", options, **tier) as c:
        c.apply(plan, progress=_bar())
        _say_applied(url)
