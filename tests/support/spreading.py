"""Which tests go to the same worker: those that share what takes seconds to set up, so that it is set up once.

All others go to whichever worker is free, one by one. Groups are handed out first, the largest before the
others, so that what is left for the end is small. xdist's own mark for this, `xdist_group`, works by changing
the ids of tests, which newer versions of pytest do not let it do; here, the path of a test decides.
"""

from typing import Any

__all__ = ["SHARED", "group_of", "scheduler"]

# How the path of a test begins → what its tests share.
SHARED = {
    "tests/bench/test_counts.py": "the peers' servers and data",
    "tests/faults/test_function_memory.py": "a function's server",
    "tests/property/test_calls.py": "a function's server and a proxy",
    "tests/servers/test_azure_store.py": "Azurite",
    "tests/servers/test_function_runtimes.py": "bundles that pip builds, and the runtimes that run them",
    "tests/servers/test_writes_clouds.py": "Azurite",
    "tests/unit/rechunk/test_cluster.py": "a cluster of Dask",
    "tests/unit/stencil/": "a cluster of Dask, and what Numba compiles of stencils",
    "tests/unit/tune/placement/": "what Numba compiles of the planner",
}


def group_of(nodeid: str) -> str:
    """Return the name of the group that a test belongs to: the same for all that share something, else its own."""
    return next((shared for start, shared in SHARED.items() if nodeid.startswith(start)), nodeid)


def scheduler(config: Any, log: Any) -> Any:
    """Return xdist's scheduler with groups by path for `--dist loadgroup`, else None: xdist's own choice."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByWhatIsShared(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByWhatIsShared(config, log)
