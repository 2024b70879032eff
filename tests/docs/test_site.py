"""The site of the documentation: its reference is that of the docstrings, its navigation names every page, and it is
built without a warning and without anything from elsewhere."""

import doctest
import importlib.util
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import hyperslab
from hyperslab import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("reference/*.md"))}
# What a browser would fetch by itself; links that a person may follow are no such thing.
FETCHED = re.compile(r"""<(?:script|img|link|iframe)[^>]*(?:src|href)=["'](?:https?:)?//|url\(["']?https?:|@import""")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_as_the_docstrings_are() -> None:
    for needed in ("torch", "xarray", "deltalake"):
        pytest.importorskip(needed)
    written = load("docstrings").all_filled(REFERENCE)
    stale = [name for name, page in written.items() if page != REFERENCE[name]]
    assert not stale, f"`make docs-reference` writes anew: {', '.join(stale)}"


@pytest.mark.parametrize(
    "module", ["hyperslab", "hyperslab.torch", "hyperslab.h5", "hyperslab.xarray", "hyperslab.zarr"]
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    if module != "hyperslab":
        pytest.importorskip({"h5": "h5py"}.get(name := module.rpartition(".")[2], name))
    shown = "hs" if module == "hyperslab" else module
    text = "\n".join(REFERENCE.values())
    missing = [
        name
        for name in import_module(module).__all__
        if f"### {shown}.{name}\n" not in text and f"`{name}`" not in REFERENCE["adapters.md"] and name != "errors"
    ]
    assert not missing, f"name them in a place of docs/reference/*.md, then `make docs-reference`: {missing}"


def test_every_error_is_in_the_reference() -> None:
    missing = [name for name in errors.__all__ if f"| `{name}` |" not in REFERENCE["errors.md"]]
    assert not missing


def test_docstrings_become_markdown() -> None:
    found = load("docstrings")
    assert doctest.testmod(found).failed == 0
    text = found.markdown("Effect.\n\n    a tree\n\n>>> 1\n1\n\na, b  two | three\nc  four,\n   five")
    parts = text.split("\n\n")
    assert parts[1:3] == ["    a tree", "```pycon\n>>> 1\n1\n```"]
    assert parts[3].splitlines()[2:] == ["| `a`, `b` | two \\| three |", "| `c` | four, five |"]
    assert "### hs.open" in found.described(next(found.entries_of("hyperslab.open")))


def test_the_navigation_names_every_page_once() -> None:
    readme = (DOCS / "README.md").read_text(encoding="utf-8")
    tables = load("conf").navigation(readme)
    named = re.findall(r"<([^>]+)>$", tables, flags=re.MULTILINE)
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if page.name != "README.md"]
    assert sorted(named) == sorted(pages), "each page has one line on docs/README.md, and no line is without its page"
    assert re.findall(r":caption: (\w+)", tables) == ["Start", "Guides", "Understanding", "Reference"]


def test_every_picture_is_drawn_by_the_script_and_shown() -> None:
    pytest.importorskip("matplotlib")
    drawn = {f"{draw.__name__}.png" for draw in load("pictures").PICTURES}
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    shown = set(re.findall(r"!\[[^\]]+\]\((?:\.\./)?pictures/([^)]+)\)", text))
    assert {path.name for path in (DOCS / "pictures").iterdir()} == drawn == shown


@pytest.mark.timeout(600)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "site")], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    pages = [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]
    assert (tmp_path / "site" / "index.html").read_text(encoding="utf-8").count(hyperslab.__version__)
    fetching = [page.name for page in pages if FETCHED.search(page.read_text(encoding="utf-8"))]
    assert not fetching, f"what is looked at without a network asks for one: {fetching}"
