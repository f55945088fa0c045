"""Settlements as requests, alone or with a lease in the same request: what is asked, and what the answer means.

Settling twice is settling once, so a settlement that is not answered is repeated. If the first try had arrived, the
repeat is answered "stale". If the lease cannot have ended yet by our own clock, that is what happened, and the
settlement counts as done.

Acks and a lease in one request cost one round trip and one write to the disk instead of two. So an ack takes along a
lease that is wanted (`Wanted`). It does not wait for messages: the caller of the ack wants to know that it is durable.
"""

import time
from collections.abc import Sequence

from penstock.client import requests
from penstock.client.caller import Call, Caller
from penstock.client.message import LeasedBatch, Wanted, end_by_time_of_day, end_of
from penstock.wire.frames import Held, LeasedFrame
from penstock.wire.operations import LEASE_MESSAGES

LEASES_MAX = 1_000
ROWS_MAX = 10_000

# Which messages, and what is known of their lease.
Row = tuple[Held, LeasedBatch | None]
# What the settlements of one request have in common: the verb, its time and its error.
Terms = tuple[str, int | None, str]
ACK: Terms = ("ack", None, "")


async def settle_and_lease(
    caller: Caller, queue: str, terms: Terms, rows: Sequence[Row], wanted: Wanted | None
) -> tuple[list[int], LeasedBatch | None]:
    """Settle, and with ``wanted`` ack and lease in the same request. The request names each lease once."""
    verb, time_ms, text = terms
    lease_s = (time_ms or 0) / 1_000
    leases: dict[tuple[int, int], int] = {}
    for (lease, token, bits), _ in rows:
        leases[lease, token] = leases.get((lease, token), 0) | bits
    # A single one is as it was given.
    held = [rows[0][0]] if len(rows) == 1 else [Held(*lease, bits) for lease, bits in leases.items()]
    asked_at_s, may_have_arrived, leased = time.monotonic(), False, None
    if wanted is None:
        call = requests.settle(requests.settle_path(queue, verb), verb, held, time_ms=time_ms, text=text)
        found = await caller.perform(call, is_harmless=True)
        may_have_arrived = call.may_have_arrived
    else:
        found, leased, may_have_arrived = await _ack_and_lease(caller, queue, held, wanted)
    if len(found) != len(held):
        raise requests.not_ours(f"{len(found)} results for {len(held)} leases")
    done, answers = dict(zip(leases, found, strict=True)), []
    for (lease, token, bits), batch in rows:
        bits_done = done[lease, token] & bits
        if batch is not None and verb == "extend":
            batch.extended(bits_done, end_of(lease_s, asked_at_s), int((time.time() + lease_s) * 1_000))
        elif batch is not None and may_have_arrived and bits_done != bits:
            bits_done |= batch.surely_held(bits)
        answers.append(bits_done)
    return answers, leased


async def _ack_and_lease(
    caller: Caller, queue: str, held: list[Held], wanted: Wanted
) -> tuple[list[int], LeasedBatch | None, bool]:
    path = requests.path_of(LEASE_MESSAGES, queue=queue)
    asked_at_s, calls = 0.0, list[Call[tuple[list[int], LeasedFrame | None]]]()

    def ask() -> Call[tuple[list[int], LeasedFrame | None]]:
        # A fresh one for each try: after a pause the lease begins later.
        nonlocal asked_at_s
        asked_at_s = time.monotonic()
        call = requests.ack_and_lease(
            path, held, limit=wanted.limit, wait_s=wanted.wait_s, visibility_timeout=wanted.visibility_timeout
        )
        calls.append(call)
        return call

    found, frame = await caller.perform(ask, is_harmless=True)
    leased = None if frame is None else leased_batch(frame, queue, wanted.visibility_timeout, asked_at_s)
    return found, leased, any(call.may_have_arrived for call in calls)


def leased_batch(frame: LeasedFrame, queue: str, visibility_timeout: float | None, asked_at_s: float) -> LeasedBatch:
    """What was leased, and when that ends by our clock."""
    if visibility_timeout is None:
        return LeasedBatch(frame, queue, end_by_time_of_day(frame.until_ms))
    return LeasedBatch(frame, queue, end_of(visibility_timeout, asked_at_s))


def cut(rows: Sequence[tuple[Held, object]] | Sequence[tuple[Held, object, object]]) -> tuple[int, int]:
    """How many settlements fit into a request, and how many messages they have."""
    count = taken = 0
    for held, *_ in rows[:LEASES_MAX]:
        messages = held.rows.bit_count()
        if taken + messages > ROWS_MAX and count:
            break
        taken += messages
        count += 1
    return count, taken
