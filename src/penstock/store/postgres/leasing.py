"""Leases: the core decides how many of each tier, the database carries it out, and the answer is columns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from penstock.core.limits import BODY_BYTES_MAX, LEASE_BYTES_MAX, LEASE_MESSAGES_MAX, LEASE_MS_MAX
from penstock.core.settings import TIERS
from penstock.store.ids import MessageIds, message_id, queue_id
from penstock.store.interface import Delivery, Past
from penstock.store.postgres.columns import blobs, numbers
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue, rank

# How many messages one call moves because of the time.
ADVANCE_MOST = 2_000

# A lease that is expected to be smaller than this takes a shorter way.
# Too large for an answer, or even for the database to put together.
_TOO_LARGE = frozenset({"PS005", "54000"})
_SMALL_BYTES = LEASE_BYTES_MAX // 4

# From the number of a queue to its name, None if it is deleted.
NameOf = Callable[[int], str | None]


class Leased(NamedTuple):
    """What `lease.sql` answers with; columns as `columns.py` says, None where no message has any."""

    lease: int | None
    length: int
    keys: bytes
    tiers: bytes
    deliveries: bytes
    sent_at_ms: bytes
    sizes: bytes
    bodies: bytes
    attribute_sizes: bytes | None
    attributes: bytes | None
    groups: list[bytes] | None
    errors: list[str] | None
    first_leased_ms: bytes | None
    homes: list[int | None] | None
    home_keys: list[int]
    home_sent_at_ms: list[int]
    home_deliveries: list[int]
    # What the process is to remember for its next lease.
    plain_turns: list[int]
    firsts: list[int | None] | None
    active: list[int]
    xmin: int
    xmax: int
    # Only if the lease has looked at the clock.
    next_ms: int | None
    has_spent: bool | None


def check_lease(want: int, lease_ms: int | None) -> None:
    if not 1 <= want <= LEASE_MESSAGES_MAX:
        raise ValueError(f"want is {want}; it must be from 1 to LEASE_MESSAGES_MAX ({LEASE_MESSAGES_MAX})")
    if lease_ms is not None and not 1 <= lease_ms <= LEASE_MS_MAX:
        raise ValueError(f"lease_ms is {lease_ms}; it must be from 1 to LEASE_MS_MAX ({LEASE_MS_MAX})")


async def lease(database: Database, known: KnownQueue, *, want: int, lease_ms: int, token: int, now_ms: int) -> Leased:
    """Lease messages, and learn from what was found."""
    shares = known.shares or known.begin_shares(await database.ask("leased_tiers", known.number))
    if shares.is_strict:
        quotas = [want, *(0,) * (TIERS - 1)]
    else:
        # A tier that had something, or all of them if nobody knows: what is wrong is put right by the order.
        ready = [want if tier in known.active or not known.active else 0 for tier in range(TIERS)]
        quotas = shares.quotas(want, ready)
    settings = known.settings
    from_ms = known.lapsed_from_ms(now_ms)
    known.are_groups_last = not known.are_groups_last
    try:
        row = await database.call(
            "lease", known.number, known.version, now_ms, lease_ms, token, want, LEASE_BYTES_MAX,
            want * known.mean_bytes <= _SMALL_BYTES, quotas,
            rank(shares), known.bounds.lowest, known.turns, not known.are_groups_last, settings.is_fifo,
            known.is_due(now_ms), from_ms, settings.deliveries_max, known.aging_column, ADVANCE_MOST,
        )  # fmt: skip
    except BaseException as error:
        # What it had taken is back, below where the next one would begin to look.
        known.bounds.step_back(now_ms)
        if isinstance(error, psycopg.Error) and error.sqlstate in _TOO_LARGE:
            known.mean_bytes = BODY_BYTES_MAX
            return await lease(database, known, want=want, lease_ms=lease_ms, token=token, now_ms=now_ms)
        raise
    found = Leased(*row)
    _learn(known, found, now_ms)
    if found.length:
        known.soon(now_ms + lease_ms)
    return found


def _learn(known: KnownQueue, found: Leased, now_ms: int) -> None:
    known.active = found.active
    known.turns = found.plain_turns
    if found.has_spent is not None:
        known.asked(now_ms, found.next_ms, has_spent=found.has_spent)
    if not found.length:
        known.bounds.forget(now_ms)
        return
    known.started.add(found.length, now_ms)
    known.mean_bytes = (len(found.bodies) + len(found.attributes or b"")) // found.length
    served = sorted(set(found.tiers))
    assert known.shares is not None
    known.shares.served_together(served, [found.tiers.count(tier) for tier in served])
    if found.firsts is not None:
        firsts = {tier: first for tier, first in enumerate(found.firsts) if first is not None}
    else:
        # Each tier in the order of its numbers.
        keys = numbers("q", found.keys)
        firsts = {tier: keys[found.tiers.index(tier)] >> 3 for tier in served}
    known.bounds.learn(firsts, found.xmin, found.xmax)


def delivery(known: KnownQueue, found: Leased, *, token: int, until_ms: int, name_of: NameOf) -> Delivery:
    assert found.lease is not None
    keys = numbers("q", found.keys)
    extra = found.attribute_sizes
    first_ms = found.first_leased_ms
    return Delivery(
        found.lease,
        token,
        MessageIds(known.number, keys) if found.homes is None else _ids(known, found, keys),
        blobs(found.sizes, found.bodies),
        None if extra is None else blobs(extra, found.attributes),
        found.tiers,
        numbers("i", found.deliveries),
        numbers("q", found.sent_at_ms),
        found.groups,
        until_ms,
        found.errors,
        None if found.homes is None else _pasts(found, name_of),
        None if first_ms is None else numbers("q", first_ms),
    )


def _ids(known: KnownQueue, found: Leased, keys: Sequence[int]) -> list[str]:
    assert found.homes is not None
    homes = zip(keys, found.homes, found.home_keys, strict=True)
    return [message_id(known.number, key) if home is None else message_id(home, own) for key, home, own in homes]


def _pasts(found: Leased, name_of: NameOf) -> list[Past | None]:
    assert found.homes is not None
    rows = zip(found.homes, found.home_sent_at_ms, found.home_deliveries, strict=True)
    return [
        None if home is None else Past(name_of(home), queue_id(home), sent_at_ms, deliveries)
        for home, sent_at_ms, deliveries in rows
    ]
