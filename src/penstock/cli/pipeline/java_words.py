"""What Java says while Spark runs: kept in a file, so that the terminal shows the job and nothing else.

Spark's Java inherits the error stream of the process that starts it, and says dozens of lines there that no
user of a job can use. So it is started with that stream turned to a file. The file is gone when
the job ends well; when it does not, the user is told where it is.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STDERR = 2
# What PySpark says when its Java is gone, and the line in which Java says why.
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_FATAL = re.compile(r'^(?:Exception in thread "main" [\w.$]+: |Error: )(.+)$', re.MULTILINE)
# By which PySpark says on the terminal, as a line of JSON with the whole stack, what it raises as well.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def hush_spark() -> None:
    """Let PySpark raise what is wrong with an expression, and not print it too."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        # Made by PySpark's own hand: it calls them with words that a plain logger does not take.
        PySparkLogger.getLogger(name).disabled = True


class JavaWords:
    """The file, from the start of Java to the end of the job."""

    def __init__(self) -> None:
        handle, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
        self._handle = handle
        self.path = Path(path)

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Let whatever is started meanwhile write to the file, and our own words still reach the terminal."""
        terminal = os.dup(_STDERR)
        before = sys.stderr
        sys.stderr.flush()
        with os.fdopen(terminal, "w", buffering=1, closefd=False) as ours:
            sys.stderr = ours
            os.dup2(self._handle, _STDERR)
            try:
                yield
            finally:
                ours.flush()
                os.dup2(terminal, _STDERR)
                sys.stderr = before
                os.close(terminal)

    def why_it_ended(self, error: Exception) -> str | None:
        """Return why Java has not even started, in its own words; None if it has."""
        found = _FATAL.search(self.path.read_text(errors="replace")) if _NO_JAVA in str(error) else None
        return f"Spark does not start: {found[1].rstrip('.')}. Look at --master and --conf" if found else None

    def forget(self) -> None:
        os.close(self._handle)
        self.path.unlink(missing_ok=True)

    def keep(self) -> bool:
        """Leave the file where it is; say whether there is anything in it."""
        os.close(self._handle)
        return self.path.stat().st_size > 0
