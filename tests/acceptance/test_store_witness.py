"""The witness of a store is not blind: it notices what it is there to notice."""

from pathlib import Path

import pytest

from penstock.runtime.system import halt, system_runtime
from penstock.runtime.workers import ThreadWorkers
from penstock.store.embedded.store import EmbeddedStore
from tests.acceptance.store_rounds import run_until_killed
from tests.acceptance.store_witness import StoreWitness
from tests.acceptance.store_worker import QUEUE
from tests.acceptance.writer import small

pytestmark = pytest.mark.real_time


@pytest.fixture
def witness(tmp_path: Path) -> StoreWitness:
    """What a worker that was killed had told."""
    witness = StoreWitness()
    run_until_killed(tmp_path / "store", witness, lines=300)
    assert set(witness.sent) - witness.tried
    return witness


async def test_the_witness_notices_that_messages_are_gone(tmp_path: Path, witness: StoreWitness) -> None:
    async with ThreadWorkers(1, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        async with await EmbeddedStore.open(runtime, "store", small(segment_bytes_max=65_536)) as store:
            assert await store.purge(QUEUE) > 0
    with pytest.raises(AssertionError, match="gone, and nobody acked them"):
        await witness.check(tmp_path / "store")


async def test_the_witness_notices_an_acked_message_that_comes_back(tmp_path: Path, witness: StoreWitness) -> None:
    witness.acked.update(set(witness.sent) - witness.tried)
    with pytest.raises(AssertionError, match="acked, and came back"):
        await witness.check(tmp_path / "store")


async def test_the_witness_notices_a_count_that_shrinks(tmp_path: Path, witness: StoreWitness) -> None:
    witness.before.update(dict.fromkeys(set(witness.sent) - witness.tried, 1_000_000))
    with pytest.raises(AssertionError, match="deliveries after 1000000"):
        await witness.check(tmp_path / "store")


async def test_the_witness_notices_a_message_under_another_id(tmp_path: Path, witness: StoreWitness) -> None:
    witness.sent.update(dict.fromkeys(set(witness.sent) - witness.tried, "1-abcdef"))
    with pytest.raises(AssertionError, match="is 1-abcdef and"):
        await witness.check(tmp_path / "store")
