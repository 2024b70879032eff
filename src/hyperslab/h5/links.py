"""Paths that lead through links: soft ones to another place in the file, external ones into another file."""

from typing import Any

import h5py

from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.h5.nodes import Link, Node, Tree, join, split

__all__ = ["as_h5py", "find", "from_h5py", "holder"]

_MOST_LINKS = 64


def find(tree: Tree, path: str, links: int = 0) -> tuple[Tree, Node]:
    """Return what is at a path, with the tree that it is in; NotFoundError if a link leads nowhere."""
    try:
        return tree, tree.open(path)
    except (NotFoundError, InvalidInputError, UnsupportedError) as error:
        found = _through_link(tree, path, links)
        if found is None:
            raise _not_found(tree, path, error) from None
        return found


def holder(tree: Tree, path: str) -> tuple[Tree, str]:
    """Return where the last name of a path is: the tree and path with all links before it followed."""
    above, name = split(path)
    if not above:
        return tree, path
    place, node = find(tree, above)
    return place, join(node.path, name)


def as_h5py(link: Link) -> Any:
    """Return a link as h5py has it."""
    if link.kind == "soft":
        return h5py.SoftLink(link.path)
    return h5py.HardLink() if link.kind == "hard" else h5py.ExternalLink(link.file, link.path)


def from_h5py(link: Any) -> Link:
    """Return a soft or external link of h5py's."""
    if isinstance(link, h5py.SoftLink):
        return Link("soft", link.path)
    return Link("external", link.path, str(link.filename))


def _through_link(tree: Tree, path: str, links: int) -> tuple[Tree, Node] | None:
    """Follow the first link on a path; None if there is none."""
    if links >= _MOST_LINKS:
        raise NotFoundError(f"{path!r} of {tree.url!r} leads through more than {_MOST_LINKS} links")
    names = path.split("/")
    for n in range(1, len(names) + 1):
        link = tree.link("/".join(names[:n]))
        if link is None:
            return None
        if link.kind == "hard":
            continue
        if link.kind == "external":
            try:
                other = tree.file.open_beside(link.file)
            except HyperslabError as error:
                raise NotFoundError(f"{path!r} leads to {link.path!r} of {link.file!r}: {error}") from error
            return find(other, join(link.path, *names[n:]), links + 1)
        start = "" if link.path.startswith("/") else "/".join(names[: n - 1])
        return find(tree, join(start, link.path, *names[n:]), links + 1)
    return None


def _not_found(tree: Tree, path: str, error: HyperslabError) -> HyperslabError:
    """Return the error for a path that leads nowhere; what is there and cannot be read keeps its own."""
    return error if isinstance(error, UnsupportedError) else NotFoundError(f"{tree.url!r} has no object {path!r}")
