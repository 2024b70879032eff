"""Rules of the house that no linter knows: sizes, names, what is never done, errors that travel."""

import ast
import pickle
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.spreading import SHARED, group_of

from hyperslab import errors

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "hyperslab"
FILES = sorted(SRC.rglob("*.py"))
MOST_LINES = 600
MOST_FACADE_LINES = 5
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
# They run what the data says. Nothing that is read may ever be run.
UNSAFE_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}
FOR_DEVELOPERS = {"test", "servers", "oracles", "runtimes", "bench", "lint"}

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "ChunkSizeError": ("a/c/0/0", 12, 16),
    "BudgetError": ("the read needs 3 requests, the budget allows 2", {"requests": 3}),
    "StencilError": ("the function failed at cell (1, 2)", (1, 2)),
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


in_each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))


def unsafe_uses(tree: ast.AST) -> Iterator[str]:
    """Yield what in `tree` could run what the data says."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in UNSAFE_MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in UNSAFE_MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
                yield f"{name}() in line {node.lineno}"
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield f"allow_pickle in line {value.lineno}"


@in_each_file
def test_file_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@in_each_file
def test_module_name_says_something(path: Path) -> None:
    assert not {part.removesuffix(".py") for part in path.relative_to(SRC).parts} & VAGUE


@in_each_file
def test_nothing_read_is_ever_run(path: Path) -> None:
    assert not list(unsafe_uses(tree_of(path)))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import dill.source as d",
        "from pickle import loads",
        "def f():\n    return eval('1')",
        "exec(code)",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=flag)",
    ],
)
def test_unsafe_source_is_found(source: str) -> None:
    assert list(unsafe_uses(ast.parse(source)))


@pytest.mark.parametrize("source", ["import json", "np.load(f, allow_pickle=False)", "plan.exec()", "literal_eval(x)"])
def test_safe_source_is_not(source: str) -> None:
    assert not list(unsafe_uses(ast.parse(source)))


def imported_packages(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level names of what `tree` imports that is neither Python's nor ours."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                roots = [name.name.partition(".")[0] for name in names]
            case ast.ImportFrom(module=str(module), level=0):
                roots = [module.partition(".")[0]]
            case _:
                continue
        yield from (root for root in roots if root not in {*sys.stdlib_module_names, "hyperslab"})


@cache
def declared() -> frozenset[str]:
    """Return the packages that Hyperslab or one of its extras for users needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    needs = project["dependencies"] + [n for name, ns in extras if name not in FOR_DEVELOPERS for n in ns]
    return frozenset(re.split(r"[^A-Za-z0-9_.-]", need, maxsplit=1)[0] for need in needs)


@in_each_file
def test_what_is_imported_is_declared(path: Path) -> None:
    found = imported_packages(tree_of(path))
    used = {{"PIL": "pillow"}.get(name, name).replace("_", "-") for name in found}
    assert used <= declared(), f"not in pyproject.toml: {', '.join(sorted(used - declared()))}"


def facade_methods() -> list[tuple[str, int]]:
    """Return the methods of the facade with the lines of their bodies, docstrings not counted."""
    facade = SRC / "array.py"
    if not facade.exists():
        return []
    found = []
    for owner in ast.parse(facade.read_text(encoding="utf-8")).body:
        if not isinstance(owner, ast.ClassDef):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                body = method.body[1:] if ast.get_docstring(method) is not None else method.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                found.append((f"{owner.name}.{method.name}", lines))
    return found


def test_facade_methods_are_thin() -> None:
    thick = [f"{name} ({lines} lines)" for name, lines in facade_methods() if lines > MOST_FACADE_LINES]
    assert not thick, f"move the work into a room: {', '.join(thick)}"


@pytest.mark.parametrize("name", errors.__all__)
def test_error_crosses_a_process_border_whole(name: str) -> None:
    kind = getattr(errors, name)
    error = kind(*ARGUMENTS.get(name, ("what was expected, what was found, what to do",)))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.args, str(copy), vars(copy)) == (error.args, str(error), vars(error))
    assert str(error)


def test_every_error_is_public_and_in_the_tree() -> None:
    kinds = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    defined = {name for name, kind in kinds.items() if issubclass(kind, Exception)}
    assert defined == set(errors.__all__)
    assert errors.__doc__ is not None
    for name in defined:
        assert issubclass(getattr(errors, name), errors.HyperslabError)
        assert name in errors.__doc__


def test_tests_that_share_a_worker_are_where_it_is_said() -> None:
    assert all((ROOT / path).exists() for path in SHARED)
    azure, google = (group_of(f"tests/servers/test_{name}_store.py::test_a[1]") for name in ("azure", "gs"))
    assert azure == group_of("tests/servers/test_writes_clouds.py::test_b")
    assert google.endswith("::test_a[1]")
