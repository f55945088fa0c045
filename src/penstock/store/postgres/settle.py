"""What becomes of receipts: acked, released, extended.

Receipts go to the database as columns: lease, token and row. Those that cannot be any
(out of the bounds of their kind) are stale before they are sent.
"""

from collections.abc import Sequence

from penstock.contract.limits import ERROR_CHARACTERS_MAX, LEASE_MESSAGES_MAX
from penstock.core.queue.message import Receipt, Receipts
from penstock.runtime.interface import Dice
from penstock.store.interface import Outcome, Release
from penstock.store.postgres.array_codec import numbers
from penstock.store.postgres.connection import ConnectionLost
from penstock.store.postgres.database import Database, OnceCaller
from penstock.store.postgres.queue_cache import CachedQueue

LAPSED, RELEASED, UNTOUCHED, REJECTED = range(4)
# Consecutive multiples of it, modulo 1, lie as far apart as so many numbers can.
_GOLDEN = 0.618_033_988_749_895
_INT8_MAX = 2**63 - 1


class Columns:
    """Receipts as columns, without duplicates, and the column of each given receipt."""

    __slots__ = ("leases", "tokens", "rows", "_nths")

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self.leases: list[int] = []
        self.tokens: list[int] = []
        self.rows: list[int] = []
        # Counted from 1, as the database does; 0 stands for none.
        self._nths: list[int] = []
        seen: dict[Receipt, int] = {}
        # Receipts of many leases are found one after the other, and not by their place.
        for receipt in receipts:
            lease, token, row = receipt
            is_possible = 0 <= lease <= _INT8_MAX and 0 <= token <= _INT8_MAX and 0 <= row < LEASE_MESSAGES_MAX
            if is_possible and receipt not in seen:
                self.leases.append(lease)
                self.tokens.append(token)
                self.rows.append(row)
                seen[receipt] = len(self.leases)
            self._nths.append(seen.get(receipt, 0))

    def outcomes(self, good: bytes) -> list[Outcome]:
        """Return an outcome for each receipt; one that was given twice has the same one twice."""
        done = set(numbers("i", good))
        return [Outcome.DONE if nth in done else Outcome.STALE for nth in self._nths]


async def ack(  # noqa: PLR0913 - a receipt, how it is taken, and when.
    database: OnceCaller,
    known: CachedQueue,
    receipts: Sequence[Receipt],
    *,
    outlives: bool,
    period: int,
    now_ms: int,
    operation: int,
) -> list[Outcome]:
    if isinstance(receipts, Receipts) and not known.settings.is_fifo:
        count = await database.call_once(
            "ack_lease", known.number, known.version, now_ms, receipts.lease, receipts.token, receipts.length,
            known.history, period, bool(known.settings.size_max), operation=operation,
        )  # fmt: skip
        if count is not None:
            known.drained.add(receipts.length, now_ms)
            return [Outcome.DONE] * receipts.length
    columns = Columns(receipts)
    good = await database.call_once(
        "ack", known.number, known.version, now_ms, columns.leases, columns.tokens, columns.rows,
        outlives and not known.settings.is_fifo, known.settings.is_fifo, known.history, period,
        bool(known.settings.size_max), operation=operation,
    )  # fmt: skip
    known.drained.add(len(good) // 4, now_ms)
    return columns.outcomes(good)


async def release(  # noqa: PLR0913 - as `ack`, and how.
    database: Database,
    known: CachedQueue,
    receipts: Sequence[Receipt],
    how: Release,
    *,
    dice: Dice,
    now_ms: int,
    operation: int,
) -> list[Outcome]:
    settings, columns = known.settings, Columns(receipts)
    is_last = how.is_rejected and settings.deliveries_max
    kind = UNTOUCHED if how.is_untouched else REJECTED if is_last else RELEASED
    error = text(how.error, ERROR_CHARACTERS_MAX, database.encoding)
    good = await database.call_once(
        "release", known.number, known.version, now_ms, columns.leases, columns.tokens, columns.rows, kind,
        how.delay_ms, known.rests_ms, _rolls(columns, dice, has_jitter=settings.has_jitter), error,
        settings.deliveries_max, known.aging_ms, settings.is_fifo, operation=operation,
    )  # fmt: skip
    if good:
        # When the first of them wakes, only the database knows.
        known.soon(now_ms)
    return columns.outcomes(good)


async def extend(
    database: Database,
    known: CachedQueue,
    receipts: Sequence[Receipt],
    *,
    lease_ms: int,
    outlives: bool,
    now_ms: int,
) -> list[Outcome]:
    columns = Columns(receipts)
    held = columns.leases, columns.tokens, columns.rows
    values = known.number, known.version, now_ms, *held, lease_ms, outlives, known.settings.is_fifo
    try:
        (good,) = await database.call("extend", *values)
    except ConnectionLost:
        # To extend twice is to extend once.
        (good,) = await database.call("extend", *values)
    if good:
        known.soon(now_ms + lease_ms)
    return columns.outcomes(good)


def leases_of(receipts: Sequence[Receipt]) -> set[int]:
    return {receipts.lease} if isinstance(receipts, Receipts) else {receipt.lease for receipt in receipts}


def text(given: str, characters_max: int, encoding: str) -> str:
    """Return what a text of the database can hold: no NUL, and no lone surrogates, as exceptions quote them."""
    known = given[:characters_max].replace("\x00", "\N{SYMBOL FOR NULL}")
    return known.encode(encoding, errors="replace").decode(encoding)


def _rolls(columns: Columns, dice: Dice, *, has_jitter: bool) -> list[float]:
    """Return a share of the longest rest for each receipt, so that they do not return as a herd.

    A roll for each lease is spread over its messages.
    """
    if not has_jitter:
        return [1.0] * len(columns.leases)
    rolls: list[float] = []
    last: dict[int, float] = {}
    for lease in columns.leases:
        roll = (last[lease] + _GOLDEN) % 1.0 if lease in last else dice.roll()
        last[lease] = roll
        rolls.append(roll)
    return rolls
