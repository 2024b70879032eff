"""Every Python block of README.md and docs/ runs, page by page, as a reader would run it.

The blocks of a page share one namespace and run in order in an empty directory. A block with `>>>` prompts
is checked as a doctest. Any other is run; a ```text block that follows it directly is what it must print.
`...` stands for anything and runs of blanks are equal. `await` works at the top, as in Jupyter. A block
fenced as ```python no-run is shown but not run: the visible exception, for what needs a cloud account.
"""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if page.exists()]
MOST_NOT_RUN = 5
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: what stands after the fence, the text, and the line its text starts at."""

    info: str
    text: str
    line: int
    end: int

    @property
    def is_python(self) -> bool:
        return self.info.split()[:1] == ["python"]

    @property
    def runs(self) -> bool:
        return self.is_python and "no-run" not in self.info.split()


def blocks_of(markdown: str) -> list[Block]:
    blocks: list[Block] = []
    lines = markdown.splitlines()
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        at += 1
        if not opening:
            continue
        start, closing = at, re.compile(rf"^ *{re.escape(opening['fence'])}+ *$")
        while at < len(lines) and not closing.match(lines[at]):
            at += 1
        assert at < len(lines), f"the block that opens in line {start} is never closed"
        text = textwrap.dedent("\n".join(lines[start:at])) + "\n"
        blocks.append(Block(opening["info"].strip(), text, start + 1, at + 1))
        at += 1
    return blocks


def expected_output(markdown: str, block: Block, following: Block | None) -> str | None:
    """Return the ```text block that follows with only blank lines between, if there is one."""
    if following is None or following.info != "text":
        return None
    between = markdown.splitlines()[block.end : following.line - 2]
    return None if any(line.strip() for line in between) else following.text


def run_block(block: Block, page: str, namespace: dict[str, Any], expected: str | None) -> None:
    if re.search(r"^\s*>>> ", block.text, flags=re.MULTILINE):
        run_doctest(block, page, namespace)
        return
    # Empty lines in front make the line numbers of a traceback those of the page.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    if expected is not None:
        check_output(expected, printed.getvalue(), f"{page}:{block.line}")


def check_output(expected: str, got: str, where: str) -> None:
    if not doctest.OutputChecker().check_output(expected, got, FLAGS):
        pytest.fail(f"{where} should print\n\n{expected}\nbut printed\n\n{got}", pytrace=False)


def run_doctest(block: Block, page: str, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page, page, block.line - 1)
    test.globs = namespace  # shared, not copied: later blocks see what this one defines
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    if runner.run(test, out=report.append, clear_globs=False).failed:
        pytest.fail("".join(report), pytrace=False)


def run_page(markdown: str, page: str) -> None:
    blocks = blocks_of(markdown)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block, following in zip_longest(blocks, blocks[1:]):
        if block.runs:
            run_block(block, page, namespace, expected_output(markdown, block, following))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run_page(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


def test_the_readme_is_among_the_pages() -> None:
    assert ROOT / "README.md" in PAGES


def test_few_blocks_are_exempt() -> None:
    exempt = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.is_python and not block.runs
    ]
    assert len(exempt) <= MOST_NOT_RUN, f"too many blocks are not run: {', '.join(exempt)}"


GOOD = """
```python
from pathlib import Path
numbers = [1, 2, 3]
print("sum", sum(numbers))
```

```text
sum ...
```

Then:

    ```python
    import asyncio
    await asyncio.sleep(0)
    numbers.append(4)
    ```

```python
>>> numbers
[1, 2, 3, 4]
>>> more = numbers * 2
```

```python no-run
raise SystemExit("never run")
```

```python
assert len(more) == 8
```

Not what it prints:

```text
anything
```
"""


def test_good_page_passes() -> None:
    run_page(GOOD, "good.md")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum ...", "sum 7"),
        ("[1, 2, 3, 4]", "[1, 2, 3]"),
        ("len(more) == 8", "len(more) == 9"),
        ("await asyncio.sleep(0)", "await asyncio.sleep(None)"),
        ("python no-run", "python"),
    ],
)
def test_a_mistake_on_a_page_is_found(old: str, new: str) -> None:
    with pytest.raises((AssertionError, TypeError, SystemExit, pytest.fail.Exception)):
        run_page(GOOD.replace(old, new), "bad.md")


def test_a_failure_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run_page("# Title\n\ntext\n\n```python\nx = 1\n1 / 0\n```\n", "page.md")
    last = failure.traceback[-1]
    assert (last.frame.code.raw.co_filename, last.lineno + 1) == ("page.md", 7)
