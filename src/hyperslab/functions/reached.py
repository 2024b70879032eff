"""What a module needs to run: the modules of ours that it imports, one from another, and the packages of others."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hyperslab.errors import InternalError

__all__ = ["Reached", "reached"]

_OURS = "hyperslab"


@dataclass(frozen=True, slots=True)
class Reached:
    """Modules of ours, each with its file, and the names that packages of others are imported by.

    The package `hyperslab` itself is not among them: nobody imports from it, and it would import everything.
    """

    modules: dict[str, Path]
    packages: frozenset[str]


@cache
def reached(start: str) -> Reached:
    """Return all that importing a module of ours can import, also what is imported only when it is used.

    >>> sorted(reached("hyperslab.errors").modules)
    ['hyperslab.errors']
    """
    modules: dict[str, Path] = {}
    packages: set[str] = set()
    left = [start]
    while left:
        name = left.pop()
        if name in modules or name == _OURS:
            continue
        path = _file(name)
        if path is None:  # a function or class of a module, which is itself on the list
            continue
        modules[name] = path
        left.append(name.rpartition(".")[0])
        for found in _imports(ast.parse(path.read_text(encoding="utf-8"))):
            if found.partition(".")[0] == _OURS:
                left.append(found)
            elif found.partition(".")[0] not in sys.stdlib_module_names:
                packages.add(found.partition(".")[0])
    if start not in modules:
        raise InternalError(f"there is no module {start}")
    return Reached(dict(sorted(modules.items())), frozenset(packages))


def _file(name: str) -> Path | None:
    path = Path(__file__).parents[2].joinpath(*name.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((each for each in candidates if each.is_file()), None)


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{each.name}" for each in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
                yield module
