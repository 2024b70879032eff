"""A key as text: what stands between the brackets in NumPy, understood without running it."""

import ast
from typing import Any

from hyperslab.errors import SelectionError

__all__ = ["parse_key"]

_MOST_CHARACTERS = 100_000
# Lists within lists are masks; no array has more axes.
_MOST_DEPTH = 32
_HINT = "write it as between NumPy's brackets, such as '3, 10:40, ::2', '...', '[1, 5, 9]' or '\"field\", 0:5'"


def parse_key(text: str) -> Any:
    """Return the key that `array[text]` would have.

    Integers, slices, `...`, None, lists of integers, masks and names of fields; nothing else, and nothing is
    ever run. Raises SelectionError for what it does not know.

    >>> parse_key("3, 10:40, ::-2")
    (3, slice(10, 40, None), slice(None, None, -2))
    >>> parse_key("'wind', [1, 5, 9], ...")
    ('wind', [1, 5, 9], Ellipsis)
    """
    if len(text) > _MOST_CHARACTERS:
        raise SelectionError(f"the key has {len(text):,} characters, at most {_MOST_CHARACTERS:,} are read; use Python")
    if not text.strip():
        raise SelectionError("the key is empty; '...' selects the whole array")
    try:
        tree = ast.parse(f"_[{text.strip()}]", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _refused(text, "is not a key") from None
    if not (isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name) and tree.value.id == "_"):
        raise _refused(text, "is not a key")
    if isinstance(tree.slice, ast.Tuple):
        return tuple(_item(node, text) for node in tree.slice.elts)
    return _item(tree.slice, text)


def _item(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(_bound(part, text) for part in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.List):
        return _listed(node, text, 1)
    if isinstance(node, ast.Constant) and (node.value is None or node.value is ... or isinstance(node.value, str)):
        return node.value
    return _integer(node, text)


def _bound(node: ast.expr | None, text: str) -> int | None:
    absent = node is None or (isinstance(node, ast.Constant) and node.value is None)
    return None if absent or node is None else _integer(node, text)


def _listed(node: ast.List, text: str, depth: int) -> list[Any]:
    if depth > _MOST_DEPTH:
        raise _refused(text, "has lists nested too deeply")
    return [_element(each, text, depth) for each in node.elts]


def _element(node: ast.expr, text: str, depth: int) -> Any:
    if isinstance(node, ast.List):
        return _listed(node, text, depth + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | str):
        return node.value
    return _integer(node, text)


def _integer(node: ast.expr, text: str) -> int:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sign * node.value
    part = ast.get_source_segment(f"_[{text.strip()}]", node) or ""
    raise _refused(text, f"holds {_clip(part)!r}, which is no index")


def _refused(text: str, why: str) -> SelectionError:
    return SelectionError(f"{_clip(text.strip())!r} {why}; {_HINT}")


def _clip(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
