"""What `import hyperslab` gives, and what it must not start or load."""

import json
import subprocess
import sys

import hyperslab

PUBLIC = [
    "Advice",
    "Array",
    "Budget",
    "Collection",
    "Copies",
    "Explanation",
    "Function",
    "Group",
    "LazyArray",
    "Prices",
    "Profile",
    "ReadRecord",
    "Session",
    "StencilPlan",
    "Workload",
    "advise",
    "apply",
    "collection",
    "copy",
    "create",
    "create_group",
    "errors",
    "from_dask",
    "measure",
    "open",
    "read_many",
    "rechunk",
    "record",
    "save",
    "seal",
    "sweep",
    "tensor_table",
]

# Slow to import, or only needed once something is read.
LAZY = {"asyncio", "click", "h5py", "matplotlib", "numcodecs", "obstore", "rich", "zarr"}

PROBE = """
import json, sys, threading
import numpy
before = set(sys.modules)
import hyperslab
after = set(sys.modules) - before
print(json.dumps({"modules": sorted(after), "threads": [t.name for t in threading.enumerate()]}))
"""


def import_in_a_fresh_process() -> dict[str, list[str]]:
    probe = [sys.executable, "-c", PROBE]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_public_names_are_these() -> None:
    assert sorted(PUBLIC) == PUBLIC
    assert sorted(hyperslab.__all__) == PUBLIC


def test_every_public_name_is_there() -> None:
    missing = [name for name in hyperslab.__all__ if not hasattr(hyperslab, name)]
    assert not missing
    assert set(hyperslab.__all__) <= set(dir(hyperslab))


def test_import_loads_nothing_heavy_and_starts_no_thread() -> None:
    found = import_in_a_fresh_process()
    heavy = {module.partition(".")[0] for module in found["modules"]} & LAZY
    assert not heavy, f"`import hyperslab` also imports {', '.join(sorted(heavy))}"
    assert found["threads"] == ["MainThread"]
