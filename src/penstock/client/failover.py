"""Several equal servers behind one client: requests go to one of them, and go on at the next when it does not serve.

    http://a,b,c                    the same port and prefix for all
    http://a:8080,http://b:8081     each in full

A client begins with a server at random, so that many clients spread, and stays with it while it serves. It goes on at
the next one

- at once, with the same request, if there was no connection, or the answer was that it does nothing now (502, 503);
- at once too, if there was no answer and the request may be repeated; one that may not be is the caller's to decide;
- with the next request, if the outcome is unknown (504).

A request is tried once at each server. What is to be done when none of them serves is decided by `Caller`, as with a
single one: it waits, and asks again.
"""

import random
from collections.abc import Callable, Sequence

from penstock.client.caller import ANSWER_S, Answer, Headers, NotSent, Transport, Unanswered
from penstock.client.http import Address
from penstock.frame import Buffer

# Nothing was done: the server stops, is not ready, or is not there behind its proxy.
_DOES_NOTHING = (502, 503)
_UNKNOWN = 504
# A server that hangs is given up this much sooner than a single one, for which there is no other.
_SOONER_S = ANSWER_S / 2


def addresses_of(url: str) -> list[Address]:
    """Return the address of each server that a URL names.

    >>> [each.authority for each in addresses_of("http://a,b:8081/x")]
    ['a', 'b:8081']
    >>> [each.authority for each in addresses_of("http://a:8080,https://b")]
    ['a:8080', 'b']
    """
    parts = url.split(",")
    if len(parts) == 1 or all("://" in part for part in parts):
        return [Address.of(part) for part in parts]
    scheme, _, rest = url.partition("://")
    hosts, slash, prefix = rest.partition("/")
    return [Address.of(f"{scheme}://{host}{slash}{prefix}") for host in hosts.split(",")]


def transport_of(addresses: Sequence[Address], open_one: Callable[[Address], Transport]) -> Transport:
    """Return a transport to a server, or to several."""
    transports = [open_one(address) for address in addresses]
    return transports[0] if len(transports) == 1 else FailoverTransport(transports)


class FailoverTransport:
    """A `client.caller.Transport` over several. It waits for nothing by itself, so they may be blocking ones."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = transports
        self._current = random.randrange(len(transports))

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        tries_left = len(self._transports)
        while True:
            tries_left -= 1
            place = self._current
            try:
                answer = await self._transports[place].request(
                    method,
                    path,
                    headers=headers,
                    body=body,
                    timeout_s=max(1.0, timeout_s - _SOONER_S),
                    is_repeatable=is_repeatable,
                )
            except Unanswered as error:
                self._go_on(place)
                if not tries_left or not (is_repeatable or isinstance(error, NotSent)):
                    raise
                continue
            if answer.status not in (*_DOES_NOTHING, _UNKNOWN):
                return answer
            self._go_on(place)
            if not tries_left or answer.status == _UNKNOWN:
                return answer

    def _go_on(self, place: int) -> None:
        # Of many requests that fail at one server, the first goes on for all.
        if self._current == place:
            self._current = (place + 1) % len(self._transports)

    def forget(self) -> None:
        """In a forked process: leave the connections to the parent."""
        for transport in self._transports:
            forget = getattr(transport, "forget", None)
            if forget is not None:
                forget()

    async def close(self) -> None:
        for transport in self._transports:
            await transport.close()
