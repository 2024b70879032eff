"""Links between the pages, and to files of the repository, lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1`* *$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    targets = [link["target"].partition("#")[0] for link in LINK.finditer(prose)]
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to what is not there: {', '.join(missing)}"
