"""What a purge or a deletion settles goes to the history in turns, and is freed in turns."""

import random

from penstock.contract.limits import TURN_ROWS
from penstock.core.queue.settlements import Everything, settlements
from tests.core.queue.life import Life

MANY = 2 * TURN_ROWS + 500


def test_a_purge_of_many_rows_is_told_of_in_order_though_they_are_not() -> None:
    life = Life()
    keys = life.send(MANY, delay_ms=50)
    random.Random(1).shuffle(keys)
    index = life.state.rows.index
    for key in keys:
        index[key] = index.pop(key)
    life.send(10)
    leased = life.leased(4)
    purged = life.queue.purge(now_ms=life.now_ms)
    assert purged is not None
    told = settlements(life.state, purged)
    assert isinstance(told, Everything)
    life.happen(purged)
    life.send(7, group=b"red")
    turns = list(told.turns())
    assert max(map(len, turns)) == TURN_ROWS
    found = [one for turn in turns for one in turn]
    assert [one.key for one in found] == sorted(one.key for one in found)
    assert sum(one.count for one in found) == told.count == MANY + 10
    assert [one.count for one in found if one.last_leased_ms] == [len(leased.messages)]
    assert life.state.live == 7


def test_what_a_purge_leaves_is_freed_in_turns_and_nothing_of_what_came_after_it() -> None:
    life = Life()
    life.send(MANY, group=b"red", ids=[b"%d" % nth for nth in range(MANY)])
    purged = life.queue.purge(now_ms=life.now_ms)
    assert purged is not None
    told = settlements(life.state, purged)
    assert isinstance(told, Everything)
    life.happen(purged)
    messages = life.send(5, group=b"blue", ids=[b"%d" % nth for nth in range(5)])
    assert sum(1 for _ in told.take_apart()) >= 3
    assert life.leased(10).messages == messages


def test_a_receipt_from_before_a_purge_is_worth_nothing_after_it() -> None:
    life = Life()
    life.send(1)
    before = life.leased()
    life.happen(life.queue.purge(now_ms=life.now_ms))
    life.send(1)
    after = life.leased()
    assert not life.ack(before)
    assert life.ack(after)
