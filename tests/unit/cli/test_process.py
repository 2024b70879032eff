"""The command as a process of its own: pipes, signals and exit codes."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.hostile import wait_until
from support.s3proxy import Rule

SOURCES = str(Path(__file__).parents[3] / "src")
COMMAND = [sys.executable, "-m", "hyperslab"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCES, "TERM": "xterm-256color", "COLUMNS": "100"}


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(9000))
    return str(tmp_path / "a.npy")


def run(*arguments):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )


def test_output_and_exit_codes(array):
    done = run("read", array, "5:8")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[5 6 7]\n", "")
    done = run("read", array, "9999")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hyperslab: index 9999 is out of bounds for axis 0 with size 9000\n"


def test_a_closed_pipe_is_quiet(array):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "read", array, ":"], stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_interrupt_ends_a_read_quietly(array, fake_s3):
    fake_s3.fake.objects["bucket/a.npy"] = Path(array).read_bytes()
    fake_s3.rules.append(Rule("stall", skip=1))
    reach = ["--endpoint", fake_s3.endpoint, "--anonymous"]
    process = subprocess.Popen(
        [*COMMAND, "read", "s3://bucket/a.npy", ":", *reach],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert wait_until(lambda: len(fake_s3.log) == 2, 60)  # the second is the one that stalls
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_warning_is_one_line(array, tmp_path):
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "old.toml").write_text('provider = "aws"\ndated = "2020-01"\n')
    done = subprocess.run(
        [*COMMAND, "explain", array, "5", "--prices", "aws"],
        capture_output=True, text=True, env={**ENVIRONMENT, "HYPERSLAB_HOME": str(tmp_path)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.startswith("hyperslab: warning: the prices of aws are dated 2020-01")
    assert done.stderr.count("\n") == 1


def test_a_terminal_gets_colours(array):
    main, side = pty.openpty()
    process = subprocess.Popen([*COMMAND, "explain", array, "5:8"], stdout=side, stderr=side, env=ENVIRONMENT)
    os.close(side)
    shown = b""
    waiting = select.poll()  # `select` knows no descriptor above 1023
    waiting.register(main, select.POLLIN)
    while waiting.poll(60_000):
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait(60) == 0
    os.close(main)
    assert b"\x1b[1;32m" in shown
    assert b"memory-mapped" in shown
