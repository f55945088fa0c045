"""Every code block of every page runs and prints what the page shows."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages, parse
from tests.docs.running import PageWrong, run
from tests.docs.serving import SAID

PAGES_WITH_CODE = [page for page in pages() if page.blocks]
# How a page makes a queue: by the client, a command, curl or boto3.
_MADE = re.compile(r"""(?:create_queue\((?:QueueName=)?"|penstock queue create |"queue_name": ")([A-Za-z0-9_.-]+)""")


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: str(page.path.relative_to(ROOT)))
def test_every_block_of_the_page_runs(page: Page, tmp_path: Path) -> None:
    runnable = [block for block in page.blocks if block.kind in {"python", "console"}]

    assert run(page, tmp_path) == len(runnable)


def test_pages_that_are_read_one_after_another_at_one_server_make_queues_of_their_own() -> None:
    makers: dict[str, list[str]] = {}
    for page in PAGES_WITH_CODE:
        place = str(page.path.relative_to(ROOT))
        text = "\n".join(block.text for block in page.blocks)
        is_read_so = place == "README.md" or place.startswith(("docs/tutorial/", "docs/how-to/"))
        if is_read_so and SAID in text and "penstock serve --data" not in text:
            for name in set(_MADE.findall(text)):
                makers.setdefault(name, []).append(place)
    assert {name: places for name, places in makers.items() if len(places) > 1} == {}


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

WITH_A_SERVER = """
```python
import penstock

with penstock.connect() as client:
    client.create_queue("orders")
    print(client.queue("orders").send("teapot"), "at http://127.0.0.1:8080")
```

```output
… at http://127.0.0.1:8080
```

```console
$ curl -s http://127.0.0.1:8080/api/queues/orders/messages \\
    -H 'Content-Type: application/json' \\
    -d '{"data": "lamp"}'
{"message_id":"…"}
$ curl -s http://127.0.0.1:8080/api/queues/orders/messages
{"message_id":"…","receipt":"…","data":"teapot",…}
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
    "the second line of a command fails": "```console\n$ true && \\\n    false\n```",
    "an answer is another": '```console\n$ curl -s http://127.0.0.1:8080/api/queues\n{"queues":["…\n```',
    "a block says no kind": "```\nx\n```",
    "a block says another kind": "```bash\nls\n```",
}


def test_a_good_page_runs_in_order(tmp_path: Path) -> None:
    assert run(parse(Path("good.md"), GOOD), tmp_path) == 6


def test_a_page_that_names_the_usual_address_has_a_server(tmp_path: Path) -> None:
    assert run(parse(Path("good.md"), WITH_A_SERVER), tmp_path) == 2


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_page_that_lies_is_found_out(text: str, tmp_path: Path) -> None:
    with pytest.raises((PageWrong, AssertionError, RuntimeError)):
        run(parse(Path("bad.md"), text), tmp_path)


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(parse(Path("bad.md"), "One.\n\n```python\nx = 1\nx / 0\n```\n"), tmp_path)

    assert caught.traceback[-1].lineno == 5 - 1
