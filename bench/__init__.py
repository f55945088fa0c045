"""Speed, measured side by side with what there is without us. Run it with ``make bench``.

A workload is given a `Bench` and gives back `Row`s. What is measured, and how,
is in ``bench/README.md``.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report. Ratios are to the peers; above 1 we are faster."""

    name: str
    figure: float
    unit: str
    target: float | None = None
    # Whether the figure is to stay below the target rather than to reach it.
    is_ceiling: bool = False
    to_one_thread: float | None = None
    to_many_threads: float | None = None
    # To a table in SQLite whose writer puts all that waits into one transaction, or gives each call its own.
    to_sqlite: float | None = None
    to_sqlite_single: float | None = None
    # To a stream in Redis whose answers wait for the disk, too.
    to_redis: float | None = None
    # To Spark's own Parquet source, over the same rows in the same session.
    to_parquet: float | None = None
    ack_ms_p50: float | None = None
    ack_ms_p99: float | None = None
    ack_ms_p99_max: float | None = None
    # What the peer took in the same rounds: one write and fdatasync of the same bytes, or the same verb.
    peer_ms_p50: float | None = None
    peer_ms_p99: float | None = None
    # CPU time for each message, of all threads: the figure to trust on a machine that others use.
    cpu_us: float | None = None
    peer_cpu_us: float | None = None
    # The figure of each round, in order.
    rounds: tuple[float, ...] = ()
    remark: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether every target of this row is reached; None if it has none."""
        claims = []
        if self.target is not None:
            claims.append(self.figure < self.target if self.is_ceiling else self.figure >= self.target)
        if self.ack_ms_p99_max is not None:
            claims.append(self.ack_ms_p99 is not None and self.ack_ms_p99 < self.ack_ms_p99_max)
        return all(claims) if claims else None


@dataclass(frozen=True, slots=True)
class Bench:
    """Where to measure, for how long each, and whom to tell that a step is done."""

    data: Path
    seconds: float
    step_done: Callable[[], None]

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Lend an empty folder, and leave nothing of it behind."""
        made = Path(tempfile.mkdtemp(dir=self.data))
        try:
            yield made
        finally:
            shutil.rmtree(made)
            self._settle()

    def _settle(self) -> None:
        """Have the file system finish with what was removed, so that the next step does not pay for it."""
        fd = os.open(self.data, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def number(value: float) -> str:
    """Write a figure with as many digits as mean something.

    >>> number(0.12345), number(12345.6)
    ('0.123', '12,346')
    """
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


class Workload(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def steps(self) -> int:
        """How often `run` says that a step is done."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether it takes minutes, or gigabytes: ``--quick`` leaves it out."""
        ...

    def run(self, bench: Bench) -> list[Row]: ...
