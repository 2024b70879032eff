"""The end of a program: nothing of ours is left running that would call back into Python."""

import subprocess
import sys

SCRIPT = """
import atexit
atexit.register(lambda: print("closed:", kept.closed, default_session().closed))
import numpy as np, hyperslab as hs
from hyperslab.execute.session import default_session
kept = hs.Session()
hs.save("memory://store/a.zarr", np.arange(9), session=kept)
for session in (kept, None):
    assert hs.open("memory://store/a.zarr", session=session)[4] == 4
default = default_session()
default_session = lambda: default
"""


def test_sessions_that_nobody_closed_are_closed_at_the_end():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "closed: True True\n"), ended.stderr
