"""``python -m bench.history``: making and reading frames of the history, per second of CPU time.

Nothing here writes to a disk: what is measured is from settlements to a record
batch with its CRC, and back to columns. Each figure is the best of several rounds,
because the machine has other things to do.
"""

from array import array
from collections.abc import Callable, Iterator
from time import process_time

from bench import Row
from bench.core import START_MS
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.store.embedded.history_format import decode, encode

MILLION = 1_000_000
ROUNDS = 9


def figures() -> Iterator[Row]:
    for length, target in ((1, 0.3), (10, 1), (100, 3), (1_000, 3), (HISTORY_ROWS_MAX, 3)):
        settled = _runs(length)
        key, value = encode(settled, {1: "orders"}, covered=1, within=0)
        rows = length * len(settled)
        made = rows / _best(lambda settled=settled: _batch(settled))  # type: ignore[misc]
        yield Row(
            name=f"history, frames of runs of {length:,}", figure=made / MILLION, unit="M rows/CPU-s", target=target
        )
    read = rows / _best(lambda: decode(key, value))
    yield Row(name="history, frames read", figure=read / MILLION, unit="M rows/CPU-s", target=20)


def _batch(settled: list[Settlement]) -> bytearray:
    return record.encode([encode(settled, {1: "orders"}, covered=1, within=0)], at_ms=START_MS)


def _runs(length: int) -> list[Settlement]:
    """Return settlements for one full frame, of messages that were sent a hundred at a time."""
    firsts = array("Q", range(0, HISTORY_ROWS_MAX, 100))
    marks = firsts, array("q", range(START_MS, START_MS + len(firsts)))
    return [
        Settlement(
            queue=1,
            key=first << 3 | 2,
            count=length,
            home=1,
            lane=2,
            number=first,
            tier=2,
            group=b"",
            sent_at_ms=marks,
            first_leased_ms=START_MS + first,
            last_leased_ms=START_MS + first,
            settled_at_ms=START_MS + first + 5,
            deliveries=1,
            ending=MessageOutcome.ACKED,
            error="",
        )
        for first in range(0, HISTORY_ROWS_MAX - length + 1, length)
    ]


def _best(work: Callable[[], object]) -> float:
    """Return how long the quickest of several rounds took, in seconds of CPU time."""
    times = []
    for _ in range(ROUNDS):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


def main() -> None:
    for row in figures():
        verdict = "met" if row.is_met else "not met"
        print(f"{row.name:<60}{row.figure:>14,.2f} {row.unit:<14}≥ {row.target}  {verdict}")


if __name__ == "__main__":
    main()
