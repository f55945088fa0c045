"""How patient the server is with a connection of Kafka's, and how much of it it keeps in memory."""

import sys
from dataclasses import dataclass

from penstock.contract.limits import KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadlines in seconds, and sizes in bytes."""

    # From connecting to the first request, and to the proof of who asks where one is needed.
    first_request_s: float = 30.0
    # A client that sends less than `arriving_bytes_min` of a request in this time is dropped; a smaller one has this
    # time.
    arriving_s: float = 30.0
    arriving_bytes_min: int = 64 * KIB
    # Between two requests. Kafka's own default; clients open another connection when they need one.
    idle_s: float = 600.0
    # A client that takes less than `answer_bytes_min` of its answers in this time is dropped.
    answer_s: float = 30.0
    answer_bytes_min: int = 64 * KIB
    # For the client to close its side, too.
    farewell_s: float = 5.0
    # The largest request.
    frame_bytes_max: int = 16 * MIB
    # A larger request up to this is refused in words, if it produces: the client would send it again and again.
    refused_frame_bytes_max: int = 128 * MIB
    # The largest request of somebody who has not said yet who they are.
    stranger_frame_bytes_max: int = 64 * KIB
    # Requests of one connection that wait for their answers; then nothing more is read from it.
    pipelined_max: int = 64
    pipelined_bytes_max: int = 32 * MIB
    # Produce requests of one connection that are on their way to the disk at once.
    overlapping_max: int = 16
    # The batches of one answer; the first comes however large it is.
    fetched_bytes_max: int = 16 * MIB
    # Answers that clients have not read yet, of all connections together; then fetches get one batch at a time.
    unread_bytes_max: int = 256 * MIB
    connections_max: int = 16_000
    # A connection whose file has this number, or a higher one, is one too many: the store needs the rest.
    file_number_max: int = sys.maxsize
    # How often deadlines are looked at.
    sweep_s: float = 1.0


USUAL = Limits()
