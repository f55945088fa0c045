"""How patient a server is with a connection, and how much of it it keeps in memory."""

from dataclasses import dataclass

from penstock.contract.limits import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Deadlines in seconds, and sizes in bytes, of one connection."""

    # From the first byte of a request until its headers are complete.
    head_s: float = 10.0
    # A client that sends less than `body_bytes_min` of a body in this time is refused; a smaller body has this time.
    body_s: float = 30.0
    body_bytes_min: int = 64 * KIB
    # From connecting to the first byte.
    first_byte_s: float = 30.0
    # Between two requests.
    idle_s: float = 75.0
    # A client that takes less than `answer_bytes_min` of its answer in this time is dropped.
    answer_s: float = 30.0
    answer_bytes_min: int = 64 * KIB
    # For the client to hear the last answer of a connection, and to close it too.
    farewell_s: float = 5.0
    # The request line and all headers together; as much again of trailers, or of anything else around a body.
    head_bytes_max: int = 64 * KIB
    # Each header is two objects of Python, however short it is.
    headers_max: int = 256
    # A request up to this size is not counted in the budget that all connections share: small ones always get through.
    uncounted_bytes_max: int = 8 * KIB
    # What has arrived of a body before anybody reads it; then nothing more is read from the socket.
    ahead_bytes_max: int = 256 * KIB
    # What is read and thrown away after an answer that came before the end of the request.
    discarded_bytes_max: int = 64 * MIB
    # Requests that wait behind the one that is being answered.
    pipelined_max: int = 64
    # Connections that are one too many and are told so, at once; more are closed without a word.
    refused_max: int = 32
    # How often deadlines are looked at.
    sweep_s: float = 1.0


PATIENT = Patience()
