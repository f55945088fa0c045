"""Makes the zip that `spark-submit --py-files` ships: what executors import, and nothing else.

It is the same bytes for the same source, so a cluster that keeps files by their hash keeps it once.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import penstock

PACKAGES = ("penstock", "pyspark_penstock")
# The first instant that a zip can have.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16

DRIVER = '''\
"""Runs `penstock pipeline` where spark-submit starts it."""

from penstock.pipeline.__main__ import main

main()
'''


def sources() -> Iterator[tuple[str, bytes]]:
    """Yield each Python file of the packages by its name in the zip, in order."""
    above = Path(penstock.__file__).parent.parent
    for package in PACKAGES:
        for path in sorted((above / package).rglob("*.py")):
            yield path.relative_to(above).as_posix(), path.read_bytes()


def write_package(target: Path) -> int:
    """Write the zip; return how many files are in it."""
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in sources():
            about = zipfile.ZipInfo(name, _EPOCH)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = _READABLE
            # Whoever makes it, on whatever system.
            about.create_system = 3
            package.writestr(about, content)
            count += 1
    return count
