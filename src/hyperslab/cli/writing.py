"""`hyperslab copy` and `hyperslab seal`."""

import sys
from typing import Any

import click

import hyperslab as hs
from hyperslab.array import wrap
from hyperslab.cli.looking import array_facts, attribute_facts, group_facts
from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import join
from hyperslab.formats.zarr.documents import fetch_document
from hyperslab.formats.zarr.seal import Seal, check_seal, sealed
from hyperslab.formats.zarr.v3 import parse_node
from hyperslab.plan.render import Facts, Report, printable, shown_text
from hyperslab.store import locate

__all__ = ["copy_to", "lengths_of", "options_for", "packing_of", "seal_at", "short"]


def copy_to(source: str, target: str, options: dict[str, Any], *, overwrite: bool, **settings: Any) -> None:
    """Copy an array or group, with a bar on stderr if that is a terminal."""
    chosen: dict[str, Any] = {name: lengths_of(name, settings[name]) for name in ("chunks", "shards")}
    chosen |= packing_of(settings["compressor"], shuffle=settings["shuffle"])
    progress = True if sys.stderr.isatty() else None
    with Session() as session:
        found = hs.open(source, storage_options=options_for(source, options), session=session)
        copied = hs.copy(
            found, target, storage_options=options_for(target, options), session=session,
            overwrite=overwrite, layout=settings["layout"], progress=progress, **chosen,
        )  # fmt: skip
        click.echo(f"{printable(copied.url)}: {short(copied)}", err=True)


def options_for(url: str, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options for a store, if a URL names one that takes any."""
    local = "://" not in url or url.startswith(("file:", "memory:"))
    return None if local or not options else options


def short(found: hs.Array | hs.Group) -> str:
    """Say in a few words what was written."""
    if isinstance(found, hs.Array):
        return f"{found.dtype} {found.shape} chunks {found.chunks}"
    return f"group of {len(found):,}"


def lengths_of(name: str, text: str | None) -> tuple[int, ...] | None:
    """Return the lengths that an option gives."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInputError(f"--{name} is written as lengths with commas, such as 512,512; not {text!r}") from None


def packing_of(compressor: str, *, shuffle: bool) -> dict[str, Any]:
    """Return what options say of compression; what is not asked for is left open."""
    return {"compressor": None if compressor == "none" else compressor, "shuffle": True if shuffle else None}


def seal_at(url: str, options: dict[str, Any], *, yes: bool) -> None:
    """Show what metadata says, ask, and sign it."""
    with Session() as session:
        click.echo(_described(url, options, session))
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidInputError("look at the above, and if it is right call again with --yes")
            click.confirm("Is that right? Sign it", abort=True)
        done = hs.seal(url, storage_options=options or None, session=session)
        click.echo(f"{printable(done.url)} is sealed", err=True)


def _described(url: str, options: dict[str, Any], session: Session) -> str:
    """Return what the document at a URL says, and whether its seal holds."""
    store, path = locate(url, options or None)
    key = join(path, "zarr.json")
    found = fetch_document(StoreWriter(session, store), key, checked=False)
    if found is None:
        raise NotFoundError(f"there is no Zarr v3 array or group at {url!r}; only these are sealed")
    try:
        held = check_seal(found[0], key)
        state = "none: it was written by another program" if held is None else "holds"
    except HyperslabError as error:
        state = str(error).partition(";")[0]
    source = parse_node(sealed(found[0], Seal()), url, path)
    opened = wrap(source, store, session)
    facts = array_facts(opened) if isinstance(opened, hs.Array) else group_facts(opened)
    parts = (Facts((("seal", printable(state)), *facts)), Facts(tuple(attribute_facts(opened))))
    return shown_text(Report(printable(url), tuple(part for part in parts if part.pairs)))
