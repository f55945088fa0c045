"""An answer of HTTP/1.1, put together from the bytes of a connection: bytes in, answer out, and no I/O.

Laws of the file
----------------
1. Headers and body are bounded, and a Content-Length beyond the limit is refused before the body is read.
2. What stands around the answer, such as interim answers and the sizes of chunks, is bounded too.
3. What follows an answer is noise, as one request is asked at a time.

Not done here: answers that end with the connection, as every server we speak to says a length or sends chunks.
"""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from penstock.client.caller import Answer, AnswerTooLarge, Unanswered

HEADER_BYTES_MAX = 65_536
# Several times what a server answers with at most: it hands out 16 MiB of bodies at once, with their other fields.
BODY_BYTES_MAX = 256 * 1024 * 1024


class _TooLarge(Exception):
    """Raised through the parser."""


class AnswerParser:
    """Reads the answers of one connection, one after the other."""

    __slots__ = (
        "answer",
        "is_last",
        "_parser",
        "_fault",
        "_arrived_bytes",
        "_headers",
        "_header_bytes",
        "_chunks",
        "_body_bytes",
    )

    def __init__(self) -> None:
        # The answer, once it is whole.
        self.answer: Answer | None = None
        # Whether the connection is of no further use: the server closes it, or sent more than the answer.
        self.is_last = False
        self._parser = HttpResponseParser(self)
        self._fault = ""
        # Of the answer, and of interim ones before it.
        self._arrived_bytes = 0
        self._begin()

    def begin(self) -> None:
        """Wait for the next answer."""
        self.answer = None
        self._arrived_bytes = 0

    def feed(self, data: bytes) -> Answer | None:
        """Take bytes that came, and return the answer if it is whole. Raises `AnswerTooLarge` and `Unanswered`."""
        self._arrived_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade, _TooLarge) as error:
            if self.answer is not None:
                # The answer is whole. Only what follows it is bad.
                self.is_last = True
                return self.answer
            if isinstance(error, HttpParserUpgrade):
                raise Unanswered("the server changed the protocol") from None
            if self._fault:
                raise AnswerTooLarge(self._fault) from None
            raise Unanswered(f"the answer is not HTTP: {error}") from None
        answer = self.answer
        if answer is None and self._arrived_bytes - self._body_bytes > HEADER_BYTES_MAX + self._body_bytes // 8:
            # The parser keeps what is not whole.
            raise AnswerTooLarge(f"what stands around the answer is larger than HEADER_BYTES_MAX ({HEADER_BYTES_MAX})")
        return answer

    # What follows is called by the parser.

    def _begin(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._chunks: list[bytes] = []
        self._body_bytes = 0

    def on_message_begin(self) -> None:
        if self.answer is not None:
            self.is_last = True
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES_MAX:
            self._refuse(f"the headers of the answer are larger than HEADER_BYTES_MAX ({HEADER_BYTES_MAX})")
        self._headers.append((name, value))
        if len(name) == 14 and name.lower() == b"content-length":
            self._check_length(value)

    def _check_length(self, length: bytes) -> None:
        if len(length) > 18 or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            shown = length[:30].decode("latin-1")
            self._refuse(f"the answer has {shown} bytes; BODY_BYTES_MAX is {BODY_BYTES_MAX}")

    def on_body(self, chunk: bytes) -> None:
        self._body_bytes += len(chunk)
        if self._body_bytes > BODY_BYTES_MAX:
            self._refuse(f"the answer is larger than BODY_BYTES_MAX ({BODY_BYTES_MAX})")
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self.answer is not None:
            return
        if not self._parser.should_keep_alive():
            self.is_last = True
        chunks, headers = self._chunks, {}
        if status >= 400:
            # Of other answers the body says everything.
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers}
        self.answer = Answer(status, headers, chunks[0] if len(chunks) == 1 else b"".join(chunks))
        self._chunks = []

    def _refuse(self, reason: str) -> None:
        self._fault = reason
        raise _TooLarge(reason)
