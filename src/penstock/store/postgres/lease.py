"""Leases: the core decides how many of each tier, the database carries it out, and the answer is columns."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from penstock.contract.limits import BODY_BYTES_MAX, LEASE_BYTES_MAX, LEASE_MESSAGES_MAX, LEASE_MS_MAX
from penstock.contract.messages import TIERS
from penstock.store.ids import MessageIds, message_id, queue_id
from penstock.store.interface import Delivery, Past
from penstock.store.postgres.array_codec import blobs, numbers
from penstock.store.postgres.database import Database
from penstock.store.postgres.queue_cache import CachedQueue, rank

# How many messages one call moves because of the time, and how many a lease moves.
ADVANCE_MOST = 500
ADVANCE_MOST_OF_A_LEASE = 200

# Too large for an answer, or even for the database to put together.
_TOO_LARGE = frozenset({"PS005", "54000"})
# A lease that is expected to be smaller than this takes a shorter way.
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
    # Of each tier the first plain message that was taken; None if nothing but plain messages waited.
    firsts: list[int | None] | None
    # NULL where it follows from what is left.
    active: list[int] | None
    xmin: int
    xmax: int
    # Only if the lease has looked at the clock.
    next_ms: int | None
    has_spent: bool | None
    # Of queues with turns: the first that waits in each tier, and the one before which nothing comes to wait any more.
    turn_firsts: list[int | None] | None
    turn_floors: list[int] | None
    # The first plain message of each tier that is left, as others see it.
    lefts: list[int | None]


def check_lease(want: int, lease_ms: int | None) -> None:
    if not 1 <= want <= LEASE_MESSAGES_MAX:
        raise ValueError(f"want is {want}; it must be from 1 to LEASE_MESSAGES_MAX ({LEASE_MESSAGES_MAX})")
    if lease_ms is not None and not 1 <= lease_ms <= LEASE_MS_MAX:
        raise ValueError(f"lease_ms is {lease_ms}; it must be from 1 to LEASE_MS_MAX ({LEASE_MS_MAX})")


class LeaseRequest(NamedTuple):
    """What a lease is to be; and whether the clock was looked at for it a moment ago."""

    want: int
    lease_ms: int
    token: int
    now_ms: int
    is_again: bool = False


async def lease(database: Database, known: CachedQueue, asked: LeaseRequest) -> Leased:
    """Lease messages, and learn from what was found.

    A FIFO queue in which something is found to be spent gives nothing: it is to be buried, and then asked again.
    """
    want, lease_ms, token, now_ms, is_again = asked
    shares = known.shares or known.begin_shares(await database.ask("leased_tiers", known.number))
    if shares.is_strict:
        quotas = [want, *(0,) * (TIERS - 1)]
    else:
        # Tiers that had messages, or all if unknown: the order of tiers corrects a wrong guess.
        ready = [want if tier in known.active or not known.active else 0 for tier in range(TIERS)]
        quotas = shares.quotas(want, ready)
    # The shortest way asks for one tier alone, and is useless if nothing waits there.
    # So it is where others than plain messages wait, and it would go over what is left of those to find that out.
    is_in_vain = (shares.is_strict and 0 not in known.active) or known.are_marked
    settings = known.settings
    is_due = known.is_due(now_ms) and not is_again
    from_ms = known.lapsed_from_ms(now_ms) if is_due else known.looked_until_ms
    known.are_groups_last = not known.are_groups_last
    try:
        row = await database.call(
            "lease", known.number, known.version, now_ms, lease_ms, token, want, LEASE_BYTES_MAX,
            want * known.mean_bytes <= _SMALL_BYTES and not is_in_vain, quotas,
            rank(shares), known.bounds.lowest, known.turns, known.turn_bounds.lowest, not known.are_groups_last,
            settings.is_fifo, is_due, from_ms, settings.deliveries_max,
            known.aging_column, ADVANCE_MOST_OF_A_LEASE,
        )  # fmt: skip
    except BaseException as error:
        # It may have been another life of the database that was known.
        known.bounds.forget()
        if isinstance(error, psycopg.Error) and error.sqlstate in _TOO_LARGE:
            known.mean_bytes = BODY_BYTES_MAX
            return await lease(database, known, asked)
        raise
    found = Leased(*row)
    _learn(known, found, now_ms=now_ms, from_ms=from_ms)
    if found.length:
        known.soon(now_ms + lease_ms)
    elif known.forgets(now_ms):
        return await lease(database, known, asked)
    return found


def _learn(known: CachedQueue, found: Leased, *, now_ms: int, from_ms: int) -> None:
    known.active = _active(found) if found.active is None else found.active
    known.turns = found.plain_turns
    if found.has_spent is not None:
        known.asked(now_ms, found.next_ms, from_ms=from_ms, has_spent=found.has_spent)
    if found.turn_firsts is not None and found.turn_floors is not None:
        known.turn_bounds.learn(found.turn_firsts, found.turn_floors, found.xmin, found.xmax)
    known.are_marked = found.firsts is not None
    if not found.length:
        return
    known.started.add(found.length, now_ms)
    known.mean_bytes = (len(found.bodies) + len(found.attributes or b"")) // found.length
    served = sorted(set(found.tiers))
    assert known.shares is not None
    known.shares.served_together(served, [found.tiers.count(tier) for tier in served])
    known.bounds.learn(_lowest(found, served), found.xmin, found.xmax)


def _active(found: Leased) -> list[int]:
    """The tiers that have something, the one that was served among them."""
    return [tier for tier, left in enumerate(found.lefts) if left is not None or tier in found.tiers]


def _lowest(found: Leased, served: Sequence[int]) -> dict[int, int]:
    """Of each tier the lowest number that others may see, or put back; where nothing is left, one that was taken."""
    lowest = {tier: left for tier, left in enumerate(found.lefts) if left is not None}
    if found.firsts is not None:
        taken = {tier: first for tier, first in enumerate(found.firsts) if first is not None}
    else:
        # Each tier in the order of its numbers.
        keys = numbers("q", found.keys)
        taken = {tier: keys[found.tiers.rindex(tier)] >> 3 for tier in served}
    return taken | lowest


def delivery(known: CachedQueue, found: Leased, *, token: int, until_ms: int, name_of: NameOf) -> Delivery:
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


def _ids(known: CachedQueue, found: Leased, keys: Sequence[int]) -> list[str]:
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
