"""How a queue is called from outside: its URL, its ARN, and how both are read.

    http://127.0.0.1:8080/000000000000/orders        arn:aws:sqs:us-east-1:000000000000:orders

A URL is built from the `Host` that the client has reached us by, so that it leads back
here whatever the server is called. What a client sends as a URL is read for its path
alone: it may have been made under another name of the same server.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from penstock.api.sqs.errors import INVALID_ADDRESS, Refused, no_queue

# Other emulators and old clients write `queue` in the place of the account.
_ANY_ACCOUNT = "queue"
_HOST = re.compile(r"[A-Za-z0-9._\[\]:-]{1,300}")
_PATH = re.compile(r"/([0-9]{12}|queue)/([^/]+)/?")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_ARN = re.compile(r"arn:([a-z-]+):sqs:([a-z0-9-]*):([0-9]{12}):([^:/]+)")


@dataclass(frozen=True, slots=True)
class Account:
    """Whose queues these are, as far as names go."""

    id: str = "000000000000"
    region: str = "us-east-1"

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.id}:{queue}"

    def queue_of_arn(self, arn: str) -> str | None:
        """Return the name of the queue with this ARN, None if none of ours has it.

        >>> Account().queue_of_arn("arn:aws:sqs:us-east-1:000000000000:orders")
        'orders'
        """
        found = _ARN.fullmatch(arn)
        return found[4] if found and (found[2], found[3]) == (self.region, self.id) else None

    def url(self, front: str, queue: str) -> str:
        return f"{front}/{self.id}/{queue}"

    def queue_of_url(self, url: str) -> str:
        """Return the name of the queue with this URL, path or name; another account has no queues here."""
        if _NAME.fullmatch(url):
            # AWS wants a URL, and takes a name.
            return url
        try:
            path = urlsplit(url).path
        except ValueError:
            path = ""
        found = _PATH.fullmatch(path)
        if found is None:
            raise Refused(INVALID_ADDRESS, f"The address {url[:200]} is not valid for this endpoint.")
        if found[1] not in {self.id, _ANY_ACCOUNT}:
            raise no_queue()
        return unquote(found[2])


def is_queue_path(path: str) -> bool:
    """Whether a path is that of a queue.

    >>> [is_queue_path(path) for path in ("/000000000000/orders", "/queue/orders", "/api/queues", "/")]
    [True, True, False, False]
    """
    return _PATH.fullmatch(path) is not None


def front_of(scheme: str, host: str) -> str:
    """Return what the URLs of a client's queues begin with; a `Host` that is no name of a host is not repeated.

    >>> front_of("http", "127.0.0.1:8080"), front_of("https", 'x"><script>')
    ('http://127.0.0.1:8080', 'https://localhost')
    """
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else f"{scheme}://localhost"
