"""Holds one system, in a process of its own: takes orders as lines of JSON, answers each by one.

    python -m bench.peers.worker SYSTEM

{"do": "measure"}, {"do": "prepare" or "open", "dataset": …, "scale": …, "layout": …}, {"do": "read", "workload": …,
"query": …, "settings": {…}}, {"do": "close"}. An answer has "seconds" of the order itself; that a read's cells equal
NumPy's is found out after the clock has stopped. What fails is answered by "error".
"""

import gc
import json
import os
import sys
import time
from typing import Any

import numpy as np

from bench.lab import Lab
from bench.peers.datasets import dataset
from bench.peers.systems import load
from bench.peers.workloads import Workload, workload

__all__: list[str] = []


class Worker:
    """One system, and the layout of a dataset that it has open."""

    def __init__(self, name: str, lab: Lab) -> None:
        self.name, self.system, self.lab, self.scale, self.data = name, load(name), lab, "", ""
        self._workloads: dict[str, Workload] = {}

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        return dict(getattr(self, "_" + order.pop("do"))(**order))

    def _measure(self) -> dict[str, Any]:
        """Ours alone: find out how store and function behave."""
        self.system.measure(self.lab)  # type: ignore[attr-defined]
        return {}

    def _prepare(self, dataset: str, scale: str, layout: str) -> dict[str, Any]:
        return self._timed(self.system.prepare, dataset, scale, layout)

    def _open(self, dataset: str, scale: str, layout: str) -> dict[str, Any]:
        self.scale, self.data = scale, dataset
        return self._timed(self.system.open, dataset, scale, layout)

    def _timed(self, act: Any, name: str, scale: str, layout: str) -> dict[str, Any]:
        data, started = dataset(name, scale), time.perf_counter()
        act(data, layout, self.lab)
        return {"seconds": time.perf_counter() - started}

    def _read(self, workload: str, query: int, settings: dict[str, Any]) -> dict[str, Any]:
        asked = self._workload(workload)
        # One that keeps what it has read for a moment is given that moment.
        if hasattr(self.system, "rest"):
            self.system.rest()
        gc.collect()
        gc.disable()
        try:
            started = time.perf_counter()
            found = self.system.read(asked.queries[query], **settings)
            seconds = time.perf_counter() - started
        finally:
            gc.enable()
        expected = asked.queries[query].answer(asked.data)
        equal = len(found) == len(expected) and all(map(_same, found, expected))
        return {"seconds": seconds, "told": self.system.told(), **({} if equal else {"error": "wrong cells"})}

    def _workload(self, name: str) -> Workload:
        if name not in self._workloads:
            self._workloads[name] = workload(name, self.scale, self.data)
        return self._workloads[name]

    def _close(self) -> dict[str, Any]:
        self.system.close()
        self.system, self._workloads = load(self.name), {}
        return {}


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and np.array_equal(found, expected)


def main(name: str) -> None:
    lab = Lab.here()
    if lab is None:
        raise SystemExit("a worker runs inside of a lab")
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(name, lab)
    for line in sys.stdin:
        try:
            answer = worker.obey(json.loads(line))
        except Exception as error:  # noqa: BLE001 what a system raises is its result
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(sys.argv[1])
