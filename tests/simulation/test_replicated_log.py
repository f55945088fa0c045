"""A replicated log, on simulated machines: a few stories told in order, and a few random lives."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.cluster.replicated_log import NotEnoughReplicas, NotLeader, ReplicatedLog
from penstock.log.interface import Log
from penstock.log.record import encode, header, records
from tests.simulation import cluster_life
from tests.simulation.cluster import Cluster, Produce, Produced, Refused, watch

CLIENT = 100

Story = Callable[[Cluster], Coroutine[Any, Any, None]]


def tell(story: Story, *, replicas: int = 3, min_isr: int = 2) -> None:
    """Run a story in a cluster that is calm at its beginning."""

    async def main() -> None:
        async with Cluster(1, replicas=replicas, min_isr=min_isr) as cluster:
            await cluster.calm()
            await story(cluster)

    watch(main, seed=1)


def leader_of(cluster: Cluster) -> int:
    leader = cluster.leader()
    assert leader is not None
    return leader


def led_by(cluster: Cluster, node: int) -> ReplicatedLog:
    log = cluster.nodes[node].log
    assert log is not None
    return log


async def send(cluster: Cluster, *values: bytes) -> object:
    return await cluster.call(CLIENT, leader_of(cluster), Produce(values))


async def values_of(log: Log) -> list[bytes]:
    """Return everything that is acknowledged, once all that was written is."""
    await log.wait_durable(log.end_offset)
    return await values_on(log)


async def values_on(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=10_000):
            found += [bytes(record.value or b"") for record in records(batch)]
            offset = header(batch).next_offset
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life_breaks_no_promise(seed: int) -> None:
    summary = cluster_life.run(seed)
    assert summary.acknowledged > 0


def test_the_same_seed_lives_the_same_life() -> None:
    assert cluster_life.run(3) == cluster_life.run(3)


def test_an_acknowledged_record_can_be_read() -> None:
    async def story(cluster: Cluster) -> None:
        assert await send(cluster, b"one", b"two") == Produced(0)
        assert await send(cluster, b"three") == Produced(2)
        log: Log = led_by(cluster, leader_of(cluster))
        assert await values_of(log) == [b"one", b"two", b"three"]

    tell(story)


def test_a_follower_takes_no_records_from_clients() -> None:
    async def story(cluster: Cluster) -> None:
        follower = next(name for name in cluster.machines if name != leader_of(cluster))
        assert await cluster.call(CLIENT, follower, Produce((b"lost",))) == Refused()

    tell(story)


def test_a_follower_that_crashed_catches_up() -> None:
    async def story(cluster: Cluster) -> None:
        follower = next(name for name in cluster.machines if name != leader_of(cluster))
        cluster.kill(follower)
        await cluster.until(lambda: follower not in cluster.meta.record.isr)
        for number in range(30):
            assert await send(cluster, b"%d" % number) == Produced(number)
        cluster.start(follower)
        await cluster.calm()
        assert cluster.disks[follower].durable_offset == 30

    tell(story)


def test_another_leads_after_the_leader_died() -> None:
    async def story(cluster: Cluster) -> None:
        await send(cluster, b"kept")
        first, epoch = leader_of(cluster), cluster.meta.record.leader_epoch
        cluster.kill(first)
        await cluster.until(lambda: cluster.leader() is not None)
        assert leader_of(cluster) != first
        assert cluster.meta.record.leader_epoch > epoch
        assert await values_of(led_by(cluster, leader_of(cluster))) == [b"kept"]

    tell(story)


def test_a_deposed_leader_cuts_what_was_never_acknowledged() -> None:
    async def story(cluster: Cluster) -> None:
        await send(cluster, b"kept")
        first = leader_of(cluster)
        stranded = led_by(cluster, first)
        cluster.network.partition([first], [name for name in cluster.machines if name != first])
        cluster.meta.cut(first)
        batch = encode([(None, b"lost")], at_ms=0)
        with stranded.reserve(len(batch)) as space:
            stranded.append(batch, space)
        await cluster.until(lambda: cluster.leader() not in (None, first))
        await cluster.until(lambda: first not in cluster.meta.record.isr)
        assert await send(cluster, b"new") == Produced(1)
        assert await values_on(cluster.disks[first]) == [b"kept", b"lost"]

        cluster.heal()
        with pytest.raises(NotLeader):
            await stranded.wait_durable(2)
        await cluster.calm()
        assert await values_of(led_by(cluster, leader_of(cluster))) == [b"kept", b"new"]
        assert await values_on(cluster.disks[first]) == [b"kept", b"new"]

    tell(story)


def test_an_acknowledged_record_survives_a_power_cut_of_all_nodes() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(10):
            assert await send(cluster, b"%d" % number) == Produced(number)
        for name in cluster.machines:
            cluster.power_cut(name)
        await asyncio.sleep(1)
        for name in cluster.machines:
            cluster.start(name)
        await cluster.calm()
        found = await values_of(led_by(cluster, leader_of(cluster)))
        assert found == [b"%d" % number for number in range(10)]

    tell(story)


def test_nothing_is_acknowledged_with_too_few_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        leader = leader_of(cluster)
        log = led_by(cluster, leader)
        batch = encode([(None, b"late")], at_ms=0)
        for name in cluster.machines:
            if name != leader:
                cluster.kill(name)
        # Taken while the leader still believes in its followers, but not acknowledged.
        with log.reserve(len(batch)) as space:
            log.append(batch, space)
        await cluster.until(lambda: len(cluster.meta.record.isr) == 1)
        await asyncio.sleep(1)
        assert log.durable_offset == 0
        assert cluster.meta.record.elr, "who left last has everything, and may be elected"
        with pytest.raises(NotEnoughReplicas):
            log.reserve(len(batch))

        cluster.start(next(name for name in cluster.machines if name != leader))
        await log.wait_durable(1)

    tell(story)


def test_a_leader_cut_off_from_the_metadata_answers_no_reads() -> None:
    async def story(cluster: Cluster) -> None:
        await send(cluster, b"old")
        log = led_by(cluster, leader_of(cluster))
        assert len(await log.read(0, bytes_max=1_000)) == 1
        cluster.meta.cut(leader_of(cluster))
        await asyncio.sleep(1)
        assert log.leads()
        with pytest.raises(NotLeader):
            await log.read(0, bytes_max=1_000)

    tell(story)


def test_a_log_whose_complete_replicas_are_down_is_offline_rather_than_short() -> None:
    async def story(cluster: Cluster) -> None:
        await send(cluster, b"kept")
        stale = next(name for name in cluster.machines if name != leader_of(cluster))
        cluster.lose_disk(stale)
        await cluster.until(lambda: stale not in cluster.meta.record.isr)
        complete = [name for name in cluster.machines if name != stale]
        for name in complete:
            cluster.kill(name)
        cluster.start(stale)
        await asyncio.sleep(5)
        assert cluster.leader() is None

        for name in complete:
            cluster.start(name)
        await cluster.calm()
        assert await values_of(led_by(cluster, leader_of(cluster))) == [b"kept"]

    tell(story)


def test_what_a_leader_lets_go_of_its_followers_let_go_of_too() -> None:
    async def story(cluster: Cluster) -> None:
        for number in range(200):
            await send(cluster, b"%d" % number)
        log = led_by(cluster, leader_of(cluster))
        # The leader must have heard that its followers have it.
        await asyncio.sleep(1)
        await log.drop_before(150)
        assert 0 < log.start_offset <= 150
        await cluster.until(lambda: all(disk.start_offset == log.start_offset for disk in cluster.disks.values()))
        assert (await values_of(log))[-1] == b"199"

    tell(story)


@pytest.mark.parametrize("seed", [99, 5035])
def test_lives_of_a_cluster_that_once_went_wrong_go_right(seed: int) -> None:
    """99: a lease trusted too early. 5035: a witness that did not know that a cut inside a batch takes all of it."""
    cluster_life.run(seed)
