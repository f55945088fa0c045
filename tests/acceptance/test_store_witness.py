"""The witness of a store is not blind: it notices what it is there to notice."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.contract.messages import MessageOutcome
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.store import EmbeddedStore
from tests.acceptance.store_rounds import Moment, run_until_killed, see_to_their_end
from tests.acceptance.store_witness import StoreWitness
from tests.acceptance.store_worker import QUEUE, journal_settings
from tests.simulation.store_history import Row, ends

pytestmark = pytest.mark.real_time


@pytest.fixture
def witness(tmp_path: Path) -> StoreWitness:
    """What a worker that was killed had told."""
    witness = StoreWitness()
    run_until_killed(tmp_path / "store", witness, moment=Moment(300))
    assert set(witness.sent) - witness.tried
    return witness


async def test_the_witness_notices_that_messages_are_gone(tmp_path: Path, witness: StoreWitness) -> None:
    async with ThreadWorkers(1, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        async with await EmbeddedStore.open(runtime, "store", journal_settings()) as store:
            assert await store.purge(QUEUE) > 0
    with pytest.raises(AssertionError, match="gone, but not acked"):
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


async def test_the_witness_notices_a_message_that_the_history_does_not_tell_of(
    tmp_path: Path, witness: StoreWitness
) -> None:
    witness.sent["nobody"] = "1-abcdef"
    witness.tried.add("nobody")
    with pytest.raises(AssertionError, match="the history does not tell of them"):
        await witness.check_end(tmp_path / "store")


async def test_the_witness_notices_a_history_of_what_was_never_sent(tmp_path: Path, witness: StoreWitness) -> None:
    await witness.check_end(tmp_path / "store")
    del witness.sent[min(witness.acked)]
    with pytest.raises(AssertionError, match="in the history, but never sent"):
        await witness.check_end(tmp_path / "store")


def test_the_witness_notices_rows_that_are_told_twice_or_not_at_all() -> None:
    buried = Row("1-0", "work", 1, 1, MessageOutcome.BURIED, 4, 0, 0, b"", None)
    acked = buried._replace(queue="work.dead", queue_number=2, ending=MessageOutcome.ACKED, deliveries=5)
    assert ends([acked, buried]) == {"1-0": acked}
    for rows in ([buried, acked, acked], [buried, buried, acked], [acked], [buried]):
        with pytest.raises(AssertionError):
            ends(rows)


def test_a_process_that_outlives_its_parent_is_noticed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        # A process that has only just begun may not have its command line yet.
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AssertionError, match="outlives its parent"):
            see_to_their_end(tmp_path, seconds_max=0)
        assert process.stdin is not None
        process.stdin.close()
        see_to_their_end(tmp_path)
