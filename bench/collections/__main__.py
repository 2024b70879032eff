"""Collections of small arrays against their bars: reads, plans, and plans in the lab; one table, and a file of it.

    python -m bench.collections                           all but the lab: some 15 minutes
    python -m bench.collections --quick                   fewer rounds, cases and splits
    python -m bench.collections --part reads --full       one part, or several: reads, times, grid, held-out, lab
    python -m bench.collections --part grid --full        every case of the paper's; run it again until none is left
    python -m bench.collections --lab                     measured seconds of plans: packs on the lab's store, and Redis

`--full` reads as many vortices as the paper has, and plans every case. No case is begun after `--minutes`; those that
are done are kept. The command exits with 1 if a bar was missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.collections import lab, plans, reads
from bench.collections.workloads import vortices
from bench.data import folder
from bench.figures import Figure, print_table

PARTS = ("reads", "times", "grid", "held-out", "lab")
MINUTES, SPLITS, QUICK_SPLITS = 8.0, 10, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="measure this part only; may be repeated")
    parser.add_argument("--lab", action="store_true", help="the same as --part lab")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, cases and splits")
    parser.add_argument("--full", action="store_true", help="all vortices, every case of plans")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no case of plans is begun after so many")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(lab.inside(**json.loads(options.inside))))
        return 0
    chosen = (options.part or []) + ["lab"] * options.lab or [part for part in PARTS if part != "lab"]
    started = time.monotonic()
    figures = []
    for part in [part for part in PARTS if part in chosen]:
        print(f"» {part}", flush=True)
        figures += _measured(part, options.quick, options.full, started + 60 * options.minutes)
    print()
    print_table(figures)
    held = [figure.passed for figure in figures if figure.passed is not None]
    print(f"\n{sum(held)} of {len(held)} bars held, {time.monotonic() - started:.0f} s")
    print(_written(figures))
    return 0 if all(held) else 1


def _measured(part: str, quick: bool, full: bool, until: float) -> Iterator[Figure]:
    if part == "reads":
        yield from reads.measure(quick, full)
    elif part == "lab":
        yield from lab.measure(quick)
    else:
        flow = vortices()
        plans.compiled_once(flow)
        if part == "times":
            yield from plans.times(flow, quick)
        elif part == "grid":
            cases = plans.EVERY if full else plans.QUICK if quick else plans.SOME
            yield from plans.against_the_paper(flow, cases, until)
        else:
            yield from plans.held_out(flow, QUICK_SPLITS if quick else SPLITS)


def _written(figures: list[Figure]) -> Path:
    """Write the figures beside those of other days."""
    path = folder() / "collections" / "results" / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1, ensure_ascii=False))
    return path


if __name__ == "__main__":
    sys.exit(main())
