"""Settled messages, written to a history by hand: each as a row of its own, or those of one ack as a pack.

The two schemas of `SCHEMAS` get the same messages at the same offsets, one with packs and one without, so that one
test can read both.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from hypothesis import strategies as st

from penstock.contract.history_columns import TRANSACTION_ROW_BITS
from penstock.store.postgres import migrate

SCHEMAS = ("packed", "single")
# Of transactions that are over in any database.
FIRST = 10
_COLUMNS = (
    "period", "at_offset", "queue", "key", "home", "home_key", "sent_at_ms", "first_leased_ms", "last_leased_ms",
    "settled_at_ms", "deliveries", "tier", "ending", "grp", "error", "body", "attributes",
)  # fmt: skip
_PACK_COLUMNS = (*_COLUMNS, "packed", "keys", "sent_ats_ms", "body_sizes", "attribute_sizes")


@dataclass(frozen=True)
class Settled:
    """One message, and how its life was."""

    row: int
    key: int
    sent_at_ms: int
    body: bytes | None = None
    attributes: bytes | None = None
    home: int | None = None
    home_key: int | None = None
    deliveries: int = 1
    ending: int = 1
    tier: int | None = None
    grp: bytes | None = None
    error: str | None = None


@dataclass(frozen=True)
class Settling:
    """What one transaction settled."""

    transaction: int
    queue: int
    leased_ms: int
    settled_at_ms: int
    messages: Sequence[Settled]
    # Whether it can be written as a pack: then its messages are rows 0, 1, 2 … and nothing is special about any.
    is_ack: bool = False

    @property
    def offset(self) -> int:
        return self.transaction << TRANSACTION_ROW_BITS


def write(connection: psycopg.Connection[Any], schema: str, past: Sequence[Settling], *, packs: bool) -> None:
    """Add to the history of a schema what these transactions would have."""
    singles: list[tuple[object, ...]] = []
    packed: list[tuple[object, ...]] = []
    for each in past:
        if each.is_ack and packs:
            packed.append(_pack(each))
        else:
            singles += [_row(each, message) for message in each.messages]
    with connection.cursor() as cursor:
        for columns, rows in ((_COLUMNS, singles), (_PACK_COLUMNS, packed)):
            places = ", ".join(["%s"] * len(columns))
            text = f"INSERT INTO {schema}.history ({', '.join(columns)}) VALUES ({places})"
            cursor.executemany(text.encode(), rows)


def _row(of: Settling, message: Settled) -> tuple[object, ...]:
    tier = message.key & 7 if message.tier is None else message.tier
    return (
        1, of.offset | message.row, of.queue, message.key, message.home, message.home_key, message.sent_at_ms,
        of.leased_ms, of.leased_ms, of.settled_at_ms, message.deliveries, tier, message.ending, message.grp,
        message.error, message.body, message.attributes,
    )  # fmt: skip


def _pack(of: Settling) -> tuple[object, ...]:
    messages, (first, *_) = of.messages, of.messages
    assert [message.row for message in messages] == list(range(len(messages)))
    bodies, attributes = [each.body for each in messages], [each.attributes for each in messages]
    has_bodies, has_attributes = bodies[0] is not None, any(attributes)
    return (
        *_row(of, first)[:-2],
        b"".join(each or b"" for each in bodies) if has_bodies else None,
        b"".join(each or b"" for each in attributes) if has_attributes else None,
        len(messages),
        _numbers("q", [each.key for each in messages]),
        _numbers("q", [each.sent_at_ms for each in messages]),
        _numbers("i", [len(each or b"") for each in bodies]) if has_bodies else None,
        _numbers("i", [len(each or b"") for each in attributes]) if has_attributes else None,
    )


def _numbers(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}{code}", *values)


async def make_schemas(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for schema in SCHEMAS:
            await migrate.migrate(connection, schema)


def name_queues(connection: psycopg.Connection[Any]) -> None:
    for schema in SCHEMAS:
        connection.execute(
            f"INSERT INTO {schema}.queue SELECT n, 'queue-' || n, '{{}}', 0, '', '{{}}', 0, NULL "
            "FROM generate_series(1, 3) n".encode()
        )


def fill(connection: psycopg.Connection[Any], past: Sequence[Settling]) -> None:
    """Let both schemas have this history, and nothing else."""
    with connection.transaction():
        for schema in SCHEMAS:
            connection.execute(f"DELETE FROM {schema}.history".encode())
            write(connection, schema, past, packs=schema == "packed")


bodies = st.binary(max_size=6)
attributes = st.none() | st.binary(min_size=1, max_size=4)


@st.composite
def settlings(draw: st.DrawFn, transaction: int) -> Settling:
    is_ack = draw(st.booleans())
    count = draw(st.integers(1, 9 if is_ack else 4))
    has_bodies = draw(st.booleans())
    messages = []
    for row in range(count):
        body, words = (draw(bodies), draw(attributes)) if has_bodies else (None, None)
        key = draw(st.integers(1, 2**40)) << 3 | draw(st.integers(0, 4))
        message = Settled(row, key, draw(st.integers(0, 2**41)), body, words)
        if not is_ack:
            home, home_key = draw(st.sampled_from([(None, None), (3, 7 << 3 | 1)]))
            error = draw(st.sampled_from([None, "Boom: é"]))
            message = replace(message, row=3 * row + 2, home=home, home_key=home_key, grp=b"tenant", error=error)
            message = replace(message, deliveries=2, ending=2, tier=0)
        messages.append(message)
    at_ms = 100 * transaction - draw(st.integers(0, 300))
    return Settling(transaction, draw(st.integers(1, 2)), at_ms - 50, at_ms, messages, is_ack)


@st.composite
def pasts(draw: st.DrawFn) -> list[Settling]:
    transactions = draw(st.lists(st.integers(FIRST, FIRST + 12), min_size=1, max_size=6, unique=True))
    return [draw(settlings(transaction)) for transaction in sorted(transactions)]
