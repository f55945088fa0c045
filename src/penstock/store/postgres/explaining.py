"""Why a message waits: the words are the core's (`core/queue/explain.py`), the places are counted in the database."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.contract.messages import WaitReason
from penstock.core.queue.explain import Explanation, ahead_at_most, expected_leases
from penstock.core.queue.message import Origin
from penstock.core.queue.queries import MessageView
from penstock.core.queue.rows import LEASED, RESTING, SPENT, STATES
from penstock.store.interface import Bound, Explained
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue

_BUSY = {RESTING, SPENT}
# `ahead.sql` counts so many groups.
_GROUPS_MOST = 1_000


class Looked(NamedTuple):
    """What `look.sql` returns."""

    key: int
    place: int
    tier: int
    sent_at_ms: int
    deliveries: int
    visible_at_ms: int
    group: bytes | None
    error: str | None
    home: int | None
    home_key: int | None
    home_sent_at_ms: int | None
    home_deliveries: int | None
    is_escalated: bool
    since_ms: int
    turn: int | None
    ordinal: int | None
    lease: int | None
    token: int | None
    row: int | None
    until_ms: int | None
    body: bytes
    attributes: bytes | None


class Asked(NamedTuple):
    """Of which message, how many wait in each tier, and when."""

    message_id: str
    waiting: Sequence[int]
    now_ms: int


async def explain(database: Database, known: KnownQueue, looked: Looked, asked: Asked) -> Explained:
    seen, message_id = _seen(looked), asked.message_id
    gained = seen.sent_tier - seen.tier
    if looked.place == LEASED:
        waits, until_ms = WaitReason.IN_FLIGHT, looked.until_ms
        return _explained(
            message_id, Explanation(message=seen, wait_reason=waits, promotions=gained, until_ms=until_ms)
        )
    if looked.place == SPENT:
        return _explained(
            message_id, Explanation(message=seen, wait_reason=WaitReason.AWAITING_BURIAL, promotions=gained)
        )
    if looked.place == RESTING:
        at_ms = looked.visible_at_ms
        resting = Explanation(
            message=seen, wait_reason=WaitReason.DELAYED, promotions=gained, until_ms=at_ms, start_estimate_ms=at_ms
        )
        return _explained(message_id, resting)
    return await _waiting(database, known, looked, asked)


def _explained(message_id: str, explanation: Explanation, bound: Bound | None = None) -> Explained:
    return Explained(message_id, explanation, bound)


async def _waiting(database: Database, known: KnownQueue, looked: Looked, asked: Asked) -> Explained:
    message_id, waiting, now_ms = asked
    seen = _seen(looked)
    gained = seen.sent_tier - seen.tier
    is_ordered = known.settings.is_fifo and looked.group is not None
    if is_ordered:
        waits, ahead = await _in_line(database, known, looked)
    else:
        ahead = await _in_turn(database, known, looked, waiting[looked.tier], now_ms)
        waits = WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE
    if known.settings.is_paused:
        paused = Explanation(message=seen, wait_reason=WaitReason.PAUSED, promotions=gained, messages_ahead=ahead)
        return _explained(message_id, paused)
    leases = estimate_ms = bound = None
    if not is_ordered:
        shares = known.shares or known.begin_shares(())
        leases = shares.bound(looked.tier, ahead)
        wait_ms = known.started.ms_for(expected_leases(shares, waiting, looked.tier, ahead), now_ms)
        estimate_ms = None if wait_ms is None else now_ms + wait_ms
        bound = Bound(leases, known.started.ms_for(leases, now_ms))
    explanation = Explanation(
        message=seen,
        wait_reason=waits,
        promotions=gained,
        messages_ahead=ahead,
        leases_bound=leases,
        start_estimate_ms=estimate_ms,
    )
    return _explained(message_id, explanation, bound)


async def _in_turn(database: Database, known: KnownQueue, looked: Looked, ready: int, now_ms: int) -> int:
    """Return how many go before it at most, of those that wait in its tier."""
    ((mine, turns, noisy_turns, is_noisy, noisy_waiting),) = await database.ask(
        "ahead", queue=known.number, tier=looked.tier, since=looked.since_ms, key=looked.key, grp=looked.group,
        turn=looked.turn, now=now_ms,
    )  # fmt: skip
    # What waits may have been counted a moment ago.
    ready = max(ready, mine + 1)
    # All that is quiet goes before it if its group is noisy, and it takes turns with the other noisy groups.
    turns, quiet = (noisy_turns, ready - noisy_waiting) if is_noisy else (turns, 0)
    if turns >= _GROUPS_MOST:
        return ready - 1
    return ahead_at_most(mine=mine, turns=turns, quiet=max(0, quiet), ready=ready)


async def _in_line(database: Database, known: KnownQueue, looked: Looked) -> tuple[WaitReason, int]:
    ((ahead, head, held),) = await database.ask(
        "ahead_in_line", queue=known.number, group=looked.group, ordinal=looked.ordinal
    )
    if held:
        return WaitReason.GROUP_BUSY, ahead + held
    if head in _BUSY:
        return WaitReason.GROUP_BLOCKED, ahead
    return (WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE), ahead


def _seen(looked: Looked) -> MessageView:
    origin = None
    if looked.home is not None:
        assert looked.home_key is not None
        assert looked.home_sent_at_ms is not None
        assert looked.home_deliveries is not None
        lane, number = looked.home_key & 7, looked.home_key >> 3
        origin = Origin(looked.home, lane, number, looked.home_sent_at_ms, looked.home_deliveries)
    return MessageView(
        message=looked.key,
        place=STATES[looked.place],
        tier=looked.tier,
        sent_tier=looked.key & 7,
        sent_at_ms=looked.sent_at_ms,
        since_ms=looked.since_ms,
        deliveries=looked.deliveries,
        visible_at_ms=looked.visible_at_ms if looked.place == RESTING else 0,
        group=looked.group or b"",
        lease=looked.lease or 0,
        error=looked.error or "",
        origin=origin,
        is_escalated=looked.is_escalated,
    )
