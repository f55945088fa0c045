"""What is told of settled messages, made plain for comparing."""

from collections.abc import Iterable

from penstock.core.queue.settlements import Settlement


def rows_of(queue: int, told: Iterable[Settlement]) -> list[tuple[object, ...]]:
    """What is told, with a row for each message."""
    rows: list[tuple[object, ...]] = []
    for one in told:
        assert (one.queue, one.home) == (queue, queue)
        for row in range(one.count):
            key = one.key + 8 * row
            sent_at = one.sent_at_ms
            if not isinstance(sent_at, int):
                starts, times = sent_at
                sent_at = max((start, at) for start, at in zip(starts, times, strict=True) if start <= key >> 3)[1]
            life = sent_at, *one[9:13], one.ending.name.lower(), one.error
            rows.append((key, one.lane, one.number + row, one.tier, one.group, *life))
    return sorted(rows)
