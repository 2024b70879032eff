import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hyperslab.cli.building import build_function, show_new_key
from hyperslab.errors import HyperslabError, InternalError, InvalidInputError
from hyperslab.functions import build
from hyperslab.functions.build import build_bundle
from hyperslab.functions.deploy import deployment_files
from hyperslab.functions.reached import reached
from hyperslab.store.signing import SigningKey

ROOT = Path(__file__).parents[3]


def test_only_what_a_handler_needs_is_reached() -> None:
    found = reached("hyperslab.functions.aws")
    assert {"hyperslab.functions.handler", "hyperslab.layout.compressors", "hyperslab.store.s3"} <= found.modules.keys()
    rooms = {name.split(".")[1] for name in found.modules}
    assert rooms == {"errors", "functions", "layout", "store"}
    assert (
        not {"hyperslab.functions.build", "hyperslab.functions.asgi", "hyperslab.store.function"} & found.modules.keys()
    )
    assert found.packages == {"numpy", "obstore", "numcodecs", "zlib_ng", "zstandard", "google_crc32c"}


def test_a_module_that_is_not_there_is_our_mistake() -> None:
    with pytest.raises(InternalError):
        reached("hyperslab.nothing")


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = {name: need for name, need in build._REQUIREMENTS.items() if name != "azure"}
    assert set(own.values()) <= set(project["dependencies"])


@pytest.mark.parametrize(("target", "entry"), [("gcp", "main.py"), ("azure", "function_app.py")])
def test_a_bundle_that_the_provider_completes(target: Any, entry: str, tmp_path: Path) -> None:
    said: list[str] = []
    bundle = build_bundle(target, tmp_path / "out", say=said.append)
    function = tmp_path / "out" / "function"
    files = {path.relative_to(function).as_posix() for path in function.rglob("*") if path.is_file()}
    assert {entry, "requirements.txt", "hyperslab/__init__.py", "hyperslab/functions/handler.py"} <= files
    assert not [name for name in files if "plan" in name or "cli" in name or name.endswith((".pyc", ".so"))]
    assert ast.parse((function / entry).read_text())
    assert "numpy>=2" in (function / "requirements.txt").read_text().splitlines()
    assert len(ast.parse((function / "hyperslab/__init__.py").read_text()).body) == 1
    assert bundle.nbytes == sum([path.stat().st_size for path in function.rglob("*") if path.is_file()])
    with zipfile.ZipFile(tmp_path / "out" / "function.zip") as archive:
        assert archive.namelist() == sorted(files)
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert said[0].startswith("copying")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_bundle_runs_alone(tmp_path: Path) -> None:
    """The copied modules import each other and nothing of the rest."""
    build_bundle("gcp", tmp_path / "out")
    program = "import main, hyperslab, sys; print(hyperslab.__file__, *[n for n in sys.modules if 'hyperslab.' in n])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path / "out/function", check=True,
        env={"PYTHONPATH": str(tmp_path / "out/function")},
    )  # fmt: skip
    path, *modules = done.stdout.split()
    assert Path(path) == tmp_path / "out/function/hyperslab/__init__.py"
    assert set(modules) <= reached("hyperslab.functions.google").modules.keys()


def test_the_same_bundle_has_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        build_bundle("azure", tmp_path / name)
    assert (tmp_path / "a/function.zip").read_bytes() == (tmp_path / "b/function.zip").read_bytes()


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="--force"):
        build_bundle("gcp", tmp_path)
    build_bundle("gcp", tmp_path, force=True)
    (tmp_path / "function" / "stale.py").write_text("")
    build_bundle("gcp", tmp_path, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "function" / "stale.py").exists()
    with pytest.raises(InvalidInputError, match="exists already"):
        build_bundle("gcp", tmp_path / "mine.txt", force=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": "ibm"},
        {"python": "2.7"},
        {"architecture": "mips"},
        {"roots": ["gs://bucket"]},
        {"roots": ["bucket"]},
        {"roots": ["s3://me:secret@bucket"]},
    ],
)
def test_wrong_arguments_leave_nothing(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        build_bundle(**{"target": "aws", "folder": tmp_path / "out", **wrong})
    assert not list(tmp_path.iterdir())


def test_what_pip_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(HyperslabError, match=r"pip could not install .*No matching distribution found"):
        build_bundle("aws", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_permissions_are_the_least() -> None:
    files = deployment_files("aws", ["s3://data/run/1", "s3://open"], "3.12", "x86_64")
    reading, logging = json.loads(files["policy.json"])["Statement"]
    assert reading["Action"] == "s3:GetObject"
    assert reading["Resource"] == ["arn:aws:s3:::data/run/1/*", "arn:aws:s3:::open/*"]
    assert {action.split(":")[0] for action in logging["Action"]} == {"logs"}
    settings = json.loads(files["environment.json"])["Variables"]
    assert settings["HYPERSLAB_FUNCTION_ROOTS"] == "s3://data/run/1,s3://open"
    assert json.loads(files["trust.json"])["Statement"][0]["Action"] == "sts:AssumeRole"


@pytest.mark.parametrize("target", ["aws", "gcp", "azure"])
def test_the_steps_name_what_lies_beside_them(target: str) -> None:
    files = deployment_files(target, [], "3.12", "x86_64")
    steps = files["DEPLOY.md"]
    assert "$" not in steps.replace("$(", "")
    named = set(re.findall(r"(?:fileb?://|--source=|--env-vars-file=|settings @)([a-z.-]+)", steps))
    assert named <= {*files, "function", "function.zip"}
    assert "environment.json" in named
    assert max([len(line) for line in steps.splitlines()]) <= 120


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_function("gcp", output=str(tmp_path / "out"))
    out, progress = capsys.readouterr()
    assert re.search(r"function.zip: 0\.\d MiB to upload", out)
    assert "DEPLOY.md" in out
    assert "» copying" in progress
    shutil.rmtree(tmp_path / "out")


def test_a_new_key_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    show_new_key("lab")
    first = SigningKey.parse(capsys.readouterr().out)
    show_new_key("lab")
    assert first.id == "lab"
    assert SigningKey.parse(capsys.readouterr().out) != first
