"""Single keys, without Enter, for as long as a screen is shown."""

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any, Self


class Keyboard:
    """Reads keys while entered. Without a terminal to read from there are none, and waiting is all it does."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            # Keys come at once and are not shown; Ctrl-C still interrupts.
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the key that is pressed within the time, empty if none is."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""
