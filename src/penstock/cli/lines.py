"""Lines of a file as messages, in batches small enough to be sent as one request.

A batch is all or nothing at the server. So whoever has to stop midway can say up to
which line everything was sent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from penstock.client.drafts import row_of
from penstock.client.errors import PenstockError
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.wire.messages import Draft

BATCH_BYTES_MAX = 4 * 1024 * 1024

_read = msgspec.json.Decoder(Draft).decode


class BadLine(ValueError):
    """A line is no draft; the message says which, and why."""


@dataclass(slots=True)
class Lines:
    """Some lines of a file, from ``first`` to before ``next``, and the messages in them."""

    first: int
    next: int
    size_bytes: int
    messages: list[bytes | Draft]


def batches(lines: Iterable[bytes], *, first: int, is_raw: bool) -> Iterator[Lines]:
    """Yield lines ``first`` and on, counted from 1. Empty lines are none; a bad one ends it, after those before it."""
    batch = Lines(first, first, 0, [])
    for number, line in enumerate(lines, 1):
        if number < first:
            continue
        try:
            message = _message(line.rstrip(b"\r\n"), is_raw=is_raw)
        except (msgspec.MsgspecError, PenstockError) as error:
            yield batch
            raise BadLine(f"line {number:,} is no message: {error}") from None
        is_full = len(batch.messages) == REQUEST_MESSAGES_MAX or batch.size_bytes + len(line) > BATCH_BYTES_MAX
        if is_full and batch.messages:
            yield batch
            batch = Lines(number, number, 0, [])
        batch.next, batch.size_bytes = number + 1, batch.size_bytes + len(line)
        if message is not None:
            batch.messages.append(message)
    yield batch


def _message(line: bytes, *, is_raw: bool) -> bytes | Draft | None:
    if not line.strip():
        return None
    message = line if is_raw else _read(line)
    # The SDK would see the same, but of a whole batch, and could not say the line.
    row_of(message)
    return message
