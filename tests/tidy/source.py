"""The project's own files, as the rules of this folder see them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Made by tools or by running the system; they are not edited by hand.
_NOT_OURS = {"__pycache__", "dist", "node_modules", "penstock-data"}
_OUR_HIDDEN = {".ci", ".github"}


@dataclass(frozen=True)
class Module:
    """One Python file: where it is, seen from the root, and what it says."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def package(self) -> str:
        """The package of `penstock` this module is in; empty for everything else."""
        parts = self.path.parts
        return parts[2] if parts[:2] == ("src", "penstock") and len(parts) > 3 else ""


def python_modules() -> Iterator[Module]:
    for folder in ("src", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield Module(path.relative_to(ROOT), path.read_text())


def files() -> Iterator[Path]:
    """Every file people write, in the order of the tree."""
    yield from _below(ROOT)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        # In a worktree of git, `.git` is a file that says where the repository is.
        if path.is_symlink() or path.name == ".git":
            continue
        if path.is_file():
            # In a worktree of git it is a file.
            if path.name != ".git":
                yield path
        elif _is_ours(path.name):
            yield from _below(path)


def _is_ours(folder_name: str) -> bool:
    if folder_name.startswith("."):
        return folder_name in _OUR_HIDDEN
    return folder_name not in _NOT_OURS and not folder_name.endswith(".egg-info")
