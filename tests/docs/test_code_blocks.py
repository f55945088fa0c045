"""Every code block of every page runs and prints what the page shows."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages, parse
from tests.docs.running import PageWrong, run

PAGES_WITH_CODE = [page for page in pages() if page.blocks]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: str(page.path.relative_to(ROOT)))
def test_every_block_of_the_page_runs(page: Page, tmp_path: Path) -> None:
    runnable = [block for block in page.blocks if block.kind in {"python", "console"}]

    assert run(page, tmp_path) == len(runnable)


GOOD = """
```python
x = 1
```

Prose.

```python
print(x + 1)
```

```output
2
```

```console
$ echo one; echo two >&2
one
...
$ false
$ echo $?
1
$ test -e pyproject.toml || echo elsewhere
elsewhere
```

```console root
$ test -e pyproject.toml
```

```python later.py
print("saved")
```

```console
$ python later.py
saved
```

```text
$ rm -rf everything
```
"""

BAD = {
    "python raises": "```python\nraise RuntimeError\n```",
    "python prints something else": "```python\nprint(1)\n```\n```output\n2\n```",
    "a command fails": "```console\n$ false\n```",
    "a command prints something else": "```console\n$ echo one\ntwo\n```",
    "a command ends the shell": "```console\n$ exit 0\n```",
    "a console block has no command": "```console\nhello\n```",
    "a saved file is never run": "```python later.py\nprint(1)\n```",
    "a block says no kind": "```\nx\n```",
    "a block says another kind": "```bash\nls\n```",
}


def test_a_good_page_runs_in_order(tmp_path: Path) -> None:
    assert run(parse(Path("good.md"), GOOD), tmp_path) == 6


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_page_that_lies_is_found_out(text: str, tmp_path: Path) -> None:
    with pytest.raises((PageWrong, AssertionError, RuntimeError)):
        run(parse(Path("bad.md"), text), tmp_path)


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(parse(Path("bad.md"), "One.\n\n```python\nx = 1\nx / 0\n```\n"), tmp_path)

    assert caught.traceback[-1].lineno == 5 - 1
