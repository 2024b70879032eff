"""Everything below a group, one after the other, in the order of names."""

from collections.abc import Callable, Iterator
from typing import Any

from hyperslab.h5.nodes import GroupNode, Link, Node, Tree, join

__all__ = ["visit_links", "visit_objects"]


def visit_objects(tree: Tree, start: GroupNode, visit: Callable[[str, Node], Any]) -> Any:
    """Call `visit` for every object below, once even if several paths lead to it, until it returns something."""
    seen = {start.identity}
    for name, link in _below(tree, start.path):
        path, node = name, None
        if link.kind == "hard":
            node = tree.open(join(start.path, path))
        if node is None or node.identity in seen:
            continue
        seen.add(node.identity)
        if (found := visit(path, node)) is not None:
            return found
    return None


def visit_links(tree: Tree, start: GroupNode, visit: Callable[[str, Link], Any]) -> Any:
    """Call `visit` for every name below with what it is, until it returns something."""
    for name, link in _below(tree, start.path):
        if (found := visit(name, link)) is not None:
            return found
    return None


def _below(tree: Tree, start: str) -> Iterator[tuple[str, Link]]:
    """Yield the names below a group, as paths from it, with what they are; no group is entered twice."""
    # Groups being gone through, innermost last: they may be nested deeper than Python's calls.
    open_groups: list[tuple[str, Iterator[str]]] = [("", iter(tree.names(start)))]
    entered = {tree.open(start).identity}
    while open_groups:
        group, names = open_groups[-1]
        if (name := next(names, None)) is None:
            open_groups.pop()
            continue
        path = join(group, name)
        link = tree.link(join(start, path))
        if link is None:
            continue  # deleted meanwhile
        yield path, link
        if link.kind == "hard":
            node = tree.open(join(start, path))
            if isinstance(node, GroupNode) and node.identity not in entered:
                entered.add(node.identity)
                open_groups.append((path, iter(tree.names(node.path))))
