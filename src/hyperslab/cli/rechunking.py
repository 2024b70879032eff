"""`hyperslab rechunk`."""

import sys
from typing import Any

import click

import hyperslab as hs
from hyperslab.cli.writing import lengths_of, options_for, packing_of, short
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.plan.render import printable

__all__ = ["rechunk_to"]


def rechunk_to(
    source: str, target: str | None, options: dict[str, Any], *, in_place: bool, overwrite: bool, memory: str,
    **settings: Any,
) -> None:  # fmt: skip
    """Write an array anew in another layout, with a bar on stderr if that is a terminal."""
    if in_place == (target is not None):
        raise InvalidInputError("give the TARGET to write to, or --in-place to change the array itself; one of them")
    sizes = {name: lengths_of(name, settings[name]) for name in ("chunks", "shards")}
    packing = packing_of(settings["compressor"], shuffle=settings["shuffle"])
    chosen = {**sizes, **packing, "layout": settings["layout"], "memory_bytes": memory, "overwrite": overwrite}
    progress = True if sys.stderr.isatty() else None
    with Session() as session:
        if target is None:
            made = hs.rechunk(
                source, storage_options=options_for(source, options), session=session, progress=progress, **chosen
            )
        else:
            found = hs.open(source, storage_options=options_for(source, options), session=session)
            made = hs.rechunk(
                found, target, storage_options=options_for(target, options), session=session,
                progress=progress, **chosen,
            )  # fmt: skip
        click.echo(f"{printable(made.url)}: {short(made)}", err=True)
