"""What processes do to tensor tables in tests: they are forked off a server that has never used delta-rs itself."""

import multiprocessing
import os
import signal
import time
from multiprocessing.context import ForkServerContext

import numpy as np

from hyperslab.tensors import tensor_table

__all__ = ["children", "kill_after", "optimize_for_ever", "put_for_ever", "put_many_for_ever", "put_numbers"]


def children() -> ForkServerContext:
    """Return the context whose processes start at once, with all modules loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.tensor_work", "deltalake", "hyperslab.tensors"])
    return context


def kill_after(context: ForkServerContext, work, args: tuple, seconds: float) -> bool:
    """Run work in a process and kill it -9 some seconds after it began; say if it was still at work."""
    begun = context.Event()
    process = context.Process(target=_announced, args=(begun, work, args))
    process.start()
    assert begun.wait(60)
    process.join(seconds)
    alive = process.exitcode is None
    if alive:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert alive or process.exitcode == 0
    return alive


def _announced(begun, work, args):
    begun.set()
    work(*args)


def put_numbers(url: str, writer: int, count: int) -> None:
    """Put tensors, one by one: each holds its writer and its number."""
    table = tensor_table(url, patience_s=1000.0)
    for number in range(count):
        table.put(np.array([1 + writer, number]), metadata={"writer": writer, "number": number})


def put_for_ever(url: str, shape: tuple[int, ...]) -> None:
    """Put tensors whose cells are all the same, of several files each, until somebody stops it."""
    table = tensor_table(url)
    for number in range(10_000):
        table.put(np.full(shape, 1 + number % 250, "u1"), layout="ftsf", chunk_dims=1, rows=1)


def put_many_for_ever(url: str, count: int) -> None:
    """Put tensors by the dozen; those of one put have its number."""
    table = tensor_table(url)
    for number in range(10_000):
        table.put_many([(None, np.full(5, 1 + number), {"put": os.getpid() * 100_000 + number}) for _ in range(count)])


def optimize_for_ever(url: str) -> None:
    """Put single tensors and put their files together."""
    table = tensor_table(url)
    for number in range(10_000):
        for _ in range(3):
            table.put(np.full(4, 1 + number))
        table.optimize()
        time.sleep(0)
