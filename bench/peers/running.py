"""Workers in a lab: started when they are needed, given orders, metered, and stopped with it."""

import json
import subprocess
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from bench.data import folder
from bench.lab import Lab
from bench.lab.bill import bill
from bench.lab.presets import Preset, location_of
from bench.peers.datasets import dataset
from bench.peers.systems import load
from hyperslab.plan import Prices

__all__ = ["Bench", "Failed"]

ROOT = Path(__file__).resolve().parents[2]


class Failed(RuntimeError):
    """A system could not do what it was told; its own words."""


class Bench:
    """A lab whose store keeps what was prepared, and the workers in it."""

    def __init__(self, preset: str | Preset, scale: str, *, home: Path, store: str | None = None) -> None:
        self.scale, self._home = scale, home
        self._store = folder() / "peers" / f"store-{store or scale}"
        self.lab = Lab(preset, store_folder=self._store)
        self._workers: dict[tuple[str, str, str], _Process] = {}
        self.prices = Prices.of("aws", location=location_of(self.lab.preset.name))

    def measure(self) -> None:
        """Measure store and function, as a person does before the first read; the profile is kept in `home`."""
        worker = _Process(self.lab, "hyperslab", self._home)
        try:
            worker.ask(do="measure")
        finally:
            worker.stop()

    def prepare(self, system: str, data: str, layout: str) -> float:
        """Store a copy, unless it is there; return the seconds that it took."""
        made = load(system)
        prefix = dataset(data, self.scale).prefix(made.stored(dataset(data, self.scale), layout))
        mark = self._store / ".prepared" / prefix.replace("/", "-")
        if mark.exists():
            return 0.0
        worker = _Process(self.lab, system, self._home, beside_store=True)
        try:
            seconds = worker.ask(do="prepare", dataset=data, scale=self.scale, layout=layout)["seconds"]
        finally:
            worker.stop()
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return float(seconds)

    def open(self, system: str, data: str, layout: str) -> dict[str, Any]:
        """Open a dataset in a worker of its own; return what that took."""
        worker = self._workers[system, data, layout] = _Process(self.lab, system, self._home)
        before = self.lab.meter()
        answer = worker.ask(do="open", dataset=data, scale=self.scale, layout=layout)
        used = (self.lab.meter() - before).of("s3")
        return {
            "preset": self.lab.preset.name, "dataset": data, "system": system, "layout": layout,
            "seconds": answer["seconds"], "requests": used.requests, "bytes": used.response_bytes,
        }  # fmt: skip

    def read(self, system: str, data: str, layout: str, workload: str, query: int, **settings: Any) -> dict[str, Any]:
        """Let a worker read; return a row of the result file, but for its round."""
        worker = self._workers[system, data, layout]
        before, billed = self.lab.meter(), self.lab.billed()
        try:
            answer = worker.ask(do="read", workload=workload, query=query, settings=settings)
        except Failed as error:
            answer = {"seconds": 0.0, "error": str(error)}
        used, worked = self.lab.meter() - before, self.lab.billed() - billed
        store, function, inside = used.of("s3"), used.of("function"), used.of("s3", "function")
        told, phi = answer.get("told", {}), settings.get("phi")
        return {
            "preset": self.lab.preset.name, "workload": workload, "system": system, "layout": layout,
            "method": settings.get("method"), "phi": "inf" if phi == inf else phi, "query": query,
            "seconds": answer["seconds"], "requests": store.requests, "calls": function.requests,
            "bytes": sum(each.response_bytes + each.unfinished_bytes for each in (store, function)),
            "sent_bytes": store.request_bytes + function.request_bytes,
            "inside_requests": inside.requests, "inside_bytes": inside.response_bytes,
            "usd": bill(used, self.prices, worked, memory_mb=self.lab.preset.provider.memory_mb).total_usd,
            "predicted_s": told.get("predicted_s"), "predicted_usd": told.get("predicted_usd"),
            "gets": told.get("gets"), "plan": told.get("plan"),
            "error": answer.get("error"),
        }  # fmt: skip

    def close(self, system: str, data: str, layout: str) -> None:
        """Stop the worker that has a dataset open."""
        self._workers.pop((system, data, layout)).stop()

    def stop(self) -> None:
        """Stop the workers, then the lab."""
        while self._workers:
            self._workers.popitem()[1].stop()
        self.lab.stop()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Process:
    """A worker, seen from outside."""

    def __init__(self, lab: Lab, system: str, home: Path, *, beside_store: bool = False) -> None:
        self._system = system
        self._process = lab.start(
            ["env", f"HYPERSLAB_HOME={home}", sys.executable, "-m", "bench.peers.worker", system],
            beside_store=beside_store, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, **order: Any) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise Failed(f"{self._system} has no pipes")
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self._system} has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{self._system} has ended (exit {self._process.wait()})")
        answer = dict(json.loads(line))
        if "error" in answer:
            raise Failed(f"{self._system}: {answer['error']}")
        return answer

    def stop(self) -> None:
        with suppress(Failed):
            self.ask(do="close")
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
