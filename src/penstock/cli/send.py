"""`penstock send`: one message from the command line or standard input, or a file of them.

The lines of a file are sent in batches. The server takes all of a batch or nothing, so after a stop the command can say
up to which line everything was sent.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import msgspec
import typer

from penstock.cli.config import Session, asks_server, complain, exit_code_of
from penstock.cli.output import ExitCode, counted, progress, remark
from penstock.cli.queue import Name
from penstock.client.drafts import row_of
from penstock.client.errors import ConnectionFailed, MessageNotFound, NotScheduled, PenstockError
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.contract.messages import PRIORITIES
from penstock.wire.messages import Draft

OfFile = "Many messages"
# A file may fill a queue: then it goes on as fast as others empty it, if they do.
FILE_TIMEOUT_S = 60.0


def complete_priority(incomplete: str) -> list[str]:
    return [name for name in PRIORITIES if name.startswith(incomplete.upper())]


Priority = Annotated[
    str | None,
    typer.Option(help="CRITICAL, HIGH, NORMAL, LOW or BACKGROUND.", autocompletion=complete_priority),
]


Data = Annotated[
    str | None, typer.Argument(help="The message; by default, and as -, standard input without a last newline.")
]
Delay = Annotated[float | None, typer.Option(help="Seconds before it can be received.")]
At = Annotated[str | None, typer.Option(help="When it can be received: RFC 3339, as 2030-01-01T08:00:00Z.")]
DedupId = Annotated[str | None, typer.Option(help="Sent twice with one id, it is sent once.")]
InGroup = Annotated[str | None, typer.Option(help="Messages of one group stay in order in a FIFO queue.")]
Attribute = Annotated[list[str] | None, typer.Option(help="NAME=VALUE to go with it; may be repeated.")]
MaxDeliveries = Annotated[int | None, typer.Option(help="Deliveries before it is a dead letter.")]
File = Annotated[
    Path | None, typer.Option(help="Send each line of this file; - is standard input.", rich_help_panel=OfFile)
]
Raw = Annotated[bool, typer.Option("--raw", help="A line is the message itself, not JSON.", rich_help_panel=OfFile)]
FromLine = Annotated[
    int, typer.Option(min=1, help="Begin with this line, to go on after a stop.", rich_help_panel=OfFile)
]


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


@asks_server
def send(
    session: Session,
    name: Name,
    data: Data = None,
    *,
    priority: Priority = None,
    delay_s: Delay = None,
    scheduled_at: At = None,
    dedup_id: DedupId = None,
    group: InGroup = None,
    attribute: Attribute = None,
    max_deliveries: MaxDeliveries = None,
    file: File = None,
    raw: Raw = False,
    from_line: FromLine = 1,
) -> None:
    """Send a message, or every line of a file, and print its id once it is on the disk.

    A line of a file is a JSON draft: {"data": …} and whatever else is to be said,
    such as "priority", "delay_s", "dedup_id", "group" or "attributes". With --raw the
    line itself is the message. Empty lines are left out. When it stops midway it
    says with which line to go on.

    With --json the answer is JSON, and a message that begins like an object or a list
    has to be JSON as well; it is sent as such.

    [bold]Examples:[/]

    penstock send orders "two teapots" --priority HIGH
    echo '{"tea": "oolong"}' | penstock send orders
    penstock send orders --file drafts.jsonl
    penstock send orders --file lines.txt --raw --from-line 5001
    """
    if file is not None:
        if data is not None:
            raise typer.BadParameter("say a message or --file, not both")
        _send_file(session, name, file, first=from_line, is_raw=raw)
        return
    message_id = session.client.queue(name).send(
        _body(data, is_json=session.is_json),
        # The server says what it may be.
        priority=cast("Any", priority),
        delay_s=delay_s,
        scheduled_at=scheduled_at,
        dedup_id=dedup_id,
        group=group,
        attributes=_attributes(attribute or []),
        max_deliveries=max_deliveries,
    )
    session.show({"message_id": message_id}, message_id)


def _body(data: str | None, *, is_json: bool) -> Any:
    """Return what is to be sent: with --json, what begins as an object or a list does is one."""
    if data is None or data == "-":
        return _typed()
    if not is_json or not data.lstrip().startswith(("{", "[")):
        return data
    try:
        return json.loads(data)
    except ValueError as error:
        raise typer.BadParameter(f"the message is not JSON: {error}; without --json it is sent as text") from None


def _typed() -> bytes:
    """Return standard input, without the line end that `echo` adds."""
    if sys.stdin.isatty():
        remark("Type the message; Ctrl-D on a line of its own ends it.")
    return sys.stdin.buffer.read().removesuffix(b"\n")


def _attributes(words: list[str]) -> dict[str, Any] | None:
    said: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--attribute")
        said[name] = value
    return said or None


def _send_file(session: Session, name: str, path: Path, *, first: int, is_raw: bool) -> None:
    sent = 0
    # Everything before this line is sent, or was not asked for.
    done_before = first
    reason, ending, is_unsure = "", ExitCode.DONE, False
    queue = session.client.queue(name)
    with _opened(path) as (file, size_bytes), progress() as bar:
        task = bar.add_task(f"Sending {path}", total=size_bytes)
        try:
            for batch in batches(file, first=first, is_raw=is_raw):
                # An interruption between sending and counting must not pass for "not sent".
                is_unsure = bool(batch.messages)
                if batch.messages:
                    queue.send_many(batch.messages, timeout_s=FILE_TIMEOUT_S)
                is_unsure = False
                sent, done_before = sent + len(batch.messages), batch.next
                bar.update(task, completed=file.tell() if file.seekable() else batch.next)
        except BadLine as error:
            reason, ending = str(error), ExitCode.BAD_DATA
        except PenstockError as error:
            complain(error, "the server", is_json=session.is_json)
            is_unsure = isinstance(error, ConnectionFailed) and error.is_sent
            reason, ending = "Stopped.", exit_code_of(error)
        except KeyboardInterrupt:
            reason, ending = "Interrupted.", ExitCode.INTERRUPTED
    _report(session, sent, done_before, reason, is_unsure=is_unsure)
    raise typer.Exit(ending)


def _report(session: Session, sent: int, done_before: int, reason: str, *, is_unsure: bool) -> None:
    """Say what was sent, and after a stop with which line to go on."""
    done = {"sent": sent, "next_line": done_before, "is_complete": not reason, "is_unsure": is_unsure}
    session.show(done, f"Sent {counted(sent, 'message')}.")
    if reason:
        remark(reason)
        remark(f"Everything before line {done_before:,} was sent. Go on with: --from-line {done_before}")
    if is_unsure:
        remark("Of what follows that line up to 1,000 messages may have been sent too: there was no answer.")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    if str(path) == "-":
        yield sys.stdin.buffer, None
        return
    try:
        file = path.open("rb")
    except OSError as error:
        remark(f"{path} cannot be read: {error.strerror}")
        raise typer.Exit(ExitCode.NOT_FOUND) from None
    with file:
        yield file, path.stat().st_size


@asks_server
def cancel(
    session: Session,
    name: Name,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Which messages.")],
) -> None:
    """Take back messages that are not due yet: scheduled ones, and those that wait to be tried again.

    Those that are due stay, and the exit code is 1 then. The key needs the role send.

    [bold]Example:[/]

    penstock cancel reminders 4k2m9x
    """
    queue = session.client.queue(name)
    cancelled, left = [], {}
    for message_id in message_ids:
        try:
            cancelled.append(queue.cancel(message_id).message_id)
        except (NotScheduled, MessageNotFound) as error:
            left[message_id] = error.detail
    session.show({"cancelled": cancelled, "left": left}, f"Took back {counted(len(cancelled), 'message')}.")
    if not session.is_json:
        for why in left.values():
            remark(why)
    if left:
        raise typer.Exit(ExitCode.NOTHING)
