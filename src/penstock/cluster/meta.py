"""What a cluster agrees on, kept by a quorum that is not ours (etcd, later PostgreSQL).

Three kinds of facts: the record of a log (who leads, who is in sync), who has
announced itself lately, and which *broker epoch* each node was last granted.

Laws
----
1. Every change compares the revision it was decided on (M1). Two controllers, or
   a leader that was deposed in its sleep, cannot undo each other: one loses.
2. No answer is not "no": a change whose answer was lost may have happened, or
   may *still happen*. Only a newer revision settles it (M5).
3. That a node's lease ran out suggests that it died; nothing proves it (M3).

There are no watches here. They would be hints anyway (M4): whoever acts, reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.core.replica import PartitionRecord

NOT_GRANTED = 0
NO_INCARNATION = 0


class Conflict(Exception):
    """The change was compared with what is there and refused. It never happened, nor will a copy of it on its way."""


class OutcomeUnknown(Exception):
    """No answer came. What was asked for may have happened, may happen yet, or never will."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A node as it last announced itself."""

    incarnation: int  # Random, one per start.
    log_id: int  # Of the log on its disk: another one means another, or an emptied, disk.
    is_alive: bool  # Whether its lease still runs.
    epoch: int  # Granted to this incarnation, or NOT_GRANTED.
    log_id_granted: int | None  # Of the last incarnation that was granted an epoch.

    @property
    def is_unfenced(self) -> bool:
        return self.is_alive and self.epoch != NOT_GRANTED

    @property
    def is_whole(self) -> bool:
        """Whether everything it ever reported as durable is still on its disk (F2)."""
        return self.log_id_granted in (None, self.log_id)


@dataclass(frozen=True, slots=True)
class View:
    """The facts of one log at one moment."""

    record: PartitionRecord
    revision: int  # Of the record: the partition epoch. Rises with every change of it.
    brokers: Mapping[int, Broker]


class MetaStore(Protocol):
    """Every method may raise `OutcomeUnknown`."""

    async def read(self) -> View:
        """Return the facts as they are at some moment during this call (linearizable)."""
        ...

    async def swap(
        self,
        record: PartitionRecord,
        *,
        revision: int,
        broker_epochs: Mapping[int, int],
        without_lease: int | None = None,
    ) -> None:
        """Replace the record, or raise `Conflict` if it is no longer the one of ``revision``.

        Refused too if a node named in ``broker_epochs`` has announced a newer
        incarnation than the one that was granted this epoch (F3), or if the lease
        of the node ``without_lease`` runs.
        """
        ...

    async def announce(self, node: int, *, incarnation: int, replaces: int, log_id: int) -> None:
        """Say that ``node`` lives; it counts as alive for the length of a lease from then on.

        A new incarnation ends the broker epoch of the one it replaces. Refused
        with `Conflict` if another than these two was the last to announce itself:
        so the last words of a dead process cannot unseat the living one.
        """
        ...

    async def grant(self, node: int, *, incarnation: int, revision: int) -> None:
        """Give an incarnation a broker epoch larger than any before.

        Refused with `Conflict` if the record is no longer that of ``revision``,
        in which the node neither leads nor is in sync (F1), or if the
        incarnation is no longer the newest.
        """
        ...
