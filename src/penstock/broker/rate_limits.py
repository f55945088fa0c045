"""How fast a key may go: requests and bytes per second, with a burst of one second.

What is taken is counted after it is known, so a level may fall below zero: a large
request is let through whole, and the next one waits until it is paid for. Time is an
argument. Each server counts for itself.
"""


class RateLimited(Exception):
    """The key goes faster than it may; ``retry_after_ms`` says when it may go on."""

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Bucket:
    """Fills at a rate up to what comes in a second, and is taken from.

    >>> bucket = Bucket(per_s=10)
    >>> bucket.take(15, now_ms=0)
    >>> [bucket.wait_ms(now_ms) for now_ms in (0, 400, 501)]
    [501, 101, 0]
    """

    __slots__ = ("per_s", "_level", "_at_ms")

    def __init__(self, per_s: int) -> None:
        assert per_s > 0
        self.per_s = per_s
        # In thousandths, so that all numbers are whole.
        self._level = per_s * 1_000
        self._at_ms = 0

    def take(self, amount: int, *, now_ms: int) -> None:
        self._fill(now_ms)
        self._level -= amount * 1_000

    def wait_ms(self, now_ms: int) -> int:
        """Return for how long nothing may be taken; 0 if something may."""
        self._fill(now_ms)
        return 0 if self._level > 0 else -self._level // self.per_s + 1

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(now_ms, self._at_ms)
        self._level = min(self.per_s * 1_000, self._level + passed_ms * self.per_s)


class Rate:
    """The two buckets of a key; one that is None has no limit."""

    __slots__ = ("requests", "bytes")

    def __init__(self, *, requests_per_s: int | None, bytes_per_s: int | None) -> None:
        self.requests = None if requests_per_s is None else Bucket(requests_per_s)
        self.bytes = None if bytes_per_s is None else Bucket(bytes_per_s)

    def wait_ms(self, now_ms: int) -> int:
        return max(0 if each is None else each.wait_ms(now_ms) for each in (self.requests, self.bytes))

    def take_request(self, now_ms: int) -> None:
        if self.requests is not None:
            self.requests.take(1, now_ms=now_ms)

    def take_bytes(self, size: int, now_ms: int) -> None:
        if self.bytes is not None:
            self.bytes.take(size, now_ms=now_ms)

    def check(self, name: str, now_ms: int) -> None:
        """Count a request, or raise `RateLimited`."""
        for bucket, what in ((self.requests, "requests"), (self.bytes, "bytes")):
            wait_ms = 0 if bucket is None else bucket.wait_ms(now_ms)
            if bucket is not None and wait_ms:
                raise RateLimited(f"the key {name!r} may do {bucket.per_s} {what} per second", wait_ms)
        self.take_request(now_ms)
