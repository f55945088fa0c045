"""Sends: drafts are checked by the core, and go to the database as columns.

Most sends are plain: one tier, no group, no id, no delay. They take a way of their own,
`send_plain.sql`. Whatever a message has of its own goes through `send.sql`.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import psycopg

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    SENDER_SENDS_MAX,
)
from penstock.contract.messages import Tier
from penstock.contract.queue_settings import DedupScope
from penstock.core.queue.deduplication import SenderFenced, Senders, SendForgotten
from penstock.core.queue.message import BadDraft, Drafts, Sender, check, check_bodies
from penstock.core.queue.queue import QueueFull
from penstock.frame import Buffer, size_of
from penstock.store.ids import MessageIds
from penstock.store.postgres.array_codec import numbers
from penstock.store.postgres.database import OnceCaller
from penstock.store.postgres.queue_cache import CachedQueue

_FULL, _FENCED, _FORGOTTEN = "PS002", "PS003", "PS004"
_NORMAL = bytes((Tier.NORMAL,))
_SIGN = 2**63
# What a send takes besides its texts: the same everywhere, so that a batch fits one store if it fits another.
_BATCH_BYTES, _ROW_BYTES = 8_192, 64
_PREFIX = b"content:"


async def send(
    database: OnceCaller, known: CachedQueue, drafts: Drafts, sender: Sender | None, *, now_ms: int, operation: int
) -> Sequence[str]:
    """Send drafts, of which there is at least one."""
    settings = known.settings
    if sender is not None:
        Senders().find(sender)
    if settings.dedup_scope is DedupScope.CONTENT:
        drafts = _with_digests(drafts)
    _check_size(drafts)
    check(drafts, now_ms, settings.retention_ms)
    check_bodies(drafts.bodies, settings.body_bytes_max)
    tiers = drafts.tiers or _NORMAL * len(drafts)
    room = min(settings.room(tier) for tier in set(tiers)) if settings.size_max else None
    try:
        if _is_plain(known, drafts, tiers, sender):
            keys = await database.call_once(
                "send_plain", known.number, known.version, now_ms, tiers[0], drafts.bodies,
                _or_nulls(drafts.attributes), room, operation=operation,
            )  # fmt: skip
        else:
            keys = await _send_any(database, known, drafts, tiers, sender, room, now_ms, operation)
    except psycopg.Error as error:
        raise _translated(error, known, sender, now_ms) from error
    known.ages_at_ms(tiers, now_ms)
    return MessageIds(known.number, numbers("q", keys))


def _is_plain(known: CachedQueue, drafts: Drafts, tiers: bytes, sender: Sender | None) -> bool:
    has_names = drafts.groups is not None or drafts.dedup_ids is not None
    has_own = has_names or drafts.visible_at_ms is not None or drafts.deliveries_max is not None
    return not has_own and sender is None and not known.settings.delay_ms and tiers.count(tiers[0]) == len(tiers)


async def _send_any(  # noqa: PLR0913, PLR0917 - what a send consists of.
    database: OnceCaller,
    known: CachedQueue,
    drafts: Drafts,
    tiers: bytes,
    sender: Sender | None,
    room: int | None,
    now_ms: int,
    operation: int,
) -> bytes:
    settings = known.settings
    rows, answers = _unrepeated(drafts.dedup_ids, len(drafts))
    is_live = settings.dedup_scope is DedupScope.LIVE
    visible = _visible(known, drafts, now_ms)
    for at_ms in visible or ():
        if at_ms > now_ms:
            known.soon(at_ms)
    signed = (None,) * 3 if sender is None else (sender.id - _SIGN, sender.epoch, sender.sequence - _SIGN)
    keys: bytes = await database.call_once(
        "send", known.number, known.version, now_ms,
        [tiers[row] for row in rows], [drafts.bodies[row] for row in rows],
        _or_nulls(drafts.attributes, rows), _or_nulls(drafts.groups, rows),
        None if visible is None else [visible[row] for row in rows], _or_nulls(drafts.dedup_ids, rows),
        None if drafts.deliveries_max is None else [drafts.deliveries_max[row] for row in rows],
        None if answers is None else [row + 1 for row in answers],
        settings.is_fifo, None if is_live else now_ms + settings.dedup_window_ms, room,
        *signed, SENDER_SENDS_MAX, operation=operation,
    )  # fmt: skip
    return keys


def _visible(known: CachedQueue, drafts: Drafts, now_ms: int) -> Sequence[int] | None:
    delay_ms = known.settings.delay_ms
    if not delay_ms:
        return drafts.visible_at_ms
    given = drafts.visible_at_ms or (0,) * len(drafts)
    return [at_ms or now_ms + delay_ms for at_ms in given]


def _unrepeated(names: Sequence[bytes] | None, count: int) -> tuple[Sequence[int], list[int] | None]:
    """Return the drafts without those that repeat an earlier one of the batch, and for each draft its place there.

    >>> _unrepeated([b"1", b"", b"1", b""], 4)
    ([0, 1, 3], [0, 1, 0, 2])
    """
    if names is None or len(set(names)) == count:
        return range(count), None
    firsts: dict[bytes, int] = {}
    rows: list[int] = []
    answers: list[int] = []
    for row, name in enumerate(names):
        if name and name in firsts:
            answers.append(firsts[name])
            continue
        if name:
            firsts[name] = len(rows)
        answers.append(len(rows))
        rows.append(row)
    return rows, answers


def _or_nulls(column: Sequence[Buffer] | None, rows: Sequence[int] | None = None) -> list[Buffer | None] | None:
    """Return a column with None where a message has nothing."""
    if column is None:
        return None
    values = column if rows is None else [column[row] for row in rows]
    # An empty one is joined all the same: what is no bytes is found out by that.
    b"".join([value for value in values if not len(value)])
    return [value if len(value) else None for value in values]


def _check_size(drafts: Drafts) -> None:
    columns = [drafts.bodies, *(column for column in (drafts.groups, drafts.dedup_ids, drafts.attributes) if column)]
    size = _BATCH_BYTES + _ROW_BYTES * len(drafts) + sum(map(size_of, columns))
    if size > BATCH_BYTES_MAX:
        raise BadDraft(f"a send of {size} bytes; BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")


def _translated(error: psycopg.Error, known: CachedQueue, sender: Sender | None, now_ms: int) -> Exception:
    """Return what the core raises in such a case, or the error itself."""
    detail = error.diag.message_detail or ""
    if error.sqlstate == _FULL:
        count, room, live = map(int, detail.split())
        if count > room:
            return BadDraft(f"{count} messages; by its size_max the queue never has room for more than {room}")
        return QueueFull.of(known.drained.ms_for(live + count - room, now_ms))
    if sender is not None and error.sqlstate == _FENCED:
        return SenderFenced(f"sender {sender.id} is at epoch {detail}, not {sender.epoch}")
    if sender is not None and error.sqlstate == _FORGOTTEN:
        return SendForgotten(f"sequence {sender.sequence} of sender {sender.id} is no longer remembered")
    return error


def _with_digests(drafts: Drafts) -> Drafts:
    """Return drafts in which each message that has no id of its own has one made of its body."""
    names = drafts.dedup_ids or [b""] * len(drafts)
    made = [
        name or _PREFIX + blake2b(body, digest_size=32).digest()
        for name, body in zip(names, drafts.bodies, strict=True)
    ]
    return replace(drafts, dedup_ids=made)
