"""Links between the pages, and to files of the repository, lead somewhere, to the heading that they name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "bench" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1`* *$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", flags=re.MULTILINE)


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links: small letters, hyphens for blanks, no punctuation.

    One that comes again is numbered.
    """
    headings = [heading["text"].lower() for heading in HEADING.finditer(prose(page))]
    found = [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings]
    return {f"{name}-{found[:at].count(name)}" if name in found[:at] else name for at, name in enumerate(found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link["target"] for link in LINK.finditer(prose(page))]
    missing = []
    for target in [target for target in targets if not re.match(r"[a-z]+:", target)]:
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            missing.append(target)
    assert not missing, f"{page.name} links to what is not there: {', '.join(missing)}"


def test_anchors_are_as_pages_show_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "# A page\n\n## HDF5: the *index*, of `a` file\n\n```\n# no heading\n```\n\n## A page\n"
    page.write_text(text, encoding="utf-8")
    assert anchors(page) == {"a-page", "hdf5-the-index-of-a-file", "a-page-1"}
