"""One system, one layout, some workloads: does it give NumPy's cells, and by how much?

python -m bench.peers.try_one tensorstore same
python -m bench.peers.try_one tiledb best --scale quick --preset same-region --workload vertical
"""

import argparse
import tempfile
from pathlib import Path

from bench.lab import PRESETS
from bench.peers.running import Bench
from bench.peers.systems import SYSTEMS
from bench.peers.workloads import NAMES, workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("layout")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--preset", default="internet", choices=list(PRESETS))
    parser.add_argument("--workload", action="append", choices=NAMES)
    parser.add_argument("--method")
    parser.add_argument("--phi", type=float)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    settings = {"method": chosen.method, "phi": chosen.phi}
    settings = {name: value for name, value in settings.items() if value is not None}
    # A store of its own, so that two of these can run side by side.
    store = f"try-{chosen.scale}-{chosen.system}-{chosen.layout}"
    with (
        tempfile.TemporaryDirectory() as home,
        Bench(chosen.preset, chosen.scale, home=Path(home), store=store) as bench,
    ):
        if chosen.system == "hyperslab":
            bench.measure()
        opened: set[str] = set()
        for name in chosen.workload or NAMES:
            asked = workload(name, chosen.scale)
            if asked.data.name not in opened:
                took_s = bench.prepare(chosen.system, asked.data.name, chosen.layout)
                row = bench.open(chosen.system, asked.data.name, chosen.layout)
                opened.add(asked.data.name)
                print(f"{asked.data.name}: prepared in {took_s:.1f} s, opened in {row['seconds']:.3f} s "
                      f"by {row['requests']} requests, {row['bytes']} bytes")  # fmt: skip
            for query in range(len(asked.queries)):
                for _ in range(chosen.rounds):
                    row = bench.read(chosen.system, asked.data.name, chosen.layout, name, query, **settings)
                    print(f"  {name:10} {query}: {row['seconds'] * 1e3:9.1f} ms  {row['requests']:6} requests "
                          f"{row['calls']:3} calls {row['bytes']:12,} bytes (needed {asked.needed_bytes(query):,})  "
                          f"inside {row['inside_requests']}, {row['inside_bytes']:,}  ${row['usd']:.7f}  "
                          f"predicted {(row['predicted_s'] or 0) * 1e3:.0f} ms  "
                          f"{row['error'] or ''}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
