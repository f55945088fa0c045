"""The walks of ARCHITECTURE.md, compared with what is called."""

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import penstock
from penstock.wire.operators import HistoryRow
from tests.waiting import eventually

ROOT = Path(penstock.__file__).parent
TEXT = (ROOT.parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALKS = "A send", "A lease", "An ack", "A row of history, from the ack to a reader"


def modules_of(walk: str) -> set[str]:
    found = re.search(rf"^{walk}:\n\n```text\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, walk
    return {module for line in found[1].splitlines() for module in re.findall(r"[a-z_/]+\.py", line)}


@contextmanager
def called() -> Iterator[set[str]]:
    """Yield the modules of ours that are called meanwhile, by their paths."""
    seen: set[str] = set()

    def hear(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def missed(walk: str, seen: set[str]) -> set[str]:
    return modules_of(walk) - {str(Path(each).relative_to(ROOT)) for each in seen}


def test_every_module_of_a_walk_is_called_on_that_walk() -> None:
    async def run() -> dict[str, set[str]]:
        seen: dict[str, set[str]] = {}
        async with penstock.connect("memory:") as client:
            await client.create_queue("orders")
            queue = client.queue("orders")

            async def rows() -> list[HistoryRow]:
                return list((await queue.history()).rows)

            with called() as seen[WALKS[0]]:
                await queue.send(b"a teapot")
            with called() as seen[WALKS[1]]:
                message = await queue.receive()
            assert message is not None
            with called() as seen[WALKS[3]]:
                with called() as seen[WALKS[2]]:
                    await message.ack()
                await eventually(rows)
        seen[WALKS[3]] |= seen[WALKS[2]]
        return seen

    seen = asyncio.run(run())
    assert {walk: missed(walk, seen[walk]) for walk in WALKS} == {walk: set() for walk in WALKS}
