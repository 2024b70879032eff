"""The micro-profiler: sends probes through the executor, and fits the profile by which reads are planned."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperslab.store.callee import Function

if TYPE_CHECKING:
    from hyperslab.measure.result import Measurement

__all__ = ["measure"]


def measure(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    function: Function | str | None = None,
    seconds: float = 60.0,
    megabytes: float = 300.0,
    object: str | None = None,
    save: bool = True,
    progress: Any = None,
) -> "Measurement":
    """Measure how the store at `url` behaves, and keep that for all sessions that read from it.

    It uploads an object of random bytes below the URL, reads parts of it, one and up to 256 at once, and removes it,
    also when interrupted. If the URL is that of an object or an array, or with `object` (a key in the store), what is
    stored there is read instead and nothing is written.

    function    a function beside the data, or its URL, that is measured, too
    seconds     how long it may take at most
    megabytes   how much it may move at most, up and down
    save        keep the profile, so that sessions find it
    progress    True for a bar on the terminal, or a function of (done, total) steps
    """
    # What it takes is imported when it is used: most programs never measure.
    from hyperslab.measure.profiler import take

    return take(
        url, storage_options=storage_options, function=function, seconds=seconds, megabytes=megabytes, object=object,
        save=save, progress=progress,
    )  # fmt: skip
