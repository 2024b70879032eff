"""What a job would do, told before it is done: how it is split, what is read twice, what it takes, what it holds."""

from typing import Any

from hyperslab.plan.phrases import say_bytes, say_count, say_seconds
from hyperslab.plan.render import Facts, Report, Table, html_text, plain_text, shown_text
from hyperslab.stencil.job import Job, Planned
from hyperslab.stencil.splitting import Split

__all__ = ["StencilPlan"]


class StencilPlan:
    """How `hs.apply` would go about it. `print` it; `planned` has the figures."""

    def __init__(self, job: Job, planned: Planned, *, profile: Any) -> None:
        self.planned = planned
        self._recipe, self._profile = job.recipe, profile

    @property
    def chunks(self) -> tuple[int, ...]:
        """Output cells that are made and stored together."""
        return self.planned.split.part

    @property
    def strategy(self) -> str:
        """How the array is cut: "layout-aware", "general", or "given"."""
        return self.planned.split.strategy

    @property
    def memory_bytes(self) -> int:
        """What the process will hold at most, all in all."""
        planned = self.planned
        working = planned.split.buffer_bytes + planned.lanes * planned.lane_bytes + planned.read_bytes
        return planned.held_bytes + planned.spare_bytes + working

    def report(self) -> Report:
        """Return what there is to say."""
        kernel, planned = self._recipe.kernel(), self.planned
        reach, split = kernel.reach, planned.split
        facts = [
            ("function", f"run by {kernel.how}" + (f" ({kernel.why})" if kernel.why else "")),
            ("reach", f"{_cells(reach.before)} before, {_cells(reach.after)} after a cell"),
            ("output", " and ".join(f"{out.dtype} {_cells((*planned.problem.geometry.out_shape, *out.cell_shape))}"
                                    for out in kernel.outputs)),
            ("chunks", f"{_cells(split.part)}, by rows of input {split.rows:,} at a time ({split.strategy})"),
            ("memory", self._memory()),
            ("profile", f"{self._profile.name}, {self._profile.measured_at or 'typical, not measured'}"),
        ]  # fmt: skip
        rows = tuple([_row(each) for each in planned.splits])
        heading = ("split", "chunks", "halo cells", "read", "read twice", "requests", "reading takes")
        return Report("apply", (Facts(tuple(facts)), Table(heading, rows, strong=0)))

    def _memory(self) -> str:
        planned = self.planned
        return (
            f"{say_bytes(self.memory_bytes)} of {say_bytes(planned.memory_bytes)}: "
            f"{say_bytes(planned.held_bytes + planned.spare_bytes)} before it starts, "
            f"{say_bytes(planned.split.buffer_bytes)} for chunks ({planned.split.depth} at a time), "
            f"{say_bytes(planned.lanes * planned.lane_bytes)} to store, {say_bytes(planned.read_bytes)} to read"
        )

    def __str__(self) -> str:
        return shown_text(self.report())

    def __repr__(self) -> str:
        return plain_text(self.report())

    def _repr_html_(self) -> str:
        return html_text(self.report())


def _row(split: Split) -> tuple[str, ...]:
    reading = split.reading
    return (
        split.strategy, _cells(split.part), f"{split.halo_cells:,}", say_bytes(reading.nbytes),
        say_bytes(reading.twice_bytes), say_count(reading.requests, "request"), say_seconds(reading.seconds),
    )  # fmt: skip


def _cells(shape: tuple[int, ...]) -> str:
    return "×".join(f"{n:,}" for n in shape)
