"""The random life of a replicated log: clients, a nemesis, a witness, and the end of all trouble.

1. *Trouble.* Clients write and read while the nemesis rages; the witness checks
   every step.
2. *Peace.* Everything is healed and started. Then there must be a leader and a
   full ISR, and every client must get on (I19).
3. *Judgment.* The clients stop, and the disks are read: all replicas are equal,
   everything acknowledged is there, nothing refused is (I1, I4, I18).
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.log.disk_log import DiskLog
from penstock.log.record import header
from tests.simulation.clients import FIRST_CLIENT, Clients
from tests.simulation.cluster import Cluster, loop, watch
from tests.simulation.invariants import Violation
from tests.simulation.nemesis import Nemesis

TROUBLE_MS = 12_000
WRITERS = 3
READERS = 2

# Replicas and min_isr. Three and two is what people run; the others have corners of their own.
SHAPES = ((3, 2), (3, 2), (3, 2), (3, 1), (2, 1), (2, 2), (3, 3))


@dataclass(slots=True)
class Summary:
    virtual_s: float = 0.0
    turns: int = 0
    facts_checked: int = 0
    epochs: int = 0
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    reads: int = 0


def run(seed: int, *, faults: Sequence[str] = (), is_verbose: bool = False) -> Summary:
    """Live one life; raise `Violation` or `AssertionError` if a promise is broken in it."""
    summary = Summary()
    watch(lambda: _live(seed, faults, summary, is_verbose=is_verbose), seed=seed)
    return summary


async def _live(seed: int, faults: Sequence[str], summary: Summary, *, is_verbose: bool) -> None:
    replicas, min_isr = random.Random(f"shape/{seed}").choice(SHAPES)
    async with Cluster(seed, replicas=replicas, min_isr=min_isr) as cluster:
        if is_verbose:
            cluster.tell = _tell
            cluster.tell(f"{replicas} replicas, min_isr {min_isr}")
        clients = Clients(cluster, seed)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(clients.write(FIRST_CLIENT + i)) for i in range(WRITERS)]
            work += [tasks.create_task(clients.read(FIRST_CLIENT + WRITERS + i)) for i in range(READERS)]
            await Nemesis(cluster, seed, faults).rage(TROUBLE_MS)
            await _expect_life(cluster, clients)
            for task in work:
                task.cancel()
        await _judge(cluster, clients)
        _sum_up(summary, cluster, clients)


async def _expect_life(cluster: Cluster, clients: Clients) -> None:
    cluster.tell("peace")
    try:
        await cluster.calm()
    except TimeoutError:
        raise Violation(f"I19: no leader with a full ISR: {cluster.meta.view()}") from None
    before = dict(clients.successes)
    try:
        await cluster.until(lambda: all(count > before[client] for client, count in clients.successes.items()))
    except TimeoutError:
        raise Violation("I19: a client does not get on") from None


async def _judge(cluster: Cluster, clients: Clients) -> None:
    """Read every disk, and compare what is there with each other and with what was promised."""
    # What was on the network when the clients stopped comes to its end.
    await asyncio.sleep(1)
    await cluster.calm()
    try:
        await cluster.until(lambda: len({disk.durable_offset for disk in cluster.disks.values()}) == 1)
        await cluster.until(lambda: cluster.witness.committed_offset == cluster.disks[1].end_offset)
    except TimeoutError:
        raise Violation("I19: the replicas do not become equal") from None
    contents = [await _read_all(disk) for disk in cluster.disks.values()]
    if any(content != contents[0] for content in contents):
        raise Violation("I4: the replicas are not equal")
    clients.check(contents[0])


async def _read_all(disk: DiskLog) -> list[bytes]:
    offset, found = disk.start_offset, list[bytes]()
    while offset < disk.durable_offset:
        found += map(bytes, await disk.read(offset, bytes_max=10_000))
        offset = header(found[-1]).next_offset
    return found


def _sum_up(summary: Summary, cluster: Cluster, clients: Clients) -> None:
    summary.virtual_s = loop().time()
    summary.turns = loop().turns
    summary.facts_checked = cluster.witness.facts_checked
    summary.epochs = cluster.meta.record.leader_epoch
    summary.reads = clients.reads
    outcomes = [sent.outcome for sent in clients.sent]
    summary.acknowledged = outcomes.count("ok")
    summary.unknown = outcomes.count("unknown")
    summary.refused = outcomes.count("failed")


def _tell(line: str) -> None:
    print(f"{loop().time():9.3f}  {line}")  # noqa: T201 -- Asked for on the command line.
