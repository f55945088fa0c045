"""Finds the Java that Spark would run on, and says in a sentence why it will not do.

Spark takes the one of JAVA_HOME, and without that the first `java` on the path; so does this. It also knows where an
archive of Spark's classes is, with which Java starts sooner (`java_classes.py` makes it).
`make` runs this file by itself before anything is installed, so it imports the standard library only.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

JAVA_MIN = 17
_ADVICE = "On Debian: apt-get install openjdk-17-jre-headless; or set JAVA_HOME to a newer one."
# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "22-ea" 2024-03-19`
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS_MAX = 60


class NoJava(Exception):
    """There is no Java that Spark can run on; the message says what to do."""


def check_java() -> None:
    """Raise `NoJava` unless Spark would find a Java that is new enough. What was found good is not asked again."""
    home = os.environ.get("JAVA_HOME")
    wanted = str(Path(home) / "bin" / "java") if home else "java"
    java = shutil.which(wanted)
    if java is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no `java` here"
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {where}. {_ADVICE}")
    version = _version_of(java)
    if version < JAVA_MIN:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {java} is Java {version}. {_ADVICE}")


@cache
def _version_of(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {java} cannot be run: {error}. {_ADVICE}") from None
    found = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or found is None:
        # On a Mac without Java there is a `java` all the same, which only says where to get one.
        said = (answer.stderr + answer.stdout).strip().partition("\n")[0] or f"it ended with {answer.returncode}"
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {java} does not say its version: {said}. {_ADVICE}")
    return int(found[1])


if __name__ == "__main__":
    try:
        check_java()
    except NoJava as missing:
        sys.exit(str(missing))


_CLASSES = "spark-classes.jsa"
# It would tell everybody on standard output which classes it cannot keep, or that it has no use for an archive.
SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def class_archives() -> tuple[Path, Path]:
    """Where the archive of classes may be: beside the packages that it is of, or with the user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(sys.prefix) / _CLASSES, cache / "penstock" / _CLASSES


def class_options() -> str:
    """What to tell Java about the archive; nothing if there is none."""
    for place in class_archives():
        if place.exists():
            return f'"-XX:SharedArchiveFile={place}" {SILENT}'
    return ""
