"""`hyperslab doctor`: what is installed, what the machine allows, which stores answer."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

import hyperslab as hs
from hyperslab.cli.failures import listed
from hyperslab.cli.opening import opened
from hyperslab.errors import HyperslabError, IntegrityError, StoreError
from hyperslab.execute.own_prices import all_books, stale_days
from hyperslab.execute.profiles import all_profiles
from hyperslab.plan.phrases import say_bytes, say_seconds
from hyperslab.plan.render import printable
from hyperslab.store.callee import URL_VARIABLE, Function

__all__ = ["examine"]

_DEPENDENCIES = {
    "numpy": "numpy",
    "obstore": "obstore",
    "zarr": "zarr",
    "numcodecs": "numcodecs",
    "zlib-ng": "zlib_ng",
    "zstandard": "zstandard",
    "h5py": "h5py",
    "google-crc32c": "google_crc32c",
    "rich": "rich",
    "click": "click",
}
_EXTRAS = {"plot": ("matplotlib",), "function": ("aiohttp", "uvicorn"), "hdf5plugin": ("hdf5plugin",)}
_FORK_PATIENCE_S = 20.0
_ANSWER_PATIENCE_S = 5.0
_COLOURS = {"ok": "green", "absent": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: `failed` makes the command fail, `absent` is a choice."""

    state: Literal["ok", "absent", "failed"]
    subject: str
    words: str


def examine(url: str | None, options: dict[str, Any]) -> bool:
    """Print one line for each check as it is made; return whether none failed."""
    well = True
    for finding in _findings(url, options):
        mark = click.style(f"{finding.state:<6}", fg=_COLOURS[finding.state])
        click.echo(f"{mark}  {finding.subject:<14}  {printable(finding.words)}")
        well = well and finding.state != "failed"
    return well


def _findings(url: str | None, options: dict[str, Any]) -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} {platform.system()} {platform.machine()}")
    yield Finding("ok", "hyperslab", f"{hs.__version__} in {Path(hs.__file__).parent}")
    for package, module in _DEPENDENCIES.items():
        yield _dependency(package, module)
    for extra, modules in _EXTRAS.items():
        yield _extra(extra, modules)
    yield Finding("ok", "machine", _machine())
    yield _tried("local files", _try_local, "set TMPDIR to a directory that can be written")
    yield _tried("memory://", _try_memory, "reinstall obstore: pip install --force-reinstall obstore")
    yield _tried("forking", _try_fork, "start processes with 'spawn'")
    yield from _stores(url, options)
    yield _function()
    yield _tried("prices", _try_prices, "mend that file, or remove it")
    yield _profiles()


def _dependency(package: str, module: str) -> Finding:
    try:
        importlib.import_module(module)
        return Finding("ok", package, importlib.metadata.version(package))
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything as it is imported
        return Finding("failed", package, f"cannot be imported ({error}): pip install {package}")


def _extra(extra: str, modules: tuple[str, ...]) -> Finding:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        words = f"{' and '.join(missing)}: not installed; pip install 'hyperslab[{extra}]'"
        return Finding("absent", f"[{extra}]", words)
    versions = [f"{module} {importlib.metadata.version(module)}" for module in modules]
    return Finding("ok", f"[{extra}]", ", ".join(versions))


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = f"{cores} of {os.cpu_count()} cores"
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        words += f", {say_bytes(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} of memory"
    return words


def _tried(subject: str, check: Callable[[], str], way_out: str) -> Finding:
    started = time.perf_counter()
    try:
        words = check()
    except (HyperslabError, OSError) as error:
        return Finding("failed", subject, f"{' '.join(str(error).split())}; {way_out}")
    return Finding("ok", subject, f"{words} in {say_seconds(time.perf_counter() - started)}")


def _try_local() -> str:
    """Write a small array to a temporary folder and read it back."""
    cells = np.arange(1000).reshape(20, 50)
    with tempfile.TemporaryDirectory(prefix="hyperslab-") as folder:
        path = os.path.join(folder, "a.npy")
        np.save(path, cells)
        _check_read(path, cells)
    return f"written and read below {tempfile.gettempdir()}"


def _try_memory() -> str:
    from hyperslab.store import memory

    name, cells = f"doctor-{os.getpid()}", np.arange(1000)
    with tempfile.TemporaryFile() as file:
        np.save(file, cells)
        file.seek(0)
        memory(name).put("a.npy", file.read())
    _check_read(f"memory://{name}/a.npy", cells)
    return "read through the network runtime"


def _check_read(url: str, cells: Any) -> None:
    with opened(url, {}) as found:
        if not isinstance(found, hs.Array) or not np.array_equal(found[...], cells):
            raise IntegrityError("what was read is not what was written")


def _try_fork() -> str:
    """Read in a forked child, where the parent's network runtime does not work."""
    if not hasattr(os, "fork"):
        return "not there on this system, nothing to check"
    with warnings.catch_warnings():
        # Newer Pythons warn of what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _answer_as_child()
    end = time.monotonic() + _FORK_PATIENCE_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if os.waitstatus_to_exitcode(status):
                raise StoreError("a forked process could not read")
            return "a forked process has read through a runtime of its own"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise StoreError(f"a forked process did not answer within {_FORK_PATIENCE_S:g} s")


def _answer_as_child() -> None:
    code = 1
    try:
        _try_memory()
        code = 0
    finally:
        os._exit(code)


def _stores(url: str | None, options: dict[str, Any]) -> Iterator[Finding]:
    if url is not None:
        yield _tried(url, lambda: _try_url(url, options), "see `hyperslab info --help` for the options of stores")
        return
    endpoint = options.get("endpoint") or next(
        (os.environ[name] for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if os.environ.get(name)), None
    )
    if endpoint is None:
        yield Finding("absent", "s3", "not asked: give --url s3://bucket/path to try one")
    else:
        yield _tried("s3", lambda: _try_endpoint(endpoint), "is the server running, is AWS_ENDPOINT_URL right?")


def _function() -> Finding:
    url = os.environ.get(URL_VARIABLE)
    if not url:
        return Finding("absent", "function", f"not asked: set {URL_VARIABLE} to try one")
    return _tried("function", lambda: _try_endpoint(Function.from_environment().url), f"is {URL_VARIABLE} right?")


def _try_prices() -> str:
    books = [
        f"{name} of {kept.book.dated}"
        + (" (your own)" if kept.own else "")
        + (" (more than a year ago)" if stale_days(kept.book.dated) is not None else "")
        for name, kept in all_books().items()
    ]
    return f"{', '.join(books)}, read"


def _profiles() -> Finding:
    names = [each.address.partition("?")[0] for each in all_profiles()]
    if not names:
        return Finding("absent", "measured", "no store yet: `hyperslab measure URL` makes plans fit it")
    return Finding("ok", "measured", f"{listed(names)}; `hyperslab measure --show` shows them")


def _try_url(url: str, options: dict[str, Any]) -> str:
    with opened(url, options, retries=1) as found:
        return repr(found)


def _try_endpoint(endpoint: str) -> str:
    """Ask for anything: also a refusal shows that somebody is there."""
    from urllib import error, request

    if not endpoint.startswith(("http://", "https://")):
        raise StoreError("the endpoint is not an http:// or https:// URL")
    try:
        with request.urlopen(request.Request(endpoint, method="HEAD"), timeout=_ANSWER_PATIENCE_S) as answer:
            status = answer.status
    except error.HTTPError as answer:
        status = answer.code
    host = endpoint.partition("://")[2].rpartition("@")[2]
    return f"{host} answers ({status})"
