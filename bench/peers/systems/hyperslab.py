"""Hyperslab: the function beside the data at hand, store and function measured beforehand, caches of cells off."""

from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

import hyperslab as hs
from bench.lab import Lab
from bench.lab.presets import location_of
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import BLOSC_LEVEL, ZARR_PLAIN, upload_from, write_zarr_plain
from bench.peers.workloads import Query
from hyperslab.execute import Options, plan_reads
from hyperslab.plan import Plan

__all__ = ["System"]

# What suits each dataset's reads. Of plain chunks that are much higher than wide, rows are one range each, and a
# function cuts columns out of few. Of tokens whole rows are read, as with chunks by default, of pictures all colours.
_BEST: dict[str, dict[str, Any]] = {
    "grid": {"layout": "plain", "chunks": (2048, 256)},
    "bert": {"compressor": f"zstd:{BLOSC_LEVEL}"},
    "camera": {"chunks": (3, 96, 96), "shards": (3, 2880, 3840)},
}


class System:
    """`settings` of a read are `method` and `phi`, as `array.read` takes them."""

    title = "Hyperslab"
    packages = ("obstore", "numpy")
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object",
        "default": "what hs.save does unasked: zstd, shuffled where a sample says so, 32 KiB chunks in shards of up to "
        "16 MiB, checksums",
        "best": "grid: plain chunks of 2048 × 256, as random numbers cannot be compressed; bert: as default, but at "
        "level 7; camera: zstd, tiles of 3 × 96 × 96 in a shard for each picture",
    }

    def __init__(self) -> None:
        self._session: hs.Session | None = None
        self._arrays: dict[str, hs.Array] = {}
        self._last: tuple[Query, dict[str, Any]] = (Query(()), {})

    def stored(self, data: Dataset, layout: str) -> str:
        return ZARR_PLAIN if layout == "same" else f"hyperslab-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        if layout == "same":
            write_zarr_plain(data, lab)
            return

        def write(folder: Any, info: ArrayInfo) -> None:
            hs.save(folder / info.name, data.truth(info.name), **(_best(data.name, info) if layout == "best" else {}))

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        location, function = location_of(lab.preset.name), _function(lab)
        self._session = hs.Session(
            function=function,
            prices=f"aws-{location}",
            cache_bytes=0,
            index_bytes=16 << 20,
            learn=False,
        )
        at = lab.url(data.prefix(self.stored(data, layout)))
        self._arrays = {
            info.name: hs.open(f"{at}/{info.name}", storage_options=lab.storage_options, session=self._session)
            for info in data.arrays
        }

    def measure(self, lab: Lab) -> None:
        """Measure store and function; sessions find the profile by themselves."""
        hs.measure(lab.url(), storage_options=lab.storage_options, function=_function(lab))

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        self._last = query, settings
        wanted = [(self._arrays[part.array], part.key) for part in query.parts]
        if len(wanted) == 1:
            return [wanted[0][0].read(wanted[0][1], **settings)]
        return list(hs.read_many(wanted, **settings))

    def told(self) -> dict[str, Any]:
        """Return what was predicted, and how many of the requests were for whole chunks."""
        plan = self._plan()
        return {
            "predicted_s": plan.estimate.seconds,
            "predicted_usd": plan.estimate.usd,
            "gets": _whole_chunks(plan),
            "plan": _signature(plan),
        }

    def _plan(self) -> Plan:
        """Plan the last query again; nothing is sent."""
        query, settings = self._last
        tasks = [self._arrays[part.array]._result(part.key).task for part in query.parts]
        return plan_reads(self._session, tasks, Options(settings.get("phi"), None, settings.get("method"), None))

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def _function(lab: Lab) -> hs.Function:
    """The function beside the data; its answers are compressed where that makes them shorter."""
    return hs.Function(
        lab.function_url, key=lab.key, provider="aws", memory_mb=lab.preset.provider.memory_mb, compress=True
    )


def _signature(plan: Plan) -> str:
    """Name what a plan sends, whoever made it."""
    ranges = [column.tobytes() for column in (plan.requests.objects, plan.requests.starts, plan.requests.stops)]
    rest = repr((sorted(plan.wholes), sorted(call.owners for call in plan.calls))).encode()
    return sha256(b"|".join([*ranges, rest])).hexdigest()[:12]


def _whole_chunks(plan: Plan) -> int:
    """Return how many requests fetch a chunk from its first byte to its last."""
    whole = {read.layout.stored_size.nbytes for read in plan.reads if read.layout.stored_size is not None}
    ranges = zip(plan.requests.starts.tolist(), plan.requests.stops.tolist(), strict=True)
    return len(plan.wholes) + sum(start == 0 and stop in whole for start, stop in ranges)


def _best(data: str, info: ArrayInfo) -> dict[str, Any]:
    """Return how `hs.save` is told; no chunk is larger than its array, and shards are of whole chunks."""
    told = dict(_BEST[data])
    if "chunks" not in told:
        return told
    chunks = told["chunks"] = tuple(map(min, told["chunks"], info.shape))
    if "shards" in told:
        shards = zip(map(min, told["shards"], info.shape), chunks, strict=True)
        told["shards"] = tuple([-(-shard // chunk) * chunk for shard, chunk in shards])
    return told
