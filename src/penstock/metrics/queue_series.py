"""The lines of queues on the metrics page, written by hand: thousands of queues are asked for every few seconds.

    one queue    ▶ a block: the text of each family, some of it empty
    all queues   ▶ for each family its head, and the texts of all blocks

A block of a queue that is empty and was not used since the last time is used again. What most queues never see, such
as a purge, is left out until it has happened once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock import telemetry
from penstock.broker.traffic import Totals, Traffic
from penstock.contract.messages import Tier
from penstock.core.queue.events import Tally
from penstock.store.interface import Counts, Description
from penstock.telemetry import Metric

TIERS = tuple(tier.name.lower() for tier in Tier)

# A block has the texts of these families, in this order.
FAMILIES = (
    telemetry.QUEUE_MESSAGES,
    telemetry.QUEUE_OLDEST_AGE,
    telemetry.QUEUE_UNSETTLED_AGE,
    telemetry.QUEUE_STUCK_AGE,
    telemetry.QUEUE_SIZE,
    telemetry.QUEUE_PRESSURE,
    telemetry.QUEUE_DEAD_LETTERS,
    telemetry.QUEUE_ALERT_DEAD_LETTERS,
    telemetry.QUEUE_WAIT_BOUND,
    telemetry.QUEUE_NOISY_GROUPS,
    telemetry.QUEUE_NOISY_MESSAGES,
    telemetry.QUEUE_SENT,
    telemetry.QUEUE_RECEIVED,
    telemetry.QUEUE_ACKED,
    telemetry.QUEUE_RELEASED,
    telemetry.QUEUE_LAPSED,
    telemetry.QUEUE_BURIED,
    telemetry.QUEUE_REDRIVEN,
    telemetry.QUEUE_REQUEUED,
    telemetry.QUEUE_EXPIRED,
    telemetry.QUEUE_PURGED,
    telemetry.QUEUE_CANCELLED,
    telemetry.QUEUE_ESCALATED,
    telemetry.QUEUE_PROMOTED,
    telemetry.QUEUE_SENT_BYTES,
    telemetry.QUEUE_RECEIVED_BYTES,
    telemetry.QUEUE_WAITED,
    telemetry.QUEUE_FIRST_RECEIVED,
    telemetry.QUEUE_OPERATIONS,
)
_PLACE = {metric.name: place for place, metric in enumerate(FAMILIES)}
_ALWAYS = (
    (telemetry.QUEUE_SENT, "sent"),
    (telemetry.QUEUE_RECEIVED, "received"),
    (telemetry.QUEUE_ACKED, "acked"),
    (telemetry.QUEUE_RELEASED, "released"),
)
_OF_TOTALS = (
    (telemetry.QUEUE_REQUEUED, "requeued"),
    (telemetry.QUEUE_CANCELLED, "cancelled"),
    (telemetry.QUEUE_SENT_BYTES, "sent_bytes"),
    (telemetry.QUEUE_RECEIVED_BYTES, "received_bytes"),
    (telemetry.QUEUE_FIRST_RECEIVED, "first_received"),
)
_OF_TALLY = (
    (telemetry.QUEUE_REDRIVEN, "redriven"),
    (telemetry.QUEUE_EXPIRED, "expired"),
    (telemetry.QUEUE_PURGED, "purged"),
    (telemetry.QUEUE_ESCALATED, "escalated"),
    (telemetry.QUEUE_PROMOTED, "promoted"),
)
_SUCCESSES = (
    ("send", "sent"), ("receive", "received"), ("ack", "acked"), ("release", "released"), ("extend", "extended"),
)  # fmt: skip
_NO_TOTALS, _NO_TALLY = Totals(), Tally()

Block = list[str]
_Columns = tuple[tuple[Metric, str], ...]


class QueueSeries:
    def __init__(self, traffic: Traffic, tally_of: Callable[[str], Tally | None], now_ms: Callable[[], int]) -> None:
        self._traffic = traffic
        self._tally_of = tally_of
        self._now_ms = now_ms
        # By queue: what its block depends on while it is empty, and the block.
        self._kept: dict[str, tuple[object, Block]] = {}

    def begin(self, names: Sequence[str]) -> None:
        """Forget what was kept of queues that are gone."""
        if len(self._kept) > len(names):
            there = set(names)
            self._kept = {name: kept for name, kept in self._kept.items() if name in there}

    def block(
        self,
        description: Description,
        counts: Counts,
        dead_letters: int | None,
        refusals: Mapping[tuple[str, str], int],
    ) -> Block:
        """Return the texts of one queue; ``dead_letters`` says how many messages are in its dead-letter queue."""
        name = description.queue
        totals, tally = self._traffic.totals.get(name) or _NO_TOTALS, self._tally_of(name) or _NO_TALLY
        is_empty = not counts.live
        inputs = None
        if is_empty:
            inputs = (description.settings, dead_letters, _values(totals), _values(tally), refusals)
            kept = self._kept.get(name)
            if kept is not None and kept[0] == inputs:
                return kept[1]
        found = _block(description, counts, dead_letters, self._now_ms())
        _add_counters(found, name, totals, tally)
        _add_operations(found, name, totals, refusals)
        if is_empty:
            self._kept[name] = inputs, found
        return found


def heads() -> list[bytes]:
    """Return what stands before the texts of each family."""
    return [head(metric) for metric in FAMILIES]


def head(metric: Metric, *, is_openmetrics: bool = False) -> bytes:
    name = metric.name.removesuffix("_total") if is_openmetrics else metric.name
    meaning = metric.meaning.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {meaning}\n# TYPE {name} {metric.kind}\n".encode()


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _values(counted: Totals | Tally) -> tuple[int, ...]:
    if type(counted) is Totals:
        return (
            counted.sent, counted.received, counted.acked, counted.released, counted.extended, counted.requeued,
            counted.cancelled,
        )  # fmt: skip
    assert type(counted) is Tally
    return (
        counted.lapsed, counted.promoted, counted.buried, counted.redriven, counted.expired, counted.purged,
        counted.escalated,
    )  # fmt: skip


def _block(description: Description, counts: Counts, dead_letters: int | None, now_ms: int) -> Block:
    found = [""] * len(FAMILIES)
    settings, name = description.settings, description.queue
    ready = counts.ready
    own = f'{{queue="{name}"'
    line = f"penstock_queue_messages{own},state="
    found[0] = (
        f'{line}"ready",tier="critical"}} {ready[0]}\n{line}"ready",tier="high"}} {ready[1]}\n'
        f'{line}"ready",tier="normal"}} {ready[2]}\n{line}"ready",tier="low"}} {ready[3]}\n'
        f'{line}"ready",tier="deferred"}} {ready[4]}\n{line}"in_flight",tier=""}} {counts.leased}\n'
        f'{line}"delayed",tier=""}} {counts.delayed}\n{line}"stuck",tier=""}} {counts.stuck}\n'
    )
    if counts.live:
        _add_ages(found, own, description, counts, now_ms)
    if settings.size_max:
        _put(found, telemetry.QUEUE_SIZE, own, settings.size_max)
        _put(found, telemetry.QUEUE_PRESSURE, own, counts.live / settings.size_max)
    if dead_letters is not None:
        _put(found, telemetry.QUEUE_DEAD_LETTERS, own, dead_letters)
    if settings.alert_dead_letters:
        _put(found, telemetry.QUEUE_ALERT_DEAD_LETTERS, own, settings.alert_dead_letters)
    if counts.noisy_groups:
        _put(found, telemetry.QUEUE_NOISY_GROUPS, own, counts.noisy_groups)
        name = telemetry.QUEUE_NOISY_MESSAGES.name
        found[_PLACE[name]] = (
            f'{name}{own},state="ready"}} {counts.noisy_ready}\n{name}{own},state="in_flight"}} {counts.noisy_leased}\n'
        )
    return found


def _add_ages(found: Block, own: str, description: Description, counts: Counts, now_ms: int) -> None:
    by_tier = list(zip(TIERS, counts.oldest_sent_at_ms, description.bounds, strict=True))
    oldest = [at_ms for _, at_ms, _ in by_tier if at_ms is not None]
    if oldest:
        name = telemetry.QUEUE_OLDEST_AGE.name
        found[_PLACE[name]] = "".join(
            f'{name}{own},tier="{tier}"}} {_age_s(now_ms, at_ms)}\n' for tier, at_ms, _ in by_tier if at_ms is not None
        )
        name = telemetry.QUEUE_WAIT_BOUND.name
        found[_PLACE[name]] = "".join(
            f'{name}{own},tier="{tier}"}} {bound.wait_ms / 1_000}\n'
            for tier, at_ms, bound in by_tier
            if at_ms is not None and bound.wait_ms is not None
        )
    if counts.leased_sent_at_ms is not None:
        oldest.append(counts.leased_sent_at_ms)
    if oldest:
        _put(found, telemetry.QUEUE_UNSETTLED_AGE, own, _age_s(now_ms, min(oldest)))
    if counts.stuck_since_ms is not None:
        _put(found, telemetry.QUEUE_STUCK_AGE, own, _age_s(now_ms, counts.stuck_since_ms))


def _add_counters(found: Block, name: str, totals: Totals, tally: Tally) -> None:
    own = f'{{queue="{name}"'
    for metric, attribute in _ALWAYS:
        _put(found, metric, own, getattr(totals, attribute))
    _put(found, telemetry.QUEUE_LAPSED, own, tally.lapsed)
    _put(found, telemetry.QUEUE_BURIED, own, tally.buried)
    if totals.first_received:
        _put(found, telemetry.QUEUE_WAITED, own, totals.waited_ms / 1_000)
    counted: tuple[tuple[Totals | Tally, _Columns], ...] = ((totals, _OF_TOTALS), (tally, _OF_TALLY))
    for values, columns in counted:
        for metric, attribute in columns if values is not _NO_TOTALS and values is not _NO_TALLY else ():
            if value := getattr(values, attribute):
                _put(found, metric, own, value)


def _add_operations(found: Block, name: str, totals: Totals, refusals: Mapping[tuple[str, str], int]) -> None:
    family = telemetry.QUEUE_OPERATIONS.name
    lines = [
        f'{family}{{queue="{name}",operation="{operation}",outcome="success"}} {value}\n'
        for operation, attribute in _SUCCESSES
        if (value := getattr(totals, attribute))
    ]
    lines += [refusal_line(name, *which, count) for which, count in refusals.items()]
    found[_PLACE[family]] = "".join(lines)


def refusal_line(queue: str, operation: str, outcome: str, count: int) -> str:
    own = f'queue="{escaped(queue)}",operation="{operation}",outcome="{outcome}"'
    return f"{telemetry.QUEUE_OPERATIONS.name}{{{own}}} {count}\n"


def _put(found: Block, metric: Metric, own: str, value: float) -> None:
    found[_PLACE[metric.name]] = f"{metric.name}{own}}} {value}\n"


def _age_s(now_ms: int, at_ms: int) -> float:
    return max(0, now_ms - at_ms) / 1_000


def texts(blocks: Sequence[Block], extra: Mapping[str, str]) -> Iterator[tuple[Metric, bytes]]:
    """Yield each family and its lines, if it has any; ``extra`` has lines that belong to no queue."""
    for place, metric in enumerate(FAMILIES):
        text = "".join([block[place] for block in blocks]) + extra.get(metric.name, "")
        yield metric, text.encode()
