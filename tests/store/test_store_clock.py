"""A clock that leapt ahead while a store was closed lets nothing expire, until it is believed."""

from dataclasses import replace

from penstock.contract.limits import CLOCK_LEAP_MS_MAX
from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.embedded.shard_state import ON_DISK
from penstock.store.embedded.store import EmbeddedStore
from tests.simulation.world import Machine
from tests.store.small import SETTINGS

DAILY = QueueSettings(retention_ms=DAY_MS)
TRUSTING = replace(ON_DISK, trusts_clock=True)


async def send(store: EmbeddedStore) -> None:
    await store.send("jobs", Drafts(bodies=[b"kept"]))


async def filled(machine: Machine, *, is_killed: bool = False) -> None:
    # Of the machine: its tasks die with it.
    store = await machine.run(EmbeddedStore.open(machine.start(), "store", SETTINGS))
    await store.create("jobs", DAILY)
    await send(store)
    if not is_killed:
        await store.close()
    machine.kill()


async def waiting(store: EmbeddedStore) -> int:
    await store.tidy()
    return sum((await store.counts("jobs")).ready)


async def test_messages_outlive_a_clock_that_is_days_ahead(machine: Machine) -> None:
    for is_killed in (True, False):
        await filled(machine, is_killed=is_killed)
        before_ms = machine.clock.now_ms()
        machine.clock.advance_ms(6 * DAY_MS)
        store = await EmbeddedStore.open(machine.start(), "store", SETTINGS)
        assert store.doubts_clock
        assert "store.clock_doubted" in machine.log_events.names()
        assert store.now_ms() - before_ms < CLOCK_LEAP_MS_MAX
        assert await waiting(store) >= 1
        # Time goes on all the same.
        machine.clock.advance_ms(DAY_MS + 1)
        assert await waiting(store) == 0
        await store.close()
        machine.kill()


async def test_a_clock_that_is_trusted_lets_messages_expire_after_a_long_stop(machine: Machine) -> None:
    await filled(machine)
    machine.clock.advance_ms(6 * DAY_MS)
    store = await EmbeddedStore.open(machine.start(), "store", SETTINGS, keep=TRUSTING)
    assert not store.doubts_clock
    assert store.now_ms() == machine.clock.now_ms()
    assert await waiting(store) == 0
    await store.close()


async def test_a_stop_of_some_hours_is_no_reason_to_doubt_a_clock(machine: Machine) -> None:
    await filled(machine)
    machine.clock.advance_ms(CLOCK_LEAP_MS_MAX - 60_000)
    store = await EmbeddedStore.open(machine.start(), "store", SETTINGS)
    assert not store.doubts_clock
    assert store.now_ms() == machine.clock.now_ms()
    await store.close()


async def test_a_store_that_was_idle_for_long_and_closed_in_good_order_believes_its_clock(machine: Machine) -> None:
    store = await EmbeddedStore.open(machine.start(), "store", SETTINGS)
    await store.create("jobs", DAILY)
    machine.clock.advance_ms(6 * DAY_MS)
    await store.close()
    machine.kill()
    store = await EmbeddedStore.open(machine.start(), "store", SETTINGS)
    assert not store.doubts_clock
    await store.close()


async def test_a_store_comes_back_to_the_right_time_when_the_clock_does(machine: Machine) -> None:
    await filled(machine)
    machine.clock.advance_ms(6 * DAY_MS)
    off_ms = 0
    runtime = replace(machine.start(), wall=lambda: machine.clock.now_ms() + off_ms)
    store = await EmbeddedStore.open(runtime, "store", SETTINGS)
    assert await waiting(store) == 1
    doubts = [store.doubts_clock]
    # The clock is set right: one hour has passed since the stop, not six days.
    off_ms = 3_600_000 - 6 * DAY_MS
    assert await waiting(store) == 1
    doubts.append(store.doubts_clock)
    assert doubts == [True, False]
    assert abs(store.now_ms() - runtime.wall_ms()) < 1_000
    await send(store)
    # What is written is of the right time, so no later start begins ahead of it.
    assert store.shards[0].memory.newest_ms < machine.clock.now_ms() - 5 * DAY_MS
    await store.close()
