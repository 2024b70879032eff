"""The lab from the command line.

python -m bench.lab run --preset internet -- python some.py     run a program as the client of a lab
python -m bench.lab selftest --preset paper-50                  try the line against its preset
python -m bench.lab presets                                     list what there is
python -m bench.lab check                                       list what labs have left behind, or still run
"""

import argparse
import sys

from bench.lab import leftovers
from bench.lab.lab import Lab
from bench.lab.presets import PRESETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run a program as the client of a lab")
    running.add_argument("--preset", choices=PRESETS, default="internet")
    running.add_argument("--no-function", action="store_true", help="only the store")
    running.add_argument("--proxy", action="store_true", help="the user-space line, even where there could be another")
    running.add_argument("words", nargs="+", metavar="PROGRAM")
    testing = commands.add_parser("selftest", help="try the line against its preset")
    testing.add_argument("--preset", choices=PRESETS, action="append", default=[])
    commands.add_parser("presets", help="list what there is")
    commands.add_parser("check", help="list what labs have left behind, or still run")
    options = parser.parse_args()
    if options.command == "run":
        return _run(options)
    if options.command == "selftest":
        from bench.lab import selftest

        return selftest.main(options.preset)
    if options.command == "presets":
        for preset in PRESETS.values():
            line = preset.outside
            rate = f"{line.bytes_per_s * 8 / 1e6:.0f} Mbit/s"
            print(f"{preset.name:12} {preset.latency_s * 1e3:4.0f} ms  {rate:12} {preset.why}")
        return 0
    found = leftovers.found()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


def _run(options: argparse.Namespace) -> int:
    with Lab(options.preset, function=not options.no_function, use_proxy=options.proxy or None) as lab:
        if lab.lacks:
            print(f"a proxy stands for the line ({lab.lacks}): no slow start, no losses", file=sys.stderr)
        code = int(lab.run(options.words).returncode)
        for (client, service), counts in lab.meter():
            print(f"{client} → {service}: {counts}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
