"""A way to make sure that what was read of an archive is not read again."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def blinded(paths: Sequence[Path]) -> Iterator[None]:
    """Make files unreadable for a while that look as they did: opening one fails."""
    kept = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    for path, (content, changed_ns) in kept.items():
        _put(path, bytes(len(content)), changed_ns)
    yield
    for path, (content, changed_ns) in kept.items():
        _put(path, content, changed_ns)


def _put(path: Path, content: bytes, changed_ns: int) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(changed_ns, changed_ns))


def contents(out: Path) -> dict[str, bytes]:
    """Return all results of a run, without what it remembers."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.relative_to(out).parts[0] != "state"
    }
