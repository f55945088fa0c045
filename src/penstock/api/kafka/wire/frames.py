"""Frames out of a stream of bytes, and the headers they begin with.

    room() ──▶ the socket writes into it ──▶ received(count) ──▶ whole frames

    frame     size i32, then so many bytes
    request   api key i16, version i16, correlation i32, client id string, tagged fields from version 2 of it on
    answer    correlation i32, tagged fields from version 1 of it on; ApiVersions has none in any version

Laws of this file
-----------------
1. A length is checked before memory is spent on it, and memory grows with what has
   arrived, not with what was announced: a stranger who says 16 MB and sends nothing
   costs a few kilobytes.
2. A large frame is received where it stays: what it holds is never copied again. It
   grows by doubling, so what moves meanwhile is no more than it.
3. Small frames share what is received into, and are copied out of it.
4. What is no frame that is taken here ends the stream, not the frames before it: they
   come out, and nothing after them can be understood.
5. Of a frame that is too large, but not by far, the front comes out when the rest has
   passed: enough to say what is refused to a client that would send it again for ever.
6. ApiVersions is asked before anything is known, so a version that is not offered is no
   error of its own here: it is answered in the oldest way (KIP-511).
"""

from struct import Struct
from typing import NamedTuple

from penstock.api.kafka.wire.fields import Reader
from penstock.api.kafka.wire.schema import Api, is_flexible, is_offered

_LENGTH = Struct(">i")
_LENGTH_AND_CORRELATION = Struct(">ii")
# What is read from a socket at once, and the first piece of a frame that does not fit.
ROOM_BYTES = 64 * 1024
_FIRST_BYTES = 2 * 1024 * 1024
# What is kept of a frame that is too large.
FRONT_BYTES = 4 * 1024


class Frames:
    """What has arrived of one connection and is not a whole frame yet."""

    __slots__ = (
        "bytes_max",
        "passing_bytes_max",
        "is_broken",
        "is_front",
        "_shared",
        "_start",
        "_end",
        "_large",
        "_filled",
        "_size",
        "_is_passing",
    )

    def __init__(self, bytes_max: int, passing_bytes_max: int = 0) -> None:
        # The largest frame, and the largest that is let pass; may be raised when it is known who sends.
        self.bytes_max = bytes_max
        self.passing_bytes_max = passing_bytes_max
        # Whether what came out last is only the front of a frame.
        self.is_front = False
        # Whether something came that is no frame; what comes then is thrown away.
        self.is_broken = False
        self._shared = bytearray(ROOM_BYTES)
        # What of the shared buffer has arrived and was not taken yet.
        self._start = self._end = 0
        # The large frame that is arriving, how much of it is there, and its size.
        self._large: bytearray | None = None
        self._filled = self._size = 0
        # Whether only its front is kept.
        self._is_passing = False

    @property
    def is_empty(self) -> bool:
        """Whether no frame has begun."""
        return self._large is None and self._start == self._end

    @property
    def arriving_bytes(self) -> int:
        """What a large frame that is not whole takes in memory; what small ones need is there for each connection."""
        return 0 if self._large is None else len(self._large)

    def room(self) -> memoryview:
        """Return where the next bytes belong; never empty."""
        if self._large is None:
            return memoryview(self._shared)[self._end :]
        if self._is_passing:
            # What is after the front is written over again and again; never is anything after the frame.
            start = min(self._filled, FRONT_BYTES)
            return memoryview(self._large)[start : start + self._size - self._filled]
        if self._filled == len(self._large):
            # A new buffer, because the reader may still hold views of the old one.
            larger = bytearray(min(self._size, max(2 * self._filled, _FIRST_BYTES)))
            larger[: self._filled] = self._large
            self._large = larger
        return memoryview(self._large)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are whole now that ``count`` bytes were written into the room."""
        if self.is_broken:
            return []
        self.is_front = False
        if self._large is None:
            self._end += count
            return self._take_small()
        self._filled += count
        if self._filled < self._size:
            return []
        frame, self._large = memoryview(self._large), None
        self.is_front = self._is_passing
        return [frame[:FRONT_BYTES] if self.is_front else frame]

    def _take_small(self) -> list[memoryview]:
        frames: list[memoryview] = []
        start, end = self._start, self._end
        while end - start >= _LENGTH.size:
            size = _LENGTH.unpack_from(self._shared, start)[0]
            # What passes is larger than the room, so that it comes out alone.
            if not (0 <= size <= self.bytes_max or ROOM_BYTES < size <= self.passing_bytes_max):
                self.is_broken = True
                start = end
                break
            after = start + _LENGTH.size + size
            if after > end:
                if size + _LENGTH.size > ROOM_BYTES // 2:
                    self._begin_large(start + _LENGTH.size, end, size)
                    start = end
                break
            frames.append(memoryview(bytes(self._shared[start + _LENGTH.size : after])))
            start = after
        self._keep(start, end)
        return frames

    def _begin_large(self, start: int, end: int, size: int) -> None:
        self._size, self._filled = size, end - start
        self._is_passing = size > self.bytes_max
        is_fast = end - start >= ROOM_BYTES // 4 and not self._is_passing
        self._large = bytearray(min(size, _FIRST_BYTES if is_fast else ROOM_BYTES))
        self._large[: end - start] = self._shared[start:end]

    def _keep(self, start: int, end: int) -> None:
        """Move what is left of a small frame to the beginning, so that there is room for the rest of it."""
        if start == end:
            start = end = 0
        elif start:
            self._shared[: end - start] = self._shared[start:end]
            start, end = 0, end - start
        self._start, self._end = start, end


class Header(NamedTuple):
    key: int
    version: int
    correlation: int
    client_id: str | None
    # Where the body begins.
    body: int


class NotOffered(Exception):
    """A request that is not taken, or not in this version; the client did not look at ApiVersions."""


def read_header(frame: memoryview) -> Header:
    """Return the head of a request; raises `Malformed` and `NotOffered`."""
    reader = Reader(frame, is_flexible=True)
    key, version, correlation = reader.int16(), reader.int16(), reader.int32()
    if not is_offered(key, version):
        if key == Api.API_VERSIONS and version > 0:
            return Header(key, version, correlation, None, len(frame))
        raise NotOffered(f"request {key} in version {version}")
    client_id = reader.legacy_nullable_string()
    if is_flexible(key, version):
        reader.skip_tags()
    return Header(key, version, correlation, client_id, reader.place)


def framed(header: Header, body: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return an answer as the parts that are written one after the other."""
    has_tags = header.key != Api.API_VERSIONS and is_flexible(header.key, header.version)
    size = _LENGTH.size + has_tags + sum(map(len, body))
    head = _LENGTH_AND_CORRELATION.pack(size, header.correlation)
    return [head + b"\0" if has_tags else head, *body]
