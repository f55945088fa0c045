"""How a database is reached, and how one is left that no longer answers.

A server that is gone says nothing: a connection to it waits for as long as the kernel likes, a quarter of an hour say.
So every connection is made with bounds, unless the URL has its own. And one that is of no more use is *hung up*: its
socket is shut down on our side, and whoever waits for an answer, be it deep in the driver, learns that none comes.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.runtime.sockets import shut_down
from penstock.store.errors import StoreUnfit

RV = TypeVar("RV")
AnyConnection: TypeAlias = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]

# Of a connection over TCP the kernel asks after one that is silent, and gives up one that does not confirm what it was
# sent: that matters where nobody waits for an answer, as for notifications.
_BOUNDS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# As texts are written in every database, also in one that has not said how its own are (SQL_ASCII): else they would be
# read as bytes.
_ENCODING = "UTF8"
_CANCEL_S_MAX = 2.0


class BadUrl(StoreUnfit):
    """This is no URL of a database, or it has an option that there is not."""


class Reached(psycopg.AsyncConnection[Any]):
    """A connection that is hung up when a call is to be cancelled and the server does not hear of it."""

    async def cancel_safe(self, *, timeout: float = _CANCEL_S_MAX) -> None:  # noqa: ASYNC109 - as the driver has it.
        try:
            await super().cancel_safe(timeout=min(timeout, _CANCEL_S_MAX))
        except errors.CancellationTimeout:
            hang_up(self)
            raise

    async def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        try:
            return await super().wait(gen, *arguments, **named)
        except psycopg.OperationalError:
            # The driver asks once more after a cancellation, and what that fails with must not hide it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise


def bounded(url: str, **others: int) -> str:
    """Return how to connect so that a server that is gone is noticed; what the URL says itself counts.

    >>> bounded("postgresql://db?connect_timeout=3&tcp_user_timeout=0").removeprefix("connect_timeout=3 host=db ")
    'tcp_user_timeout=0 client_encoding=UTF8 keepalives_idle=10 keepalives_interval=5 keepalives_count=3'
    """
    said = _said(url)
    bounds = {name: value for name, value in {**_BOUNDS, **others}.items() if name not in said}
    return make_conninfo(url, client_encoding=_ENCODING, **bounds)


def unanswered(url: str) -> str:
    """Return what to say of a database that does not answer, and what can be done; no password is in it."""
    said = _said(url)
    place = said.get("hostaddr") or said.get("host") or "this machine"
    return (
        f"the database at {place}, port {said['port']}, does not answer: look whether it runs, and whether a firewall "
        "or a wrong address is in the way. It has the seconds that connect_timeout of its URL says, or ten"
    )


def _said(url: str) -> dict[str, Any]:
    """What a URL says, and the environment where that says nothing."""
    defaults = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val}
    try:
        return {**defaults, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError as error:
        # It may quote the URL, and a password with it.
        reason = str(error).replace(url, "…").strip()
        raise BadUrl(f"the URL of the database cannot be read: {reason}") from None


def hang_up(connection: AnyConnection) -> None:
    """Break a connection from our side: whoever waits for an answer on it is told so."""
    if not connection.closed:
        shut_down(connection.fileno())


@contextmanager
def answered_within(connection: AnyConnection, wait_s: float) -> Iterator[None]:
    """Hang up a connection if this takes longer: then what is asked on it fails with an `OperationalError`."""
    timer = asyncio.get_running_loop().call_later(wait_s, hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()
