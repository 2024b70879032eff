"""The command line itself: which commands there are and what they take."""

import warnings
from typing import Any

import click

from hyperslab import __version__
from hyperslab.cli.collection import collection
from hyperslab.cli.failures import State, ending_well, warning_in_one_line
from hyperslab.cli.opening import with_store

__all__ = ["command", "main"]

_HELP = """Look at stored arrays, see what a read would send and cost, and read.

A URL is a path, file:// or s3://bucket/path; it may go on inside (store.zarr/group/array). A KEY is what stands between
NumPy's brackets, quoted for the shell:

\b
  hyperslab explain s3://bucket/wind.zarr '0, 100:200, ::2'
  hyperslab read wind.zarr '..., [1, 5, 9]' -o some.npy
"""
_COMPRESSOR = "zstd, lz4, gzip or blosc, with a level as in zstd:3; none: only checksums."
_SHUFFLE = "Compress the first bytes of all cells together, then the second ones, …"
_LOCATIONS = ["same-region", "other-region", "internet"]
# A key may begin with a minus.
_KEYS = {"ignore_unknown_options": True}


class _Command(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        with ending_well(ctx.ensure_object(State)):
            return super().invoke(ctx)


def main() -> None:
    """Run the command and exit: 0 well, 1 an error, 2 a wrong usage, 130 interrupted."""
    warnings.showwarning = warning_in_one_line
    command(prog_name="hyperslab")


@click.group(
    cls=_Command, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "--version", message="hyperslab %(version)s")
@click.option("--debug", is_flag=True, help="Show the trace of an error.")
@click.pass_obj
def command(state: State, debug: bool) -> None:
    """Take what goes before the name of a command."""
    state.debug = debug


command.add_command(collection)


@command.command()
@click.argument("url")
@with_store
def info(url: str, options: dict[str, Any]) -> None:
    """Say what is stored at URL."""
    from hyperslab.cli.looking import show_info

    show_info(url, options)


@command.command()
@click.argument("url")
@click.option("-l", "long", is_flag=True, help="With types, shapes and sizes.")
@click.option("--depth", type=click.IntRange(1), default=1, show_default=True, help="How many levels to go down.")
@with_store
def ls(url: str, long: bool, depth: int, options: dict[str, Any]) -> None:
    """List what the group at URL holds."""
    from hyperslab.cli.looking import show_members

    show_members(url, options, long=long, depth=depth)


@command.command(context_settings=_KEYS)
@click.argument("url")
@click.argument("key")
@click.option("-o", "--output", metavar="FILE", help="Write the cells to a .npy file instead of printing them.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@with_store
def read(url: str, key: str, output: str | None, force: bool, options: dict[str, Any]) -> None:
    """Read the cells KEY of the array at URL."""
    from hyperslab.cli.reading import read_cells

    read_cells(url, key, options, output=output, force=force)


@command.command(context_settings=_KEYS)
@click.argument("url")
@click.argument("key")
@click.option("--analyze", is_flag=True, help="Read once, and show what was measured beside what was predicted.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--plot", metavar="FILE", help="Draw the chunks into a file (.png, .svg, .pdf).")
@click.option("--phi", type=float, metavar="S", help="Seconds that a dollar is worth; 'inf': only dollars count.")
@click.option(
    "--method", type=click.Choice(["get", "merge", "fetch", "paper", "call"]), help="Instead of the optimiser."
)
@click.option("--profile", metavar="NAME", help="How the store behaves, e.g. 's3-internet' (default: as measured).")
@click.option("--prices", metavar="NAME", help="What it bills, e.g. 'aws-same-region' (default: by its kind).")
@click.option("--location", type=click.Choice(_LOCATIONS), help="Where you read from (default: the internet).")
@click.option("--function", metavar="URL", help="A function plans may call; its key is in HYPERSLAB_FUNCTION_KEY.")
@with_store
def explain(url: str, key: str, options: dict[str, Any], **choices: Any) -> None:
    """Show what reading KEY would send and cost, without reading it."""
    from hyperslab.cli.explaining import show_plan

    show_plan(url, key, options, **choices)


@command.command()
@click.argument("url")
@click.argument("logs", nargs=-1, required=True, metavar="LOG…")
@click.option("--apply", is_flag=True, help="Change the array's layout, in place, as advised.")
@click.option("--plot", metavar="FILE", help="Draw the reads over both layouts into a file (.png, .svg, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--layout", type=click.Choice(["default", "plain"]), help="Kind of chunks (default: as they are).")
@click.option("--copies", type=click.IntRange(1, 8), default=1, help="Layouts that may be advised side by side.")
@click.option("--phi", type=float, metavar="S", help="Seconds that a dollar is worth; 'inf': only dollars count.")
@click.option("--profile", metavar="NAME", help="How the store behaves, e.g. 's3-internet' (default: as measured).")
@click.option("--prices", metavar="NAME", help="What it bills, e.g. 'aws-same-region' (default: by its kind).")
@click.option("--location", type=click.Choice(_LOCATIONS), help="Where you read from (default: the internet).")
@with_store
def advise(url: str, logs: tuple[str, ...], options: dict[str, Any], **choices: Any) -> None:
    """Say which layout of the array at URL would serve the reads recorded in LOG best.

    A LOG is what `hs.record` or HYPERSLAB_RECORD wrote, or `hyperslab workload merge` made of several.
    """
    from hyperslab.cli.advising import show_advice

    show_advice(url, logs, options, **choices)


@command.command()
@click.argument("source")
@click.argument("target")
@click.option("--chunks", metavar="N,N,…", help="Cells of a chunk (default: about 32 KiB).")
@click.option("--shards", metavar="N,N,…", help="Cells of an object (default: about 16 MiB).")
@click.option("--layout", type=click.Choice(["default", "plain"]), default="default", show_default=True)
@click.option("--compressor", metavar="NAME", default="zstd", show_default=True, help=_COMPRESSOR)
@click.option("--shuffle", is_flag=True, help=_SHUFFLE)
@click.option("--overwrite", is_flag=True, help="Replace what is stored at TARGET.")
@with_store
def copy(source: str, target: str, options: dict[str, Any], **settings: Any) -> None:
    """Copy the array or group at SOURCE to a new Zarr store at TARGET.

    A copy that was interrupted goes on where it was.
    """
    from hyperslab.cli.writing import copy_to

    copy_to(source, target, options, **settings)


@command.command()
@click.argument("source")
@click.argument("target", required=False)
@click.option("--in-place", is_flag=True, help="Change the array itself; its old chunks stay until 'hyperslab sweep'.")
@click.option("--chunks", metavar="N,N,…", help="Cells of a chunk (default: about 32 KiB).")
@click.option("--shards", metavar="N,N,…", help="Cells of an object (default: about 16 MiB).")
@click.option("--layout", type=click.Choice(["default", "plain"]), default="default", show_default=True)
@click.option("--compressor", metavar="NAME", default="same", show_default=True, help=f"{_COMPRESSOR} same: as it is.")
@click.option("--shuffle", is_flag=True, help=_SHUFFLE)
@click.option("--memory", metavar="SIZE", default="512MB", show_default=True, help="What the process may hold.")
@click.option("--overwrite", is_flag=True, help="Replace what is stored at TARGET.")
@with_store
def rechunk(source: str, target: str | None, options: dict[str, Any], **settings: Any) -> None:
    """Write the array at SOURCE anew at TARGET in another layout, within the memory given.

    Calling again after an interruption goes on where it was.
    """
    from hyperslab.cli.rechunking import rechunk_to

    rechunk_to(source, target, options, **settings)


@command.command("apply")
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("urls", nargs=-1, required=True, metavar="IN… OUT")
@click.option("--boundary", multiple=True, metavar="KIND", help="Beyond the edges; repeat it for each axis.")
@click.option("--stride", metavar="N,N,…", help="One call for each so many cells.")
@click.option("--split", metavar="N,N,…", help="Output cells made at a time (default: what reads fastest).")
@click.option("--chunks", metavar="N,N,…", help="Cells of a chunk of OUT (default: about 32 KiB).")
@click.option("--shards", metavar="N,N,…", help="Cells of an object of OUT (default: about 16 MiB).")
@click.option("--layout", type=click.Choice(["default", "plain"]), default="default", show_default=True)
@click.option("--memory", metavar="SIZE", help="What the process may hold (default: 512MB).")
@click.option("--overwrite", is_flag=True, help="Replace what is stored at OUT.")
@click.option("--explain", is_flag=True, help="Show how it would be done, and do nothing.")
@with_store
def apply_function(function: str, urls: tuple[str, ...], options: dict[str, Any], **settings: Any) -> None:
    """Call a function for every cell of IN and its neighbours, and write what it returns to OUT.

    The function is plain Python, such as lambda s: s(0, 1) - s(0, -1). Calling again after an interruption goes on
    where it was.
    """
    from hyperslab.cli.applying import apply_to

    apply_to(function, urls, options, **settings)


@command.command()
@click.argument("url")
@with_store
def sweep(url: str, options: dict[str, Any]) -> None:
    """Delete the old chunks that changes of layout in place have left at URL.

    A change that was not finished is given up. Programs that opened the array before its last change must have ended.
    """
    from hyperslab.cli.sweeping import sweep_at

    sweep_at(url, options)


@command.command()
@click.argument("url")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_store
def seal(url: str, yes: bool, options: dict[str, Any]) -> None:
    """Show the metadata at URL and sign it as it is.

    Of an array, what was never written is written as fill values, so that lost objects are noticed from then on.
    """
    from hyperslab.cli.writing import seal_at

    seal_at(url, options, yes=yes)


@command.command()
@click.argument("url", required=False)
@click.option("--show", is_flag=True, help="Show what was measured before, of URL or of all stores.")
@click.option("--plot", metavar="FILE", help="Draw the curves into a file (.png, .svg, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="The longest that it may take.")
@click.option("--megabytes", type=float, default=300.0, show_default=True, help="The most that is sent and received.")
@click.option("--object", metavar="KEY", help="Read parts of this object; nothing is uploaded.")
@click.option("--function", metavar="URL", help="Measure this function as well; its key is in HYPERSLAB_FUNCTION_KEY.")
@click.option("--no-save", "save", is_flag=True, default=True, flag_value=False, help="Do not keep the profile.")
@with_store
def measure(url: str | None, show: bool, options: dict[str, Any], **choices: Any) -> None:
    """Measure how the store at URL behaves, so that plans fit it."""
    from hyperslab.cli.measuring import measure_store, show_profiles

    if show:
        show_profiles(url, options, as_json=choices["as_json"])
    elif url is None:
        raise click.UsageError("give the URL of what is to be measured, or --show")
    else:
        measure_store(url, options, **choices)


@command.command()
@click.option("--provider", help="Of one provider: aws, azure, google, or one of your own.")
@click.option("--region", help="Of one region.")
@click.option("--location", type=click.Choice(_LOCATIONS), help="For a reader in one place.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def prices(**choices: Any) -> None:
    """Show the price books that dollars are counted by."""
    from hyperslab.cli.pricing import show_prices

    show_prices(**choices)


@command.command("serve-function")
@click.option("--root", "roots", multiple=True, metavar="URL", help="A bucket or prefix that may be read; repeatable.")
@click.option("--key-file", metavar="FILE", help="Signing keys, one 'name:secret' a line.")
@click.option("--auth", type=click.Choice(["keys", "provider"]), help="Who checks callers (default: keys).")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 (default): any that is free.")
@click.option("--memory-mb", type=int, help="All that the process may take.")
@click.option("--timeout-s", type=float, help="The longest that a call may take.")
@click.option("--verbose", is_flag=True, help="Log every call.")
@with_store
def serve_function(**choices: Any) -> None:
    """Run the function beside the data on this machine; prints its URL."""
    from hyperslab.cli.serving import serve_function as serve

    serve(**choices)


@command.group()
def function() -> None:
    """Make what a provider runs beside the data."""


@function.command()
@click.option("--target", required=True, type=click.Choice(["aws", "gcp", "azure"]))
@click.option(
    "--root", "roots", multiple=True, metavar="URL", help="What it will read, for its permissions; repeatable."
)
@click.option("--python", metavar="3.N", help="The provider's Python (default: a recent one).")
@click.option("--architecture", type=click.Choice(["x86_64", "arm64"]), default="x86_64", show_default=True)
@click.option("-o", "--output", metavar="FOLDER", help="Where to put it (default: hyperslab-function-TARGET).")
@click.option("--force", is_flag=True, help="Replace the folder if there is one.")
def build(**choices: Any) -> None:
    """Make the bundle to upload, the steps to deploy it, and the least permissions."""
    from hyperslab.cli.building import build_function

    build_function(**choices)


@function.command("new-key")
@click.argument("name", default="reader")
def new_key(name: str) -> None:
    """Print a new signing key for the function and those who call it."""
    from hyperslab.cli.building import show_new_key

    show_new_key(name)


@command.group()
def workload() -> None:
    """Look at what was read: logs that HYPERSLAB_RECORD or hs.record made."""


@workload.command()
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", required=True, metavar="FILE", help="The Parquet file to write.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
def merge(files: tuple[str, ...], output: str, force: bool) -> None:
    """Put the reads of several logs into one Parquet file."""
    from hyperslab.cli.workload import merge_logs

    merge_logs(files, output, force=force)


@workload.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--array", metavar="URL", help="Only the reads of this array.")
@click.option("--plot", metavar="FILE", help="Draw the reads of one array into a file (.png, .svg, .pdf).")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def show(files: tuple[str, ...], array: str | None, plot: str | None, as_json: bool) -> None:
    """Say what was read of each array, in which shapes, where, and what it cost."""
    from hyperslab.cli.workload import show_logs

    show_logs(files, array=array, plot=plot, as_json=as_json)


@command.command(context_settings={"allow_interspersed_args": False})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]…")
@click.option("--map", "maps", multiple=True, metavar="PATH=URL", help="Serve files below PATH from URL; repeatable.")
@click.option("--record", "log", metavar="FILE", help="Record the reads of served files.")
@with_store
def run(script: str, arguments: tuple[str, ...], options: dict[str, Any], **choices: Any) -> None:
    """Run an h5py SCRIPT as it is: files at URLs, and those that are mapped to one, are served by Hyperslab."""
    from hyperslab.cli.running import run_script

    run_script(script, arguments, options, **choices)


@command.command()
@click.option("--url", help="Also try to open this.")
@with_store
def doctor(url: str | None, options: dict[str, Any]) -> None:
    """Check what is installed and which stores answer."""
    from hyperslab.cli.doctor import examine

    if not examine(url, options):
        raise click.exceptions.Exit(1)
