"""The course of a measurement: a target to read, the surveys within time and bytes, the fit, what is kept."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hyperslab.errors import FunctionError, InvalidInputError, StoreError
from hyperslab.execute import Session, check_kind
from hyperslab.execute.profiles import save_profile
from hyperslab.measure.calls import CALL_STEPS, survey_calls
from hyperslab.measure.calls_fit import CallTiming, fit_function
from hyperslab.measure.fit import fit_profile
from hyperslab.measure.probes import Prober, SpentError
from hyperslab.measure.result import Measurement
from hyperslab.measure.survey import STEPS, survey
from hyperslab.measure.target import ending_on_term, existing, uploaded
from hyperslab.plan import Budget, Profile
from hyperslab.store import LocalStore, Store, locate
from hyperslab.store.callee import URL_VARIABLE, Function

__all__ = ["take"]

Tell = Callable[[str], None]

# Of the time, this much is kept for removing what was uploaded, and for calls of the function if there is one.
_LAST_SHARE, _CALLS_SHARE = 0.05, 0.3
_LEAST_S, _LEAST_MB = 1.0, 1.0
_MB = 1_000_000


def take(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None,
    function: Function | str | None,
    seconds: float,
    megabytes: float,
    object: str | None,
    save: bool,
    progress: Any,
) -> Measurement:
    """Measure a store; see `hyperslab.measure`, which this is the work of."""
    _check(seconds, megabytes)
    store, path = locate(url, storage_options)
    if isinstance(store, LocalStore):
        raise InvalidInputError("local files need no measuring: they are read through the system's cache; name a store")
    called = _function(function)
    end, budget = time.monotonic() + seconds, Budget(bytes=int(megabytes * _MB))
    steps = STEPS + (CALL_STEPS if called is not None else 0)
    with (
        ending_on_term(),
        Session(budget=budget, retries=1, timeout_s=max(1.0, seconds / 6), function=called, learn=False) as session,
        _showing(progress, f"measuring {store.address.partition('?')[0]}", steps) as tell,
    ):
        prober = Prober(session, store, end - seconds * _LAST_SHARE, tell)
        measured = _measured(prober, url, path, object, called)
    taken = replace(measured, seconds=time.monotonic() - end + seconds)
    if save:
        save_profile(store.address, taken.profile, points=taken.points)
    return taken


def _function(function: Function | str | None) -> Function | None:
    """Return the function to measure; of one that is given by its URL, the key is in the environment, if it has one."""
    if isinstance(function, str):
        return Function.from_environment({**os.environ, URL_VARIABLE: function})
    check_kind("function", function, Function)
    return function


def _check(seconds: Any, megabytes: Any) -> None:
    for name, value, least in (("seconds", seconds, _LEAST_S), ("megabytes", megabytes, _LEAST_MB)):
        if not isinstance(value, (int, float)) or not least <= value <= 1e6:
            raise InvalidInputError(f"{name} must be a number from {least:g} on, not {value!r}")


def _measured(prober: Prober, url: str, path: str, key: str | None, function: Function | None) -> Measurement:
    session, store = prober.session, prober.store
    found = existing(session, store, path, key)
    notes: list[str] = []
    try:
        with nullcontext(found) if found is not None else uploaded(prober, path) as target:
            prober.target = target
            last, prober.end = prober.end, prober.end - (prober.left_s() * _CALLS_SHARE if function else 0.0)
            cut = survey(prober)
            prober.end = last
            profile = fit_profile(prober.timings, name="measured", measured_at=_now())
            calls = _calls(prober, function, profile, notes) if function is not None else []
    except SpentError:
        raise _too_slow(store) from None
    if cut:
        notes.append(f"time or bytes did not suffice for all of: {', '.join(cut)}")
    if prober.failures:
        notes.append(f"{prober.failures} probes failed and were left out")
    profile = replace(profile, function=fit_function(calls, profile))
    ledger = session.metrics.snapshot()
    return Measurement(
        url, store.address, profile, tuple(prober.timings), tuple(calls),
        0.0, ledger.bytes + ledger.put_bytes, ledger.usd, tuple(notes),
    )  # fmt: skip


def _calls(prober: Prober, function: Function, profile: Profile, notes: list[str]) -> list[CallTiming]:
    try:
        found = survey_calls(prober, function)
    except FunctionError as error:
        notes.append(f"the function was not measured: {error}")
        return []
    if fit_function(found, profile) is None:
        notes.append("the function was not measured: time or bytes did not suffice; allow more of them")
    return found


def _too_slow(store: Store) -> StoreError:
    return StoreError(
        f"{store.address.partition('?')[0]} is too slow for the time and bytes allowed; allow more seconds or "
        "megabytes, or name a small stored object"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _showing(progress: Any, title: str, steps: int) -> Iterator[Tell]:
    """Give what is told of each step: nothing, to the user's function, or with True to a bar on the terminal."""
    done = [0]
    if progress is None or progress is False:
        yield lambda _: None
        return
    if callable(progress):

        def count(_: str) -> None:
            done[0] += 1
            progress(min(done[0], steps), steps)

        yield count
        return
    if progress is not True:
        raise InvalidInputError(f"progress is True, or a function of (done, total) steps, not {progress!r}")
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=steps, what="uploading")
        yield lambda what: bar.update(task, advance=1, what=what)
