"""Rows by the thousand are made and read back a column at a time: the lines of Python that it takes are counted."""

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import freeze, thaw
from tests.steps import counted

ROWS = 5_000


def test_a_queue_of_many_rows_comes_back_from_a_snapshot_in_columns() -> None:
    queue = Queue(1, QueueSettings(is_fifo=True, aging_ms=(0, 10_000, 20_000, 30_000, 40_000)))
    groups = [b"%d" % (row % 10) for row in range(ROWS)]
    event = queue.send(Drafts(bodies=[b"x"] * ROWS, groups=groups), now_ms=1_000).event
    assert event is not None
    queue.apply(event)
    resting = queue.send(Drafts(bodies=[b"x"] * ROWS, visible_at_ms=[9_000] * ROWS), now_ms=1_000).event
    assert resting is not None
    queue.apply(resting)
    frozen = freeze(queue.state)
    with counted() as steps:
        state = thaw(frozen)
    assert steps.total < ROWS, steps.culprit
    assert state.rows.index == queue.state.rows.index
    assert sorted(state.aging) == sorted(queue.state.aging)
    assert sorted(state.delays) == sorted(queue.state.delays)


def test_rows_of_one_send_are_made_in_columns() -> None:
    queue = Queue(1)
    with counted() as steps:
        queue.state.rows.add_all(range(2, 2 + 8 * ROWS, 8), 1_000, 0)
    assert steps.total < 3 * ROWS, steps.culprit
    assert len(queue.state.rows) == ROWS
