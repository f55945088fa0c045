"""How a request travels: the seam between what the client says and what carries it.

Two carry requests: `http.py` over sockets, and the in-process application of
`connect.py`. Both promise the same:

- An answer is whole, whatever its status: judging it is left to the caller.
- `NotSent` means that the other side cannot have seen the request; `Unanswered` that it may have.
- `AnswerTooLarge` means that there is an answer, and that it is not read: asking again would not make it smaller.
- With ``is_repeatable`` a request may have been sent twice when the answer comes.
- Being cancelled leaves nothing behind: no answer of one request is taken for another's.
"""

from typing import NamedTuple, Protocol

from penstock.frame import Buffer

# Pairs of a name in small letters and a value.
Headers = tuple[tuple[str, str], ...]


class Unanswered(Exception):
    """The connection broke, or time ran out, and the request may have arrived."""


class NotSent(Unanswered):
    """There was no connection, so the request cannot have arrived."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than anything we ask for can have."""


class Answer(NamedTuple):
    status: int
    # Names are in small letters; of a name that came twice the last value stands.
    headers: dict[str, str]
    body: bytes


class Transport(Protocol):
    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        """Send a request and return the answer, within ``timeout_s`` from when a connection is there."""
        ...

    async def close(self) -> None:
        """End everything. What is under way then is `Unanswered`."""
        ...
