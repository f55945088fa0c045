"""The random life of a store with several shards, whose crashes fall between the steps of a move.

As `store_life.py`, with two or three shards, now and then with fewer at the
beginning. Most dead letters are in another shard than the queue they come from.
"""

from tests.simulation.loop import simulate
from tests.simulation.store_life import Life

SHARDS = ((2,), (3,), (2,), (1, 2, 3))


def run(seed: int) -> None:
    """Live one life; raises what went wrong."""

    async def main() -> None:
        await Life(seed, SHARDS[seed % len(SHARDS)]).live()

    simulate(main, seed=seed)
