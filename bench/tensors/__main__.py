"""Tensor tables against their bars: sparse and dense tensors, on the disk and on the lab's S3; one table.

    python -m bench.tensors                      all: some 10 minutes
    python -m bench.tensors --quick              smaller tensors, fewer rounds
    python -m bench.tensors --part sparse        one part, or several: sparse, dense, lab

The sparse tensor has the shape of a city's pickups, (183, 24, 1140, 1717), and 3,309,490 cells (quick: 200,000); the
dense one is 1000 pictures of 3 × 256 × 256 bytes (quick: 250). The command exits with 1 if a bar was missed.
"""

import argparse
import json
import sys
from dataclasses import asdict

from bench.data import folder
from bench.figures import print_table
from bench.tensors import lab, local

PARTS = {"sparse": local.sparse, "dense": local.dense, "lab": lab.measure}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="measure this part only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="smaller tensors, fewer rounds")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(lab.inside(**json.loads(options.inside))))
        return 0
    figures = []
    for part in options.part or PARTS:
        print(f"{part} …", file=sys.stderr, flush=True)
        found = list(PARTS[part](options.quick))
        print_table(found)
        figures += found
    (folder() / "tensors.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return 1 if any(figure.passed is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
