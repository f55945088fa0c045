"""What happened in a queue since a server opened it, in messages: for metrics, and for no decision.

Verbs are counted where they are called. Counted here is what happens without a call, and what changes messages
that no verb names. It is no part of the state: a snapshot leaves it out, and an opening begins it at 0.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    # Leases that ended without an answer.
    lapsed: int = 0
    # Moved to a more urgent tier, because they had waited for long.
    promoted: int = 0
    # Moved to the dead letters.
    buried: int = 0
    # Moved out of this queue by a redrive or a requeue.
    redriven: int = 0
    expired: int = 0
    purged: int = 0
    # Moved to another tier by an operator.
    escalated: int = 0
