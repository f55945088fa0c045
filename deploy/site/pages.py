"""What MkDocs does not know of our pages: their order, and that some links leave `docs/`."""

import posixpath
import re
from pathlib import Path
from typing import Any

SECTIONS = {
    "Tutorials": "tutorial",
    "How-to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Design": "design",
    "Decisions": "decisions",
}
_LINK = re.compile(r"(?<=\]\()(\.\./[^)\s]*)(?=\))")


def on_config(config: Any) -> Any:
    docs = Path(config.docs_dir)
    config.nav = [{"Home": "README.md"}]
    for title, folder in SECTIONS.items():
        names = sorted(path.name for path in (docs / folder).glob("*.md"))
        # The page about the section itself comes first.
        names.sort(key=lambda name: name != "README.md")
        config.nav.append({title: [f"{folder}/{name}" for name in names]})
    config.nav.append({"Glossary": "glossary.md"})
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Let links to files that are no pages lead to the repository."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def outside(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[1]))
        return found[1] if target.startswith("docs/") else f"{config.repo_url.rstrip('/')}/blob/main/{target}"

    return _LINK.sub(outside, markdown)
