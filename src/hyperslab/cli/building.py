"""`hyperslab function`: the bundle to upload to a provider, and keys for it."""

from typing import Any

import click

from hyperslab.functions.build import build_bundle
from hyperslab.store.signing import SigningKey

__all__ = ["build_function", "show_new_key"]


def build_function(target: Any, *, output: str | None = None, force: bool = False, **settings: Any) -> None:
    """Make the bundle, and say how large it is and what to do next."""
    folder = output or f"hyperslab-function-{target}"
    bundle = build_bundle(target, folder, force=force, say=_say, **settings)
    size = f"{_mebibytes(bundle.zip_nbytes)} to upload, {_mebibytes(bundle.nbytes)} unpacked"
    if bundle.limit_bytes is not None:
        size += f" (limit {_mebibytes(bundle.limit_bytes)})"
    click.echo(f"{bundle.folder}/function.zip: {size}")
    click.echo(f"  {bundle.modules} modules of Hyperslab, {', '.join(bundle.packages)}")
    click.echo(f"Next: the steps in {bundle.folder}/DEPLOY.md; the permissions that it needs are there as well.")


def show_new_key(name: str) -> None:
    """Print a new signing key: the function and those who call it get the same text."""
    click.echo(SigningKey.new(name).text)


def _say(what: str) -> None:
    click.echo(f"» {what}", err=True)


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes < 10 << 20 else f"{nbytes / 2**20:.0f} MiB"
