"""The audit of a real server: its books balance, and a row that is taken out of an archive is missed."""

from pathlib import Path

import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.client import SyncQueue
from penstock.pipeline.audit.job import AuditOptions, run
from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.locations import HistoryLocation, read_history
from tests.docs.serving import server
from tests.pipeline.archived import archive
from tests.waiting import wait_until


def furnish(url: str) -> list[str]:
    """Ack some messages of two priorities, bury two, leave the others, and delete another queue; return the ids."""
    with penstock.connect(url) as client:
        client.create_queue("orders", max_deliveries=1)
        orders = client.queue("orders")
        ids = [*orders.send_many([f"order {number}" for number in range(10)])]
        ids += [orders.send(urgent, priority="HIGH") for urgent in ("urgent", "too")]
        for number, message in enumerate(orders.receive(limit=8)):
            message.ack() if number < 6 else message.release("no such customer")
        client.create_queue("old")
        client.queue("old").send("gone with its queue")
        client.queue("old").delete()
        wait_for_dead_letters(client.queue("orders.dead"), 2)
    return ids


def wait_for_dead_letters(letters: SyncQueue, count: int) -> None:
    def are_there() -> bool:
        try:
            return letters.describe().current_message_count == count
        except penstock.QueueNotFound:
            return False

    wait_until(are_there)


def archive_without(spark: SparkSession, url: str, root: Path, *, key: int) -> str:
    """Keep the history of a server as an archive does, but for one row."""
    rows = read_history(spark, HistoryLocation(where=url)).where(f"NOT (queue = 'orders' AND key = {key})")
    return archive(rows, root)


@pytest.mark.slow
def test_the_books_of_a_server_balance_until_a_row_is_taken_out(spark: SparkSession, tmp_path: Path) -> None:
    with server(tmp_path / "data") as address:
        url = f"http://{address}"
        ids = furnish(url)
        listed = tmp_path / "ids.txt"
        listed.write_text("\n".join(ids))
        # The deleted queue had messages that this producer never sent.
        options = AuditOptions(server=HistoryLocation(where=url), sent=str(listed))
        outcome = run(spark, options, Silent())
        rows = {row[0]: dict(zip(outcome.tables[0].columns, row, strict=True)) for row in outcome.tables[0].rows}
        orders, dead = rows["orders"], rows["orders.dead"]
        assert outcome.is_good, outcome
        assert (orders["audited"], orders["live"], orders["settled"], orders["unknown"]) == (12, 4, 8, 0)
        assert (dead["audited"], dead["live"]) == (2, 2)
        assert rows["old"]["settled"] == 1

        # Two urgent ones went first, then the first of the others.
        kept = archive_without(spark, url, tmp_path / "archive", key=2)
        out = tmp_path / "audit"
        outcome = run(spark, AuditOptions(server=HistoryLocation(where=url), history=kept, out=str(out)), Silent())
        assert not outcome.is_good
        assert outcome.figures["lost"] == 1
        assert outcome.figures["doubled"] == outcome.figures["phantom"] == 0
        (lost,) = pyarrow.parquet.read_table(out / "faults.parquet").to_pylist()
        assert (lost["queue"], lost["id"], lost["fault"]) == ("orders", "1-2", "lost")
        assert "1-2" in str(outcome.tables[1].rows)
        assert outcome.written == [f"{out}/queues.csv", f"{out}/faults.parquet", f"{out}/faults.csv"]
        assert all(Path(each).is_file() for each in outcome.written)
        assert pyarrow.csv.read_csv(out / "faults.csv").to_pylist() == [lost]
        assert sum(pyarrow.csv.read_csv(out / "queues.csv").column("lost").to_pylist()) == 1


def test_an_audit_says_what_it_needs_before_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no server"):
        run(spark, AuditOptions(server=HistoryLocation(where="./archive")), Silent())
    with pytest.raises(JobFailed, match="--sent"):
        run(spark, AuditOptions(server=HistoryLocation(where="http://127.0.0.1:1"), is_complete=True), Silent())
    (tmp_path / "mine.txt").write_text("not a result")
    with pytest.raises(JobFailed, match="that no job has written"):
        run(spark, AuditOptions(server=HistoryLocation(where="http://127.0.0.1:1"), out=str(tmp_path)), Silent())
