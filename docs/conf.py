"""How Sphinx makes the site of these pages: `make docs`.

The list on README.md is the site's navigation: a page that is not on it is an error, as is every other warning.
"""

import importlib.metadata
import re
import shutil
from pathlib import Path
from typing import Any

project = "Hyperslab"
author = "the authors of Hyperslab"
project_copyright = "the authors of Hyperslab, Apache-2.0"
release = version = importlib.metadata.version("hyperslab")

extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["_theme"]
nitpicky = True
# Quotes are typed as Python has them.
smartquotes = False

# Anchors are those of code hosts, for headings of all depths.
myst_heading_anchors = 4
highlight_language = "none"
html_theme = "furo"
html_title = f"Hyperslab {release}"
html_static_path = ["_theme"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

CAPTION = re.compile(r"^\*\*(?P<title>[^*]+)\*\*", flags=re.MULTILINE)
PAGE = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\)", flags=re.MULTILINE)


def navigation(readme: str) -> str:
    """Return the tables of contents that the lists of pages on README.md stand for, one for each caption."""
    captions = [*CAPTION.finditer(readme)]
    ends = [caption.start() for caption in captions[1:]] + [len(readme)]
    tables = []
    for caption, end in zip(captions, ends, strict=True):
        pages = [f"{found['title']} <{found['page']}>" for found in PAGE.finditer(readme, caption.end(), end)]
        tables.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption['title']}", "", *pages, "```"]))
    return "\n\n".join(tables)


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += "\n\n" + navigation(source[0]) + "\n"


def make_front_page(app: Any, failure: Exception | None) -> None:
    """Let the front page be found under the name that servers and people look for."""
    if failure is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("build-finished", make_front_page)
