"""``python -m bench.growth.topics``: topics and groups while one thing grows, as processor time (µs) and ratios.

Each line has one thing at three sizes, and an operation that does not touch it; where an operation has to touch all
there is, its cost is divided by how many there are. Files are in memory where the system has a place for that, so that
the disk plays no part. The tests count bytes, operations of the disk and turns of the loop instead
(`tests/streams/test_topics.py`, `tests/kafka/test_turns.py`); this is for the eye.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.broker.consumer_groups import Commit, Groups, open_groups
from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.core.consumer_group.members import GroupSettings
from penstock.log import record
from penstock.metrics.streams import families_of_streams
from penstock.runtime.interface import Runtime
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.server import GC_THRESHOLDS
from penstock.streams.embedded.offset_store import Offsets
from penstock.streams.group_coordinator import CoordinatorSettings
from penstock.telemetry import LogEvent
from tests.streams.grouping import Consumer
from tests.streams.small import in_folder, open_topics

TOPICS = (100, 1_000, 9_000)
MEMBERS = (10, 100, 900)
ROUNDS = 15
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
ROUNDS_OF_ALL = 3
# Those who come within this time are members of the first generation.
SETTINGS = CoordinatorSettings(group=GroupSettings(initial_delay_ms=500))


@dataclass
class World:
    runtime: Runtime
    topics: Topics
    groups: Groups
    members: list[Consumer] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    name: str
    grow: Callable[[World, int], Awaitable[object]]
    run: Callable[[World], Awaitable[object]]
    # What it costs for each of those that there are: it cannot be done without touching them.
    is_for_each: bool = False


async def _add_topics(world: World, many: int) -> None:
    names = [f"t-{number}" for number in range(len(world.topics.list()), many)]
    made = await world.topics.streams.create_all([(name, TopicSettings()) for name in names])
    assert not [each for each in made if isinstance(each, Exception)]


async def _create_and_delete(world: World) -> None:
    await world.topics.streams.create("passing")
    await world.topics.streams.delete("passing")


async def _produce(world: World) -> None:
    now_ms = world.runtime.clock.now_ms()
    await world.topics.produce("t-0", 0, bytes(record.encode([(b"key", b"value")], at_ms=now_ms)))


async def _produce_and_trim(world: World) -> None:
    await _produce(world)
    await world.topics.streams.trim("t-0", 0, -1)


async def _restart(world: World) -> None:
    await world.topics.close()
    world.topics.streams = (await open_topics(world.runtime, "streams")).streams


async def _upkeep(world: World) -> None:
    """What comes round every second."""
    assert len(in_folder(world.topics)._maintenance._due(is_time_for_all=False)) <= 1


async def _scrape(world: World) -> None:
    await families_of_streams(world.topics, world.groups)


async def _add_members(world: World, many: int) -> None:
    """Members that all join at once, and one of them leads."""
    world.members = [Consumer(world.groups, f"member-{number}", group=f"of-{many}") for number in range(many)]
    await _rebalance(world)


async def _rebalance(world: World) -> None:
    joined = await asyncio.gather(*(each.join() for each in world.members))
    assert len({each.generation for each in joined}) == 1
    leader = next(place for place, each in enumerate(joined) if each.members)
    names = {each.member_id: b"an assignment" for each in world.members}
    await asyncio.gather(*(each.sync(names if place == leader else None) for place, each in enumerate(world.members)))


async def _beat(world: World) -> None:
    for member in world.members[:10]:
        await member.beat()


async def _commit(world: World) -> None:
    member = world.members[0]
    commits = [Commit("t-0", 0, 0, -1, "")]
    await world.groups.commit(member.group, commits, member_id=member.member_id, generation=member.generation)


OF_TOPICS = (
    Line("create a topic and delete it", _add_topics, _create_and_delete),
    Line("produce one record", _add_topics, _produce),
    Line("produce one record and trim it", _add_topics, _produce_and_trim),
    Line("what upkeep does each second, for each topic", _add_topics, _upkeep, is_for_each=True),
    Line("gather numbers for a scrape, for each topic", _add_topics, _scrape, is_for_each=True),
    Line("close and open all topics, for each", _add_topics, _restart, is_for_each=True),
)
OF_MEMBERS = (
    Line("ten heartbeats in a group of so many members", _add_members, _beat),
    Line("commit an offset in a group of so many members", _add_members, _commit),
    Line("rebalance a group, for each member", _add_members, _rebalance, is_for_each=True),
)


def _log_nothing(_event: LogEvent, /, **_fields: object) -> None:
    """There is an event for each partition."""


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    with TemporaryDirectory(dir=MEMORY) as folder:
        async with ThreadWorkers(2, halt) as workers:
            runtime = replace(system_runtime(Path(folder), workers), log_event=_log_nothing)
            topics = await open_topics(runtime, "streams")
            async with open_groups(
                runtime, await Offsets.open(runtime, "streams/groups"), topics, settings=SETTINGS
            ) as groups:
                await topics.streams.create("t-0")
                yield World(runtime, topics, groups)
            await topics.close()


async def measure(lines: Sequence[Line], sizes: tuple[int, ...]) -> dict[str, list[float]]:
    """Return the least that each operation takes at each size, in microseconds. What grows is theirs together.

    The median of a few rounds tells more of what else the machine does.
    """
    found: dict[str, list[float]] = {line.name: [] for line in lines}
    async with _world() as world:
        for size in sizes:
            await lines[0].grow(world, size)
            gc.freeze()
            for line in lines:
                taken = []
                for _ in range(ROUNDS_OF_ALL if line.is_for_each else ROUNDS):
                    began = time.process_time()
                    await line.run(world)
                    taken.append((time.process_time() - began) * 1_000_000)
                found[line.name].append(min(taken) / (size if line.is_for_each else 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--most", type=int, default=TOPICS[-1], help="leave out sizes above this")
    most = parser.parse_args().most
    # As in a server.
    gc.set_threshold(*GC_THRESHOLDS)
    print("least µs of the processor, and how many times that of the smallest size")
    for all_sizes, lines in ((TOPICS, OF_TOPICS), (MEMBERS, OF_MEMBERS)):
        sizes = tuple(size for size in all_sizes if size <= most)
        for name, found in asyncio.run(measure(lines, sizes)).items():
            rows = (f"{size:>8,}: {us:9.1f} {us / found[0]:5.1f}×" for size, us in zip(sizes, found, strict=True))
            print(f"{name:50}", *rows, flush=True)


if __name__ == "__main__":
    main()
