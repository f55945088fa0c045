"""A write that was killed and is run again: each row arrives once, however its rows are spread the second time."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.connect import connect
from penstock.pipeline.sink.manifest import InputChanged, ManifestElsewhere
from penstock.pipeline.sink.partition import WriteFailed
from tests.kafka.brokers import Broker
from tests.pipeline.interrupting import (
    PARTITION_ROWS,
    PARTITIONS,
    ROWS,
    Target,
    batches,
    commit,
    everything,
    frame,
    interrupt,
    save,
    task,
    texts,
)
from tests.pipeline.sending import held, make_queue
from tests.waiting import wait_until

KILL_S_MAX = 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("resumed") / "data") as found:
        yield found
        assert found.stop() == 0


@pytest.fixture(params=["queue", "topic"])
def target(request: pytest.FixtureRequest, broker: Broker) -> Target:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Target(broker, request.param, name[-60:]).make()


# The rows of the last partition come first, so that they are there before it can be seen that they are elsewhere.
SPREADS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "more": lambda spark, column: frame(spark, column, 6, number=f"{ROWS - 1} - id"),
    "fewer": lambda spark, column: frame(spark, column, 2),
    "as-many": lambda spark, column: frame(spark, column, number=f"(id + {ROWS - 45}) % {ROWS}"),
}


@pytest.mark.parametrize("spread", SPREADS)
def test_rows_that_are_spread_in_another_way_are_not_sent_and_do_not_harm_the_next_run(
    spark: SparkSession, target: Target, tmp_path: Path, spread: str
) -> None:
    interrupt(target, tmp_path, {3: 70})
    before = target.arrived()

    with pytest.raises(PySparkException, match="the input of job 'nightly' changed or is not in a fixed order"):
        save(SPREADS[spread](spark, target.column), target, tmp_path)

    assert target.arrived() == before
    save(frame(spark, target.column), target, tmp_path)
    assert target.arrived() == everything()


def test_a_write_that_was_killed_is_completed_though_its_tasks_take_turns(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    # There are two tasks at once: the first ones end before the last ones begin.
    interrupt(target, tmp_path, {0: PARTITION_ROWS, 1: 50, 2: 5, 3: 70})

    for _ in range(2):
        save(frame(spark, target.column), target, tmp_path)

    assert target.arrived() == everything()
    (done,) = tmp_path.rglob("done.json")
    assert json.loads(done.read_text())["messages"] == ROWS
    assert sorted(path.name for path in done.parent.iterdir()) == ["done.json"]


def test_rows_that_are_all_alike_are_completed_though_other_partitions_had_the_same(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    interrupt(target, tmp_path, {0: PARTITION_ROWS, 1: 50, 3: 70}, said="alike")

    save(frame(spark, target.column).selectExpr(f"'alike' AS {target.column}"), target, tmp_path)

    assert target.arrived() == {b"alike": ROWS}


def rows_of(target: Target, partition: int) -> Iterator[pa.RecordBatch]:
    first = partition * PARTITION_ROWS
    return batches(target.column, texts(range(first, first + PARTITION_ROWS)))


def lose_last_answer(manifest: Path, partition: int) -> None:
    """As if the task had been killed between the answer to its last chunk and its record."""
    (path,) = manifest.rglob(f"parts/{partition:05}/*.jsonl")
    *kept, last = path.read_text().splitlines(keepends=True)
    assert json.loads(last)["fact"] == "sent"
    path.write_text("".join(kept))


def test_a_task_that_may_not_send_yet_leaves_its_rows_to_the_driver(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 50})
    lose_last_answer(tmp_path, 0)
    before = target.arrived()

    first = task(target, tmp_path, 0, rows_of(target, 0), run="two")
    assert first.is_held
    assert target.arrived() == before
    # Now both are seen.
    second = task(target, tmp_path, 1, rows_of(target, 1), run="two")
    assert (second.is_held, second.sent) == (False, 50)
    third = task(target, tmp_path, 2, rows_of(target, 2), run="two")
    assert (third.is_held, third.sent) == (False, PARTITION_ROWS)

    commit(target, tmp_path, [first, second, third], run="two")
    assert target.arrived() == everything(3 * PARTITION_ROWS)


def test_a_task_sends_what_it_held_as_soon_as_the_others_were_seen(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 50})

    def others_meanwhile() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows_of(target, 0)):
            if number == 15:
                others.append(task(target, tmp_path, 1, rows_of(target, 1), run="two"))
            yield batch

    others = [task(target, tmp_path, 2, rows_of(target, 2), run="two")]
    first = task(target, tmp_path, 0, others_meanwhile(), run="two")

    assert (first.is_held, first.sent, first.skipped) == (False, 50, 50)
    assert [each.is_held for each in others] == [True, False]
    commit(target, tmp_path, [first, *others], run="two")
    assert target.arrived() == everything(3 * PARTITION_ROWS)


def test_only_rows_that_are_not_all_on_record_are_held(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: PARTITION_ROWS, 1: 50})

    first = task(target, tmp_path, 0, rows_of(target, 0), run="two")
    assert (first.is_held, first.skipped) == (False, PARTITION_ROWS)
    assert not list(tmp_path.rglob("*.arrow"))
    second = task(target, tmp_path, 1, rows_of(target, 1), run="two")
    commit(target, tmp_path, [first, second], run="two")

    assert target.arrived() == everything(2 * PARTITION_ROWS)


def test_two_attempts_of_one_task_of_which_one_holds_its_rows_add_nothing(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 50})

    slow = task(target, tmp_path, 0, rows_of(target, 0), run="two")
    other = task(target, tmp_path, 1, rows_of(target, 1), run="two")
    assert task(target, tmp_path, 0, rows_of(target, 0), run="two").sent == 50
    assert slow.is_held
    commit(target, tmp_path, [slow, other], run="two")

    assert target.arrived() == everything(2 * PARTITION_ROWS)


def test_no_task_sends_while_a_recorded_partition_has_no_rows(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 50})
    before = target.arrived()

    first = task(target, tmp_path, 0, rows_of(target, 0), run="two")
    with pytest.raises(WriteFailed, match="a partition had 5 chunks, and now it has 0"):
        task(target, tmp_path, 1, [], run="two")
    # It is not even there.
    with pytest.raises(InputChanged, match="there were 2 partitions, and now there are 1"):
        commit(target, tmp_path, [first], run="two")
    assert target.arrived() == before


def test_a_partition_that_had_no_rows_may_have_some_in_the_next_run(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50})
    nothing = task(target, tmp_path, 1, [], run="killed")
    assert (nothing.is_held, nothing.chunks) == (False, 0)

    written = [task(target, tmp_path, partition, rows_of(target, partition), run="two") for partition in range(2)]
    empty = task(target, tmp_path, 2, [], run="two")
    commit(target, tmp_path, [*written, empty], run="two")

    assert target.arrived() == everything(2 * PARTITION_ROWS)


def test_rows_that_were_held_and_are_not_there_for_the_driver_are_missed(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 50})
    before = target.arrived()
    first = task(target, tmp_path, 0, rows_of(target, 0), run="two")
    second = task(target, tmp_path, 1, batches(target.column, texts(range(100, 150))), run="two")

    (tmp_path / first.rows).unlink()

    assert (first.is_held, second.is_held) == (True, False)
    with pytest.raises(ManifestElsewhere, match="driver and executors must reach the same folder"):
        commit(target, tmp_path, [first, second], run="two")
    assert target.arrived() == before


def test_a_write_that_is_killed_again_and_again_arrives_once(target: Target, tmp_path: Path) -> None:
    interrupt(target, tmp_path, {0: 50, 1: 30, 2: 70})
    said = json.dumps(target.said(tmp_path))

    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.killed_again", said, target.column],
        check=False,
        capture_output=True,
        text=True,
        timeout=KILL_S_MAX,
    )

    assert ended.returncode == 0, ended.stderr
    # It was killed while tasks sent, and while the driver did.
    assert {"task", "driver"} <= set(ended.stdout.split())
    assert target.arrived() == everything()


def is_alive(*, session: int) -> bool:
    """Whether a process of this session is still at work."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, _group, of = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            return True
    return False


def test_a_driver_that_is_killed_while_it_sends_for_its_tasks_is_resumed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    # There is no room for all: a late kill finds the driver still at its work.
    make_queue(broker.url, "killed-driver", queue_size=300)
    target = Target(broker, "queue", "killed-driver")
    interrupt(target, tmp_path, {1: 50, 3: 50})
    said = json.dumps(target.said(tmp_path, rate=100, concurrency=1, maxWait=KILL_S_MAX))
    command = [sys.executable, "-m", "tests.pipeline.resuming_driver", said]
    with subprocess.Popen(command, start_new_session=True) as driver:
        # One task at a time: the last one sends its own rows, and the driver then those of the others.
        wait_until(lambda: held(broker.url, target.name) >= 150 + 20 or driver.poll() is not None, within_s=KILL_S_MAX)
        assert driver.poll() is None
        os.killpg(driver.pid, signal.SIGKILL)
    # What Spark had started ends by itself, a moment later.
    wait_until(lambda: not is_alive(session=driver.pid))

    with connect(broker.url) as client:
        client.queue(target.name).update(queue_size=1_000)
    save(frame(spark, target.column, PARTITIONS), target, tmp_path)

    assert target.arrived() == everything()


def test_a_batch_of_a_stream_that_failed_half_way_is_completed_by_the_next_start(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    make_queue(broker.url, "half-a-batch", queue_size=60)
    target = Target(broker, "queue", "half-a-batch")
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = texts(range(number * 50, number * 50 + 50))
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(lines))

    def run(wait_s: float) -> None:
        rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in")).withColumnRenamed("value", "data")
        stream = rows.writeStream.format("penstock").trigger(availableNow=True)
        stream = stream.options(**target.said(tmp_path / "manifest", maxWait=wait_s))
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    for _ in range(2):
        with pytest.raises(PySparkException, match="queue_full"):
            run(0.1)
        assert set(target.arrived().values()) == {1}
    with connect(broker.url) as client:
        client.queue(target.name).update(queue_size=1_000)
    run(30)

    assert target.arrived() == everything(200)
