"""Which instructions compiled loops may use: those of the processor that numba compiles for."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")
SCRIPT = "from hyperslab.layout.instructions import has_crc32c; print(has_crc32c())"


@pytest.mark.parametrize(
    "settings",
    [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse4.2"}],
    ids=["generic", "without it"],
)
def test_no_instruction_is_used_that_is_not_compiled_for(settings):
    """The compiler would end the program."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **settings}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert ended.stdout == "False\n"
