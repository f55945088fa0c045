"""Redrives that are kept where their queues are, so that every server of a database knows of them.

Orders and progress are texts that the broker writes and reads. One server runs a redrive
at a time, its *runner*, known by a random number. It is heard of every second; one that has
not been heard for `LOST_MS` is gone, and another one takes over.
"""

from dataclasses import dataclass
from typing import Protocol

LOST_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRedrive:
    id: str
    queue: str
    order: str
    state: str
    progress: str
    started_at_ms: int
    ended_at_ms: int | None = None
    is_to_stop: bool = False


class KeptRedrives(Protocol):
    """Every verb may raise `StoreUnreachable` or `StoreForbids`, and may be made again then."""

    async def begin(self, redrive: KeptRedrive, *, runner: int) -> bool:
        """Keep a new one, and return whether there is room for it: as many run as may."""
        ...

    async def note(self, redrive: KeptRedrive, *, runner: int, now_ms: int) -> bool | None:
        """Note how far it is, and return whether it is to stop; None if it is not this runner's any more."""
        ...

    async def hold(self, *, runner: int, now_ms: int, takes_over: bool) -> list[KeptRedrive]:
        """Be heard, and return what this runner runs: with what it takes over just now, if it does that.

        What is kept where nobody answers is left out.
        """
        ...

    async def let_go(self, *, runner: int) -> None:
        """Leave all that this runner runs to others, who need not wait until it is lost."""
        ...

    async def stop(self, queue: str, task_id: str, *, state: str, now_ms: int) -> None:
        """Tell whoever runs it to stop. If nobody does it ends at once, in ``state``."""
        ...

    async def of(self, queue: str) -> list[KeptRedrive]:
        """Return those of a queue, the newest first."""
        ...

    async def find(self, queue: str, task_id: str) -> KeptRedrive | None: ...
