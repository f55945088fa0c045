"""librdkafka by its C interface, so that a broker is what is measured and not Python's way to the client.

confluent-kafka makes a Python object of each message, 2 to 4 µs; here a thousand are handed over in one call, and
nothing is copied on the way in. The library is the one that confluent-kafka brings along. What takes long runs
without the interpreter lock.
"""

import ctypes
import time
from collections import deque
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

_PRODUCER, _CONSUMER = 0, 1
_ANY_PARTITION = -1
_AT_ONCE = 1_000
# More than this is not given to the client at once: it would only take memory.
_WAITING_MAX = 500_000
_READ_AT_ONCE = 10_000
_TEXT_BYTES = 512


class Message(ctypes.Structure):
    """`rd_kafka_message_t` of rdkafka.h."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class ClientFailed(Exception):
    """librdkafka refused, or did not come to an end in time."""


@cache
def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("conf_set", integer, [pointer, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("new", pointer, [integer, pointer, ctypes.c_char_p, ctypes.c_size_t]),
        ("destroy", None, [pointer]),
        ("topic_new", pointer, [pointer, ctypes.c_char_p, pointer]),
        ("topic_destroy", None, [pointer]),
        ("produce_batch", integer, [pointer, ctypes.c_int32, integer, ctypes.POINTER(Message), integer]),
        ("outq_len", integer, [pointer]),
        ("flush", integer, [pointer, integer]),
        ("poll", integer, [pointer, integer]),
        ("queue_new", pointer, [pointer]),
        ("queue_destroy", None, [pointer]),
        ("consume_start_queue", integer, [pointer, ctypes.c_int32, ctypes.c_int64, pointer]),
        ("consume_stop", integer, [pointer, ctypes.c_int32]),
        ("consume_batch_queue", ctypes.c_ssize_t, [pointer, integer, pointer, ctypes.c_size_t]),
    ):
        # An attribute, not an item: only as such it is the same function the next time.
        function: Any = getattr(found, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return found


@cache
def _destroy_message() -> Any:
    # It takes no time, so it keeps the interpreter lock: to let it go and take it again would cost more.
    function = ctypes.PyDLL(_library()._name).rd_kafka_message_destroy
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    return function


class _Client:
    """A client and one topic of it. Ends with the block."""

    def __init__(self, kind: int, settings: Mapping[str, object], topic: str) -> None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        settled = _library().rd_kafka_conf_new()
        for name, value in settings.items():
            said = str(value).lower() if isinstance(value, bool) else str(value)
            if _library().rd_kafka_conf_set(settled, name.encode(), said.encode(), text, _TEXT_BYTES):
                raise ClientFailed(text.value.decode())
        self._client = _library().rd_kafka_new(kind, settled, text, _TEXT_BYTES)
        if not self._client:
            raise ClientFailed(text.value.decode())
        self._topic = _library().rd_kafka_topic_new(self._client, topic.encode(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _library().rd_kafka_topic_destroy(self._topic)
        _library().rd_kafka_destroy(self._client)


class Producer(_Client):
    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        super().__init__(_PRODUCER, settings, topic)

    def produce_for(self, seconds: float, body: bytes, *, wait_s: float) -> int:
        """Produce one body again and again for so long, and return how many were sent, when none waits any more."""
        kept = ctypes.create_string_buffer(body, len(body))
        row = Message(payload=ctypes.addressof(kept), size=len(body))
        rows = bytes(row) * _AT_ONCE
        sent, ends_at = 0, time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            if _library().rd_kafka_outq_len(self._client) >= _WAITING_MAX:
                _library().rd_kafka_poll(self._client, 1)
                time.sleep(0.001)
                continue
            # Made again each time: the client writes into them.
            messages = (Message * _AT_ONCE).from_buffer_copy(rows)
            taken = _library().rd_kafka_produce_batch(self._topic, _ANY_PARTITION, 0, messages, _AT_ONCE)
            if taken != _AT_ONCE:
                raise ClientFailed(f"librdkafka took {taken} of {_AT_ONCE} messages")
            sent += _AT_ONCE
        if _library().rd_kafka_flush(self._client, int(wait_s * 1_000)):
            raise ClientFailed(f"not all messages were acknowledged within {wait_s} s")
        return sent


class Consumer(_Client):
    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        super().__init__(_CONSUMER, settings, topic)

    def consume(self, partitions: int, count: int, *, wait_s: float) -> int:
        """Read so many messages from the beginning of all partitions."""
        queue = _library().rd_kafka_queue_new(self._client)
        found = (ctypes.c_void_p * _READ_AT_ONCE)()
        destroy, got = _destroy_message(), 0
        for partition in range(partitions):
            if _library().rd_kafka_consume_start_queue(self._topic, partition, 0, queue):
                raise ClientFailed(f"partition {partition} could not be read")
        while got < count:
            want = min(_READ_AT_ONCE, count - got)
            read = _library().rd_kafka_consume_batch_queue(queue, int(wait_s * 1_000), found, want)
            if read <= 0:
                raise ClientFailed(f"{got} of {count} messages came within {wait_s} s")
            first = Message.from_address(found[0] or 0)
            if first.err:
                raise ClientFailed(f"the consumer says error {first.err}")
            deque(map(destroy, found[:read]), maxlen=0)
            got += read
        for partition in range(partitions):
            _library().rd_kafka_consume_stop(self._topic, partition)
        _library().rd_kafka_queue_destroy(queue)
        return got
