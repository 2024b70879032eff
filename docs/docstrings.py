"""Writes the reference pages from docstrings: `make docs-reference`.

A page in reference/ is Markdown as any other, with places that are filled in here:

    <!-- from docstrings: hyperslab.open hyperslab.Session(close share) -->
    ...
    <!-- end -->

A class is shown with all its public methods and properties, or with those that stand in brackets; of a module its
docstring. `<!-- from docstrings: all a.md b.md -->` becomes a list of all that these pages have. What stands between
the two lines is written anew; it is committed, so that pages can be read without a build. With `--check` nothing is
written, and a page that is not as its docstrings are is an error.
"""

import importlib
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent / "reference"
PLACE = re.compile(r"(?P<start><!-- from docstrings: (?P<wanted>[^>]*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
WANTED = re.compile(r"(?P<path>[\w.]+)(?:\((?P<members>[^)]*)\))?")
ARGUMENT = re.compile(r"^(?P<names>\S(?:.*?\S)?) {2,}(?P<text>\S.*)$")
HEADING = re.compile(r"^# (?P<title>.+)$", re.MULTILINE)
WIDTH = 96
# Classes that users get from functions, and do not call.
GIVEN = frozenset({
    "Advice", "Analysis", "Array", "AttributeManager", "Collection", "CollectionAdvice", "Dataset", "Datatype",
    "DimensionManager", "DimensionProxy", "Explanation", "Group", "HyperslabDataStore", "LazyArray", "Measurement",
    "Padded", "ReadRecord", "StencilPlan", "StoredVariable", "Tensor", "TensorTable", "Workload",
})  # fmt: skip
# Modules whose members users import by name.
ADAPTERS = frozenset({"hyperslab.h5", "hyperslab.torch", "hyperslab.xarray", "hyperslab.zarr"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A public name: how pages call it, what it is, and of a class the members to show (None: all)."""

    name: str
    thing: Any
    members: tuple[str, ...] | None


def entries_of(wanted: str) -> Iterator[Entry]:
    """Yield what the first line of a place asks for.

    >>> [entry.name for entry in entries_of("hyperslab.open hyperslab.torch.pad hyperslab.Session(close share)")]
    ['hs.open', 'hyperslab.torch.pad', 'hs.Session']
    """
    for found in WANTED.finditer(wanted):
        module, _, name = found["path"].rpartition(".")
        members = None if found["members"] is None else tuple(found["members"].split())
        thing = getattr(importlib.import_module(module), name, None)
        if thing is None or inspect.ismodule(thing):
            thing = importlib.import_module(found["path"])
        yield Entry(shown_name(module, name), thing, members)


def shown_name(module: str, name: str) -> str:
    if module == "hyperslab":
        return f"hs.{name}"
    return f"{module}.{name}" if module in ADAPTERS else name


def public_members(entry: Entry) -> list[tuple[str, Any]]:
    """Return names and functions of the methods and properties that have something to say, in the order of the code."""
    own = vars(entry.thing)
    names = [name for name in own if not name.startswith("_")] if entry.members is None else entry.members
    found = [(name, inspect.getattr_static(entry.thing, name)) for name in names]
    kinds = (property, classmethod, staticmethod)
    shown = [(name, thing) for name, thing in found if inspect.isfunction(thing) or isinstance(thing, kinds)]
    return [(name, thing) for name, thing in shown if function_of(thing).__doc__]


def function_of(member: Any) -> Callable[..., Any]:
    if isinstance(member, property):
        return member.fget  # type: ignore[return-value]
    return getattr(member, "__func__", member)  # type: ignore[no-any-return]


def signature(name: str, function: Any, *, bound: bool) -> str:
    """Return how something is called, by names and defaults: types are told in words.

    >>> def read(self, key=..., *, phi: float | None = None, **options): ...
    >>> signature("Array.read", read, bound=True)
    'Array.read(key=..., *, phi=None, **options)'
    """
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    plain = [each.replace(default=Shown(each.default)) if each.default is not each.empty else each for each in bare]
    return name + str(inspect.Signature(plain))


class Shown:
    """A default as one would type it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if self.value is ...:
            return "..."
        if callable(self.value):
            return str(self.value.__name__)
        return repr(self.value).replace("'", '"')


def folded(call: str) -> str:
    """Break a signature that is too long for a line between its parameters."""
    if len(call) <= WIDTH:
        return call
    name, _, rest = call.partition("(")
    body = rest.removesuffix(")")
    return f"{name}(\n{textwrap.fill(body + ',', WIDTH, initial_indent='    ', subsequent_indent='    ')}\n)"


def markdown(docstring: str) -> str:
    r"""Turn a docstring into Markdown: doctests are fenced, columns of arguments become tables.

    >>> print(markdown("Read.\n\nkey   what to read\nout   where to,\n      if anywhere"))
    Read.
    <BLANKLINE>
    | | |
    |---|---|
    | `key` | what to read |
    | `out` | where to, if anywhere |
    """
    return "\n\n".join(part_as_markdown(part) for part in re.split(r"\n\n+", docstring.strip()))


def part_as_markdown(part: str) -> str:
    lines = part.splitlines()
    if lines[0].startswith(">>>"):
        return "```pycon\n" + part + "\n```"
    if all(line.startswith("    ") for line in lines):
        return part
    tops = [line for line in lines if not line.startswith("  ")]
    if all(ARGUMENT.match(line) for line in tops):
        return table(rows_of(lines))
    return part


def rows_of(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of columns, with the lines that a text goes on in."""
    joined: list[str] = []
    for line in lines:
        if line.startswith("  ") and joined:
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
    for line in joined:
        found = ARGUMENT.match(line)
        assert found is not None, line
        yield ", ".join(f"`{name}`" for name in found["names"].split(", ")), found["text"]


def table(rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    cells = [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join(["| | |", "|---|---|", *cells])


def described(entry: Entry) -> str:
    """Return the Markdown of one public name, with the members of a class."""
    text = inspect.getdoc(entry.thing)
    assert text, f"{entry.name} has no docstring"
    if inspect.ismodule(entry.thing):
        return markdown(text)
    parts = [f"### {entry.name}"]
    if entry.thing.__name__ not in GIVEN:
        parts.append(fenced(signature(entry.name, entry.thing, bound=False)))
    parts.append(markdown(text))
    if inspect.isclass(entry.thing):
        parts.extend(described_members(entry))
    return "\n\n".join(parts)


def errors_table(entries: list[Entry]) -> str:
    return table([(f"`{entry.thing.__name__}`", one_line(inspect.getdoc(entry.thing) or "")) for entry in entries])


def described_members(entry: Entry) -> Iterator[str]:
    owner = entry.name.rpartition(".")[2]
    members = public_members(entry)
    short = [(name, member) for name, member in members if "\n\n" not in documented(member)]
    if short:
        yield table([(f"`{called(name, member)}`", one_line(documented(member))) for name, member in short])
    for name, member in members:
        if (name, member) not in short:
            call = fenced(called(f"{owner}.{name}", member))
            yield "\n\n".join([f"#### {owner}.{name}", call, markdown(documented(member))])


def called(name: str, member: Any) -> str:
    if isinstance(member, property):
        return name
    return signature(name, function_of(member), bound=not isinstance(member, staticmethod))


def documented(member: Any) -> str:
    return inspect.cleandoc(function_of(member).__doc__ or "")


def one_line(text: str) -> str:
    return " ".join(text.split())


def fenced(call: str) -> str:
    return f"```py\n{folded(call)}\n```"


def filled(page: str) -> str:
    """Return a page with its places written anew, but for lists of all names."""

    def fill(place: re.Match[str]) -> str:
        if place["wanted"].startswith("all "):
            return place[0]
        entries = list(entries_of(place["wanted"]))
        if all(isinstance(entry.thing, type) and issubclass(entry.thing, Exception) for entry in entries):
            body = errors_table(entries)
        else:
            body = "\n\n".join(described(entry) for entry in entries)
        return f"{place['start']}\n{body}\n\n{place['end']}"

    return PLACE.sub(fill, page)


def with_list(page: str, others: dict[str, str]) -> str:
    """Return a page with its list of all that other pages have."""

    def fill(place: re.Match[str]) -> str:
        if not place["wanted"].startswith("all "):
            return place[0]
        body = "\n\n".join(listed(name, others[name]) for name in place["wanted"].split()[1:])
        return f"{place['start']}\n{body}\n\n{place['end']}"

    return PLACE.sub(fill, page)


def listed(name: str, page: str) -> str:
    """Return what a page has: its title, and a row for each name."""
    title = HEADING.search(page)
    assert title is not None, name
    entries = [entry for place in PLACE.finditer(page) for entry in entries_of(place["wanted"])]
    rows, seen = [], Counter[str]()
    for entry in [entry for entry in entries if not inspect.ismodule(entry.thing)]:
        place = anchor(entry.name)
        # A heading that comes again is numbered.
        target = f"{place}-{seen[place]}" if seen[place] else place
        seen[place] += 1
        # So short that it fits beside its sentence on a phone.
        rows.append((f"[`{entry.name.removeprefix('hyperslab.')}`]({name}#{target})", first_sentence(entry.thing)))
    return f"## {title['title']}\n\n{table(rows)}"


def anchor(heading: str) -> str:
    """Return what a heading is linked to by.

    >>> anchor("hs.open")
    'hsopen'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def first_sentence(thing: Any) -> str:
    """Return the first paragraph of a docstring, up to where its first sentence ends."""
    return re.split(r"(?<=[.…])\s", one_line((inspect.getdoc(thing) or "").partition("\n\n")[0]))[0]


def all_filled(pages: dict[str, str]) -> dict[str, str]:
    done = {name: filled(page) for name, page in pages.items()}
    return {name: with_list(page, done) for name, page in done.items()}


def main(arguments: list[str]) -> int:
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md"))}
    stale = {name: page for name, page in all_filled(pages).items() if page != pages[name]}
    if not stale:
        return 0
    if "--check" in arguments:
        sys.stderr.write(f"not as their docstrings are, `make docs-reference` writes them: {', '.join(stale)}\n")
        return 1
    for name, page in stale.items():
        (PAGES / name).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
