"""What each command prints, what it refuses, and how it ends."""

import json
import os
import re

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from support.arrays import copy_to_memory

from hyperslab import __version__
from hyperslab.cli import command

CELLS = np.arange(5400, dtype="i4").reshape(60, 90)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A group of arrays on disk."""
    place = tmp_path_factory.mktemp("cli") / "store.zarr"
    group = zarr.open_group(place, mode="w", attributes={"title": "a \x1b[31mstore", "many": list(range(500))})
    plain = {"compressors": None, "filters": None}
    group.create_array("plain", data=CELLS, chunks=(20, 30), attributes={"units": "m/s"}, **plain)
    group.create_array("shards", data=CELLS, chunks=(10, 10), shards=(20, 30), dimension_names=("y", "x"))
    group.create_group("deep").create_group("deeper").create_array("v", data=np.arange(3.5))
    bad = place / "unreadable"
    bad.mkdir()
    (bad / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array", "shape": [1]}')
    table = np.zeros(4, [("a", "i4"), ("b", "f8")])
    table["a"] = range(4)
    np.save(place.parent / "fields.npy", table)
    return place


@pytest.fixture
def run(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


def fails(result, *parts, code=1):
    """Check that a run ended with one clear line on stderr and nothing on stdout."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    if code == 1:
        assert result.stderr.startswith("hyperslab: ")
        assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def test_version_and_help(run):
    assert run("--version").output == f"hyperslab {__version__}\n"
    assert all(name in run("--help").output for name in ("info", "ls", "read", "explain", "doctor"))
    for name in ("info", "ls", "read", "explain", "doctor"):
        assert "--storage-option" in run(name, "-h").output


def test_info_of_an_array(run, place):
    result = run("info", place / "shards")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines()[1:])
    assert lines["shape"] == "(60, 90)"
    assert lines["axes"] == "y, x"
    assert lines["shards"] == "(20, 30), 6 chunks each"
    assert lines["encoding"].startswith("encoded: zstd")
    assert '@units  "m/s"' in re.sub(" +", "  ", run("info", place / "plain").stdout)


def test_info_of_a_group(run, place):
    result = run("info", place)
    assert result.exit_code == 0, result.output
    assert "4: deep, plain, shards, unreadable" in result.stdout
    assert "\x1b" not in result.stdout
    assert len(result.stdout) < 2000


def test_ls(run, place):
    result = run("ls", place)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["deep/", "plain", "shards", "unreadable"]
    assert "cannot be read" in result.stdout
    assert "deep/deeper/v" in run("ls", place, "--depth", 3).stdout
    assert "deep/deeper/v" not in run("ls", place, "--depth", 2).stdout
    assert "int32 (60, 90) chunks (20, 30) 21.6 KB" in run("ls", "-l", place).stdout
    assert run("ls", place / "plain").stdout == "plain\n"
    fails(run("ls", place, "--depth", 0), "--depth", code=2)


@pytest.mark.parametrize(
    ("text", "key"),
    [("3, 10:20", np.s_[3, 10:20]), ("-1", -1), ("::-20, [1, 5]", np.s_[::-20, [1, 5]]), ("5, 6", np.s_[5, 6])],
)
def test_read_prints_like_numpy(run, place, text, key, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    result = run("read", place / "plain", text)
    assert result.exit_code == 0, result.output
    with np.printoptions(linewidth=100):
        assert result.stdout == f"{CELLS[key]}\n"


def test_read_of_fields(run, place):
    assert run("read", place.parent / "fields.npy", '"a", 1:3').stdout == "[1 2]\n"
    fails(run("read", place.parent / "fields.npy", '"c"'), "no field named 'c'")


def test_read_into_a_file(run, place, tmp_path):
    out = tmp_path / "out.npy"
    result = run("read", place / "shards", "5:40, ::3", "-o", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert np.array_equal(np.load(out), CELLS[5:40, ::3])
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
    fails(run("read", place / "plain", "0", "-o", out), "exists already; --force replaces it")
    assert np.load(out).shape == (35, 30)
    assert run("read", place / "plain", "0", "-o", out, "--force").exit_code == 0
    assert np.load(out).shape == (90,)
    assert os.listdir(tmp_path) == ["out.npy"]


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_output_that_cannot_be_written_is_refused_before_reading(run, place, tmp_path):
    fails(run("read", place / "plain", "0", "-o", tmp_path), "is a directory")
    fails(run("read", place / "plain", "0", "-o", tmp_path / "no" / "out.npy"), "there is no directory")


def test_too_much_to_print_is_refused(run, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(20_000))
    fails(run("read", tmp_path / "a.npy", "..."), "20,000 cells", "-o out.npy")
    result = run("read", tmp_path / "a.npy", ":9999")
    assert result.exit_code == 0
    assert "..." not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["read", "{}/plain", "foo"], "is no index"),
        (["read", "{}/plain", "99"], "index 99 is out of bounds for axis 0 with size 60"),
        (["read", "{}", "0"], "is a group, not an array: it holds deep, plain, shards, unreadable"),
        (["read", "{}/nope", "0"], "nope"),
        (["info", "{}/unreadable"], ""),
        (["info", "/no/such/place"], "there is no file or directory /no/such/place"),
        (["info", "gopher://x/y"], "gopher:// is not supported"),
        (["info", "s3://bucket/x"], "no credentials"),
        (["info", "{}", "-S", "region=x"], "takes no storage_options"),
        (["explain", "{}/plain", "0", "--phi", "-1"], "phi must be 0 or more"),
        (["explain", "{}/plain", "0", "--phi", "nan"], "phi must be 0 or more"),
        (["explain", "{}/plain", "0", "--plot", "x.doc"], "a picture's file ends in"),
    ],
)
def test_errors_are_one_line(run, place, arguments, part):
    fails(run(*(argument.format(place) for argument in arguments)), part)


def test_wrong_usage_is_2(run, place):
    fails(run("read", place), "Missing argument 'KEY'", code=2)
    fails(run("explain", place, "0", "--method", "best"), "--method", code=2)
    fails(run("brew"), "No such command", code=2)
    fails(run("read", place, "0", "--no-such-option"), code=2)


def test_debug_shows_the_trace(run, place):
    result = run("--debug", "read", place / "plain", "99")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "Traceback" not in run("read", place / "plain", "99").stderr


def test_explain(run, place):
    result = run("explain", place / "plain", "3:9, 20:61")
    assert result.exit_code == 0, result.output
    assert "copied from memory-mapped files" in result.stdout
    assert "\x1b" not in result.stdout
    forced = run("explain", place / "plain", "3:9, 20:61", "--method", "fetch", "--phi", "inf").stdout
    assert "fetch: only the needed bytes (forced)" in forced
    assert "phi infinity" in forced


def test_explain_and_analyze(run, place):
    result = run("explain", place / "plain", "3:9, 20:61", "--analyze")
    assert "the model's error" in result.stdout
    found = json.loads(run("explain", place / "plain", "3:9, 20:61", "--analyze", "--json").stdout)
    assert found["measured"]["bytes"] == 6 * 41 * 4
    assert "measured" not in json.loads(run("explain", place / "plain", "3", "--json").stdout)


def test_explain_draws(run, place, tmp_path):
    pytest.importorskip("matplotlib")
    for kind in ("png", "svg"):
        path = tmp_path / f"plan.{kind}"
        assert run("explain", place / "plain", "3:9, 20:61", "--plot", path).exit_code == 0
        assert path.stat().st_size > 1000


def test_memory_and_s3_by_endpoint(run, place, fake_s3):
    copy_to_memory(place, "cli")
    assert run("read", "memory://cli/store.zarr/plain", "0, :3").stdout == "[0 1 2]\n"
    for path in place.rglob("*"):
        if path.is_file():
            fake_s3.fake.objects[f"bucket/{path.relative_to(place.parent).as_posix()}"] = path.read_bytes()
    reach = ["--endpoint", fake_s3.endpoint, "--anonymous"]
    assert run("read", "s3://bucket/store.zarr/plain", "0, :3", *reach).stdout == "[0 1 2]\n"
    result = run(
        "explain", "s3://bucket/store.zarr/plain", "0, :3", "-S", f"endpoint={fake_s3.endpoint}", "--anonymous"
    )
    assert "s3 (typical, not measured)" in result.stdout


SECRET = "very-secret-0123"


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_secrets_are_never_printed(run, monkeypatch, place, debug):
    login = ["-S", "access_key_id=AKIDEXAMPLE", "-S", f"secret_access_key={SECRET}"]
    tries = [
        ["info", f"s3://{SECRET}@bucket/x", *login],
        ["info", "s3://bucket/x", "-S", SECRET],
        ["info", "s3://bucket/x", "-S", f"={SECRET}"],
        ["info", "s3://bucket/x", "-S", f"secret_acces_key={SECRET}"],
        ["info", "s3://bucket/x", "--endpoint", "http://127.0.0.1:1", *login],
        ["info", place / SECRET, *login],
    ]
    for arguments in tries:
        result = run(*debug, *arguments)
        assert result.exit_code in (1, 2)
        assert SECRET not in result.output + result.stderr, arguments
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert SECRET not in run(*debug, "info", f"/no/{SECRET}").stderr


def test_a_mistake_of_ours_is_told_in_one_line(run, place, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("hyperslab.cli.reading.parse_key", broken)
    fails(run("read", place / "plain", "0"), "ZeroDivisionError: division by zero", "--debug")
    monkeypatch.setattr("hyperslab.cli.reading.parse_key", lambda text: (_ for _ in ()).throw(MemoryError()))
    fails(run("read", place / "plain", "0"), "not enough memory")


def test_an_interrupt_is_quiet(run, place, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hyperslab.cli.reading.parse_key", interrupted)
    result = run("read", place / "plain", "0")
    assert (result.exit_code, result.output) == (130, "")


def test_a_function_is_called_with_the_key_of_the_environment(run, place, monkeypatch):
    monkeypatch.setenv("HYPERSLAB_FUNCTION_KEY", "me:nothexadecimal")
    result = run("explain", place / "plain", "0", "--function", "http://127.0.0.1:1/")
    fails(result, "a signing key is written 'name:secret'")
    assert "nothexadecimal" not in result.output + result.stderr


def test_doctor(run, place, monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))
    monkeypatch.delenv("HYPERSLAB_FUNCTION_URL", raising=False)
    result = run("doctor", "--url", place)
    assert result.exit_code == 0, result.output
    found = dict(re.findall(r"^(?:ok|absent) +(\S+(?: files)?) +(.*)$", result.stdout, re.MULTILINE))
    assert found["hyperslab"].startswith(__version__)
    assert "written and read" in found["local files"]
    assert "runtime of its own" in found["forking"]
    assert "hyperslab.Group" in found[str(place)]
    assert "aws of 20" in found["prices"]
    assert "no store yet" in found["measured"]
    assert "HYPERSLAB_FUNCTION_URL" in found["function"]
    assert "failed" not in result.stdout


def test_doctor_finds_what_fails(run, monkeypatch, fake_s3, tmp_path):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))
    monkeypatch.setattr("hyperslab.cli.doctor._try_fork", lambda: "not tried")
    monkeypatch.setattr("hyperslab.cli.doctor._DEPENDENCIES", {"no-such-package": "no_such_package"})
    monkeypatch.setattr("hyperslab.cli.doctor._EXTRAS", {"plot": ("numpy", "no_such_module")})
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HYPERSLAB_FUNCTION_URL", "http://127.0.0.1:1/")
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "mine.toml").write_text("provider = 1")
    result = run("doctor")
    assert result.exit_code == 1
    for line in (
        r"failed  no-such-package .*pip install no-such-package",
        r"absent  \[plot\] .*pip install 'hyperslab\[plot\]'",
        r"failed  local files .*set TMPDIR",
        r"failed  s3 .*is the server running",
        r"failed  function .*is HYPERSLAB_FUNCTION_URL right",
        r"failed  prices .*mine\.toml",
    ):
        assert re.search(line, result.stdout), line
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake_s3.endpoint)
    monkeypatch.setenv("HYPERSLAB_FUNCTION_URL", fake_s3.endpoint)
    assert re.search(r"ok      s3 .*answers", run("doctor").stdout)
