"""`hyperslab run`: a script that uses h5py, with files of it served by Hyperslab."""

import os
import runpy
import sys
import traceback
from contextlib import nullcontext
from typing import Any

import click

import hyperslab as hs
from hyperslab.errors import InvalidInputError

__all__ = ["run_script"]


def run_script(
    script: str, arguments: tuple[str, ...], options: dict[str, Any], *, maps: tuple[str, ...], log: str | None
) -> None:  # fmt: skip
    """Run a script as Python would; files at URLs and below mapped paths are served, and reads of them recorded."""
    from hyperslab.h5.serving import served

    places = dict(_pair(text) for text in maps)
    if not os.path.isfile(script):
        raise InvalidInputError(f"there is no script {script!r}; give the path of a Python file")
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    recorded = nullcontext() if log is None else hs.record(log)
    with hs.Session() as session, recorded, served(places, storage_options=options or None, session=session):
        _run(script)


def _run(script: str) -> None:
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:  # noqa: BLE001 - the script's own failure, shown as Python shows it
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != script:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames or error.__traceback__)
        raise click.exceptions.Exit(1) from None


def _pair(text: str) -> tuple[str, str]:
    path, equals, url = text.partition("=")
    if not (path and equals and url):
        raise InvalidInputError(f"--map is PATH=URL, as in /data=s3://bucket/data, not {text!r}")
    return path, url
