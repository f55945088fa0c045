"""What is loaded by what has to start quickly, or to start where little is installed."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

# What starts, as a program. The child builds snapshots; an executor unpickles readers and writers.
STARTS = {
    "import penstock": "import penstock",
    "penstock --help": "import sys\nfrom penstock.cli import main\nsys.argv = ['penstock', '--help']\n"
    "try:\n    main()\nexcept SystemExit:\n    pass",
    "snapshot child": "import penstock.runtime.child_process, penstock.store.embedded.snapshot_builder",
    "Spark executor": "import penstock.pipeline.source.reader, penstock.pipeline.source.reader\n"
    "import penstock.pipeline.sink.writer, penstock.pipeline.sink.writer",
}
# Of others, what costs time or may not be installed.
_OTHERS = {
    *("msgspec", "typer", "rich", "click", "psycopg", "pyarrow", "numpy", "pandas", "pyspark", "crc32c", "asyncio"),
    *("ssl", "cramjam", "lz4", "zstandard"),
}
_TELL = """
import sys as _sys
print("loaded:", *sorted(_sys.modules))
"""


def loaded(program: str) -> tuple[set[str], int]:
    """Return the packages that a program has loaded at its end, of ours and of those of others that are looked at.

    And how many modules of ours.
    """
    done = subprocess.run([sys.executable, "-c", program + _TELL], capture_output=True, text=True, check=True)
    names = done.stdout.rpartition("loaded:")[2].split()
    ours = [name for name in names if name.partition(".")[0] == "penstock"]
    packages = {".".join(name.split(".")[:2]) for name in ours}
    return packages | _OTHERS.intersection(names), len(ours)


def is_more(now: str, allowed: str) -> list[str]:
    """Return what is loaded now and was not allowed."""
    (now_most, *names), (most, *known) = now.splitlines(), allowed.splitlines()
    more = sorted(set(names) - set(known))
    return more + ([now_most] if int(now_most.split()[2]) > int(most.split()[2]) else [])


def _text(program: str) -> str:
    packages, count = loaded(program)
    # A bound: a module more or less is nothing to look at.
    return "\n".join([f"at most {-(-count // 20) * 20} modules of Penstock, and these packages", *sorted(packages), ""])


LOADED: dict[str, Callable[[], str]] = {
    f"loaded by {name}.txt".replace(" ", "_").replace("_--", "_"): partial(_text, program)
    for name, program in STARTS.items()
}
