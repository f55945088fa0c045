"""Where the links of a page lead, and which lead nowhere."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.docs.pages import Page


def broken_links(page: Page, others: dict[Path, Page]) -> Iterator[str]:
    for link in page.links():
        target = link_target(page, link)
        if target is None:
            continue
        path, fragment = target
        if path not in others and not path.exists():
            yield f"{page.path}: {link} leads nowhere"
        elif fragment and (path not in others or fragment not in others[path].anchors()):
            yield f"{page.path}: {link} names a heading that is not there"


def link_target(page: Page, link: str) -> tuple[Path, str] | None:
    """The file and heading a link means; None for one that leaves the repository."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    return path, parts.fragment


def reachable(start: Path, others: dict[Path, Page]) -> set[Path]:
    """The pages a reader can come to from ``start`` by following links."""
    seen, waiting = {start}, deque([start])
    while waiting:
        page = others[waiting.popleft()]
        for link in page.links():
            target = link_target(page, link)
            if target and target[0] in others and target[0] not in seen:
                seen.add(target[0])
                waiting.append(target[0])
    return seen
