"""The pages of this project: their code blocks, headings and links.

Four kinds of block are known. `python` and `console` run; `output` is what the
`python` block before it prints; `text` is to be read. A block that names no
kind, or another, is an error: nothing goes unchecked by oversight.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

KINDS = ("python", "console", "output", "text")

_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+\1")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``line`` is that of its first line of content."""

    kind: str
    options: tuple[str, ...]
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    blocks: tuple[Block, ...]
    prose: str

    def links(self) -> Iterator[str]:
        for found in _LINK.finditer(_CODE_SPAN.sub("``", self.prose)):
            yield found[1]

    def anchors(self) -> set[str]:
        """What a `#fragment` may name, as code forges derive it from the headings."""
        taken: set[str] = set()
        for line in self.prose.splitlines():
            if heading := _HEADING.match(line):
                taken.add(_free(_slug(heading[1]), taken))
        return taken


def pages() -> list[Page]:
    """Every page: at the root, in docs/, beside code, and with the forge's templates."""
    found = [*ROOT.glob("*.md")]
    for folder in ("docs", ".github", "bench", "examples", "tests"):
        found.extend((ROOT / folder).rglob("*.md"))
    return [parse(path, path.read_text()) for path in sorted(found)]


def parse(path: Path, text: str) -> Page:
    blocks: list[Block] = []
    prose: list[str] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if opening := _FENCE.match(line):
            content = list(_until_closed(lines, opening["fence"]))
            kind, *options = opening["info"].split() or [""]
            blocks.append(Block(kind, tuple(options), "".join(f"{row}\n" for row in content), number + 1))
        else:
            prose.append(line)
    return Page(path, tuple(blocks), "\n".join(prose))


def _until_closed(lines: Iterator[tuple[int, str]], fence: str) -> Iterator[str]:
    for _, line in lines:
        if line.rstrip() == fence:
            return
        yield line


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _free(slug: str, taken: set[str]) -> str:
    number, name = 0, slug
    while name in taken:
        number += 1
        name = f"{slug}-{number}"
    return name
