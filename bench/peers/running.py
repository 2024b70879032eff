"""Workers in a lab: started when they are needed, given orders, metered, and stopped with it."""

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from math import inf, isinf
from pathlib import Path
from typing import Any

from bench.data import folder
from bench.lab import Lab
from bench.lab.bill import bill
from bench.lab.presets import Preset, location_of
from bench.peers.datasets import dataset
from bench.peers.systems import load
from bench.peers.systems.copies import ZARR_PLAIN
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
        # Those that have nothing open any more; to load a system's libraries takes longer than a read.
        self._idle: dict[str, list[_Process]] = defaultdict(list)
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
        stored = made.stored(dataset(data, self.scale), layout)
        prefix = dataset(data, self.scale).prefix(stored)
        mark = self._store / ".prepared" / prefix.replace("/", "-")
        # A layout that was described otherwise is another one; of one that systems share, each says something else.
        words = "" if stored == ZARR_PLAIN else made.layouts[layout]
        if mark.exists() and mark.read_text() == words:
            return 0.0
        worker = _Process(self.lab, system, self._home, beside_store=True)
        try:
            seconds = worker.ask(do="prepare", dataset=data, scale=self.scale, layout=layout)["seconds"]
        finally:
            worker.stop()
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(words)
        return float(seconds)

    def start(self, system: str, data: str, layout: str) -> None:
        """Start the worker that is to open a dataset: libraries are loaded while others work."""
        idle = self._idle[system]
        self._workers[system, data, layout] = idle.pop() if idle else _Process(self.lab, system, self._home)

    def open(self, system: str, data: str, layout: str) -> dict[str, Any]:
        """Open a dataset in a worker of its own; return what that took."""
        if (system, data, layout) not in self._workers:
            self.start(system, data, layout)
        worker = self._workers[system, data, layout]
        before = self.lab.meter()
        answer = worker.ask(do="open", dataset=data, scale=self.scale, layout=layout)
        used = (self.lab.meter() - before).of("s3")
        return {
            "preset": self.lab.preset.name, "dataset": data, "system": system, "layout": layout,
            "seconds": answer["seconds"], "requests": used.requests, "bytes": used.response_bytes,
        }  # fmt: skip

    def read(
        self, system: str, data: str, layout: str, workload: str, query: int, *, limit_s: float = inf, **settings: Any
    ) -> dict[str, Any]:
        """Let a worker read; return a row of the result file, but for its round.

        One that takes longer than `limit_s` is ended, and has to be opened anew.
        """
        worker = self._workers[system, data, layout]
        before, billed = self.lab.meter(), self.lab.billed()
        try:
            answer = worker.ask(limit_s, do="read", workload=workload, query=query, settings=settings)
        except Failed as error:
            answer = {"seconds": 0.0, "error": str(error)}
        if worker.has_ended:
            self.close([(system, data, layout)])
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

    def is_open(self, system: str, data: str, layout: str) -> bool:
        """Whether there is a worker for a dataset."""
        return (system, data, layout) in self._workers

    def close(self, which: Iterable[tuple[str, str, str]]) -> None:
        """Let the workers that have some datasets open close them; they may open others."""
        closing = [(each[0], self._workers.pop(each)) for each in which if each in self._workers]
        for _, worker in closing:
            worker.say_close()
        for system, worker in closing:
            if worker.has_closed():
                self._idle[system].append(worker)

    def stop(self) -> None:
        """Stop the workers, then the lab."""
        self.close(list(self._workers))
        workers = [worker for idle in self._idle.values() for worker in idle]
        for worker in workers:
            worker.say_end()
        for worker in workers:
            worker.stop()
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
        if self._process.stdin is None or self._process.stdout is None:
            raise Failed(f"{system} has no pipes")
        self._orders, self._answers = self._process.stdin, self._process.stdout

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask(self, limit_s: float = inf, /, **order: Any) -> dict[str, Any]:
        """Return the answer to an order; the worker is ended if that takes longer than `limit_s`."""
        self._say(order)
        timer = None if isinf(limit_s) else threading.Timer(limit_s, self._process.kill)
        if timer is not None:
            timer.start()
        line = self._answers.readline()
        if timer is not None:
            timer.cancel()
        if not line:
            code = self._process.wait()
            late = timer is not None and code == -signal.SIGKILL
            raise Failed(f"{self._system} " + (f"took over {limit_s:.0f} s" if late else f"has ended (exit {code})"))
        answer = dict(json.loads(line))
        if "error" in answer:
            raise Failed(f"{self._system}: {answer['error']}")
        return answer

    def _say(self, order: dict[str, Any]) -> None:
        try:
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()
        except BrokenPipeError:
            raise Failed(f"{self._system} has ended") from None

    def say_close(self) -> None:
        """Let it begin to close what it has open, without waiting for that."""
        with suppress(Failed):
            self._say({"do": "close"})

    def has_closed(self) -> bool:
        """Whether it has closed that, once it has tried; one that could not is stopped."""
        closed = "error" not in (self._answers.readline() or "error")
        if not closed:
            self.stop()
        return closed

    def say_end(self) -> None:
        """Let it end, without waiting for that."""
        with suppress(BrokenPipeError):
            self._orders.close()

    def stop(self) -> None:
        """End it, and wait for that."""
        self.say_end()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
