"""Samples of every format, as the bytes that are written."""

from array import array
from collections.abc import Callable
from textwrap import wrap

from penstock.contract.history_columns import BodyState
from penstock.contract.messages import MessageOutcome, Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.consumer_group.group import GroupRecord
from penstock.core.consumer_group.members import Member
from penstock.core.queue import events
from penstock.core.queue.events import Event
from penstock.core.queue.message import Origin, Run, Sender
from penstock.core.queue.settlements import Settlement
from penstock.frame import Blobs
from penstock.log import record
from penstock.log.record import MarkerPosition
from penstock.log.segment import Index
from penstock.runtime.interface import Buffer
from penstock.store.embedded import event_codec, history_format, snapshot_file
from penstock.store.embedded.body_index import BodyIndex
from penstock.store.embedded.shard_state import ShardState
from penstock.streams import group_records as offset_store
from penstock.streams.group_records import CommittedOffset
from penstock.wire import frames
from penstock.wire.frames import Held, Ids, LeasedFrame, SendFrame, SettleFrame
from tests.core.queue.life import Life
from tests.simulation.disk import SimDisk

AT_MS = 1_700_000_000_000
RUNS = (Run(2, 7, 3), Run(0, 1, 1))
ORIGINS = (Origin(1, 2, 7, AT_MS - 5_000, 3), Origin(4, 0, 1, AT_MS - 9_000, 0))
MOVED = (RUNS, b"\x02\x00", ORIGINS, (b"tenant", b""), ("boom", ""))

EVENTS: tuple[Event, ...] = (
    events.Opened(AT_MS),
    events.QueueCreated(1, AT_MS, "orders", QueueSettings().to_json()),
    events.QueueChanged(1, AT_MS, QueueSettings(is_fifo=True, labels='{"a":"ü"}').to_json()),
    events.QueueDeleted(1, AT_MS),
    events.Sent(1, AT_MS, b"\x02\x02"),
    events.Sent(
        1,
        AT_MS,
        b"\x02\x00",
        sender=Sender(2**64 - 1, 7, 9),
        visible_at_ms=(AT_MS + 1_000, 0),
        groups=(b"tenant", b""),
        dedup_ids=(b"", b"once"),
        deliveries_max=(3, 0),
        repeats=((1, 58),),
    ),
    events.Leased(1, AT_MS, 5, 2**63 - 1, 30_000, RUNS, b"\x02\x00"),
    events.Acked(1, AT_MS, 5, 0b1011),
    events.Released(1, AT_MS, 5, 0b11, (AT_MS + 1_000, AT_MS), "boom"),
    events.Returned(1, AT_MS, 5, 0b1),
    events.Extended(1, AT_MS, 5, 0b1, 60_000),
    events.Buried(1, AT_MS, 2, *MOVED),
    events.Expired(1, AT_MS, RUNS),
    events.Purged(1, AT_MS),
    events.Escalated(1, AT_MS, RUNS, 0, AT_MS + 60_000, "ada", "a customer waits"),
    events.Redriven(2, AT_MS, 1, *MOVED),
    events.Copied(1, AT_MS, RUNS),
    events.Moving(1, AT_MS, 2, 4, is_redrive=False, runs=RUNS),
    events.Arrived(2, AT_MS, 1, 4, *MOVED[1:]),
    events.Moved(1, AT_MS, 4, is_done=True),
    events.CaughtUp(1, AT_MS, AT_MS - 1_000, 1_000),
    events.Cancelled(1, AT_MS, RUNS),
)
BODIES, ATTRIBUTES = Blobs.of([b"one", b"\xff\x00"]), Blobs.of([b"", b'{"n":1}'])
WITH_BODIES = events.Sent, events.Arrived, events.Copied


def journal() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for event in EVENTS:
        has_bodies = isinstance(event, WITH_BODIES)
        key, value = event_codec.encode(event, BODIES if has_bodies else None, ATTRIBUTES if has_bodies else None)
        number = sum(name.startswith(type(event).__name__) for name in found)
        name = type(event).__name__ + (f" {number}" if number else "")
        found[f"{name}, key"] = key
        found[f"{name}, value"] = value or b""
    return found


def record_batches() -> dict[str, bytes]:
    index = Index(100, 1)
    for offset, position in ((100, 0), (105, 70), (119, 400)):
        index.add(offset, position, AT_MS + offset)
    positions, times = index.to_bytes()
    alone, several = [(b"key", b"value")], [(b"key", b"value"), (None, None), (b"", b"x" * 200)]
    return {
        "one record": bytes(record.encode(alone, at_ms=AT_MS)),
        "several records of a producer": bytes(
            record.encode(several, at_ms=AT_MS, producer=record.Producer(2**40, 3, 17))
        ),
        "hole": record.hole(100, 107),
        "marker": record.encode_marker(
            MarkerPosition(41, 640), durable_bytes=512, log_id=2**63 - 5, heads=[b"head of a batch "]
        ),
        "index": positions,
        "time index": times,
    }


def shard_snapshot() -> dict[str, bytes]:
    disk = SimDisk()
    snapshot_file.save(disk, "snapshots", _memory(), 4_711)
    return {snapshot_file.snapshot_name(4_711): disk.read_bytes(f"snapshots/{snapshot_file.snapshot_name(4_711)}")}


def _memory() -> ShardState:
    """A plain queue and a FIFO queue in which messages are everywhere that a message may be."""
    plain = Life(QueueSettings(dedup_window_ms=60_000, retention_ms=10**9), number=1)
    plain.send(5)
    plain.send(3, Tier.HIGH, group=b"tenant")
    plain.send(2, Tier.LOW, delay_ms=5_000, ids=[b"one", b"two"], sender=Sender(7, 1, 4))
    plain.send(2, Tier.BACKGROUND, deliveries_max=2)
    plain.ack(plain.leased(2, 60_000))
    plain.release(plain.leased(2), delay_ms=9_000)
    plain.leased(3, 60_000)
    plain.escalate(plain.send(1, Tier.BACKGROUND), Tier.CRITICAL, until_ms=plain.now_ms + 70_000)
    fifo = Life(QueueSettings(is_fifo=True, deliveries_max=1), number=2)
    fifo.send(2, group=b"a")
    fifo.send(2, group=b"b")
    fifo.release(fifo.leased(1))
    memory = ShardState()
    for name, life in (("orders", plain), ("bills", fifo)):
        memory.put(life.queue, name, BodyIndex())
    return memory


def history() -> dict[str, bytes]:
    sent = array("Q", [8]), array("q", [AT_MS])
    alike = Settlement(
        1, 8 << 3 | 2, 3, 1, 2, 8, 2, b"", sent, AT_MS, AT_MS + 1, AT_MS + 2, 1, MessageOutcome.ACKED, ""
    )
    moved = alike._replace(
        queue=3, key=5 << 3, count=1, group=b"tenant", sent_at_ms=AT_MS, ending=MessageOutcome.BURIED, error="boom"
    )
    names: dict[int, str] = {1: "orders", 3: "orders.dead"}
    kept = [BodyState.KEPT, BodyState.KEPT, BodyState.KEPT, BodyState.TOO_LARGE]
    texts: list[Buffer] = [b"one", b"", b"\xff", b""]
    more: list[Buffer] = [b'{"n":1}', b"", b"", b""]
    bodies = history_format.Bodies(array("B", kept), texts, more)
    facts = history_format.encode([alike], names, covered=90, within=0)
    full = history_format.encode([alike, moved], names, covered=91, within=4, bodies=bodies)
    endings = [alike._replace(count=1, ending=ending) for ending in MessageOutcome]
    ended = history_format.encode(endings, names, covered=92, within=0)
    said = zip(("facts", "full", "every ending"), (facts, full, ended), strict=True)
    return {f"{name}, {part}": data for name, frame in said for part, data in zip(("key", "value"), frame, strict=True)}


def sdk_frames() -> dict[str, bytes]:
    send = SendFrame(
        bodies=[b"one", b""],
        tiers=b"\x00\x04",
        delay_ms=[1_000, 0],
        visible_at_ms=[0, AT_MS],
        groups=[b"tenant", b""],
        dedup_ids=[b"", b"once"],
        attributes=[b"{}", b""],
        deliveries_max=[0, 3],
        sender=frames.Sender(2**64 - 1, 7, 9),
    )
    lease = LeasedFrame(
        lease=5, token=2**63 - 1, until_ms=AT_MS, ids=Ids(31, [2, 10]), bodies=[b"one", b""], tiers=b"\x02\x00",
        deliveries=[1, 4], sent_at_ms=[AT_MS - 9, AT_MS - 8],
    )  # fmt: skip
    full = LeasedFrame(
        lease=5, token=1, until_ms=AT_MS, ids=Ids(0, None, [b"1f-2", b"2-a"]), bodies=[b"one", b""], tiers=b"\x02\x00",
        deliveries=[1, 4], sent_at_ms=[AT_MS - 9, AT_MS - 8], groups=[b"tenant", b""], attributes=[b"", b"{}"],
        errors=[b"boom", b""], origins=([b"", b"orders"], [0, AT_MS - 99], [0, 3]),
    )  # fmt: skip
    return {
        "send": frames.encode_send(SendFrame(bodies=[b"one", b""])),
        "send, with everything": frames.encode_send(send),
        "sent": frames.encode_sent(Ids(31, [2, 10])),
        "sent, ids of several queues": frames.encode_sent(Ids(0, None, [b"1f-2", b"2-a"])),
        "leased": frames.encode_leased(lease),
        "leased, with everything": frames.encode_leased(full),
        "settle": frames.encode_settle(SettleFrame([Held(5, 2**63 - 1, 0b11), Held(6, 1, 1 << 70)])),
        "settle, rejected": frames.encode_settle(SettleFrame([Held(5, 1, 1)], 0, "boom ü", is_rejected=True)),
        "settle, untouched": frames.encode_settle(SettleFrame([Held(5, 1, 1)], is_untouched=True)),
        "settled": frames.encode_settled([0b11, 0, 1 << 70]),
        "settled and leased": frames.encode_both(frames.encode_settled([0b11]), frames.encode_leased(lease)),
        "settled, and no message": frames.encode_both(frames.encode_settled([0b11]), b""),
    }


def group_offsets() -> dict[str, bytes]:
    member = Member(
        member_id="m-1",
        instance_id="static",
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocols=(("range", b"\x01"),),
        assignment=b"\x02\x03",
    )
    written = {
        "offset": offset_store.write_offset("group", ("topic", 3), CommittedOffset(42, 7, "note", AT_MS, AT_MS + 1)),
        "offset, forgotten": offset_store.write_offset("group", ("topic", 3), None),
        "generation": offset_store.write_group("group", GroupRecord(AT_MS, 9, "consumer", "range", "m-1", (member,))),
        "generation, forgotten": offset_store.write_group("group", None),
    }
    return {
        f"{name}, {part}": data or b""
        for name, pair in written.items()
        for part, data in zip(("key", "value"), pair, strict=True)
    }


FORMATS: dict[str, Callable[[], dict[str, bytes]]] = {
    "journal.txt": journal,
    "record_batches.txt": record_batches,
    "snapshot.txt": shard_snapshot,
    "history_frames.txt": history,
    "sdk_frames.txt": sdk_frames,
    "group_offsets.txt": group_offsets,
}


def as_text(samples: dict[str, bytes]) -> str:
    """Return bytes as they are kept: a name, and below it lines of hexadecimal digits, 32 bytes in each."""
    lines: list[str] = []
    for name, data in samples.items():
        lines += [name, *(f"    {line}" for line in wrap(data.hex(), 64))]
    return "\n".join(lines) + "\n"
