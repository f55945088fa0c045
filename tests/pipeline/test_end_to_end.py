"""The whole way: a server under load, an archiver that is killed twice on it, a witness between the two, and the jobs.

What the jobs say is held against what the client knows by itself (`traffic.py`).
"""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from penstock import connect
from penstock.client import SyncClient
from penstock.pipeline import replay
from penstock.pipeline.archive import job as archive
from penstock.pipeline.archive.job import ArchiveOptions
from penstock.pipeline.archive.position import positions_of
from penstock.pipeline.audit import job as audit
from penstock.pipeline.audit.job import AuditOptions
from penstock.pipeline.job import Outcome, Silent
from penstock.pipeline.locations import DEAD_LETTERS, MESSAGES, HistoryLocation
from penstock.pipeline.replay import ReplayOptions
from penstock.pipeline.signals import job as signals
from penstock.pipeline.signals.job import SignalsOptions
from penstock.pipeline.staging import Target
from penstock.pipeline.tables import Table, is_table
from penstock.pipeline.triage import job as triage
from penstock.pipeline.triage.job import TriageOptions
from tests.docs.serving import server
from tests.pipeline import traffic
from tests.pipeline.archived import rows_of
from tests.pipeline.traffic import PRIORITIES, Record

PATIENCE_S = 600.0
COLUMNS = ("queue", "first_queue", "sent_tier", "number", "outcome", "tier", "error", "offset")


class Trim(NamedTuple):
    """What a server was asked to drop, and what the archive had at that moment."""

    asked: dict[str, int]
    archived_to: int
    has_all_files: bool


@contextmanager
def witness(address: str, root: Path, seen: list[Trim]) -> Iterator[str]:
    """Pass everything on to the server, and look at the archive whenever the server is asked to drop something."""

    class Between(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/api/history/trim":
                table = Table.open(f"{root}/{MESSAGES}")
                has_all = all(Path(each).exists() for each in table.delta.file_uris())
                seen.append(Trim(json.loads(body), positions_of(table)[0], has_all))
            there = HTTPConnection(address, timeout=60)
            there.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = there.getresponse()
            content = answer.read()
            there.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the name is that of the standard library.

        def log_message(self, *_: Any) -> None:
            pass

    between = ThreadingHTTPServer(("127.0.0.1", 0), Between)
    between.daemon_threads = True
    thread = threading.Thread(target=between.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{between.server_address[1]}"
    finally:
        between.shutdown()
        thread.join()
        between.server_close()


def archive_until(client: SyncClient, record: Record, url: str, root: Path, is_time: Callable[[], bool]) -> None:
    """Archive in a process of its own, with traffic meanwhile; kill it when it is time."""
    command = [sys.executable, "-m", "penstock.pipeline", "archive", url, str(root), "--follow", "--every", "0.1"]
    options = ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--trim"]
    deadline = time.monotonic() + PATIENCE_S
    # A file, as a pipe is not read meanwhile, and one that is full would stop it.
    said = root.with_suffix(".err")
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        ) as process,
    ):
        try:
            while not is_time():
                assert process.poll() is None, said.read_text()[-4_000:]
                assert time.monotonic() < deadline, said.read_text()[-4_000:]
                traffic.go_on(client, record, messages=20)
                # The load comes in waves, so that there is something for a next batch.
                time.sleep(0.5)  # Real time: a rate.
        finally:
            # Its JVM, too: left alone, that would write on for a moment.
            os.killpg(process.pid, signal.SIGKILL)


def history_of(url: str, rows: int) -> list[tuple[Any, ...]]:
    """Return what REST tells of everything settled, once it tells of so many."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        found: list[dict[str, Any]] = []
        offset, end = 0, 1
        while offset < end:
            connection.request(
                "GET",
                f"/api/history?shard=0&offset={offset}&limit=1000",
                headers={"accept": "application/vnd.apache.arrow.stream"},
            )
            table = pa.ipc.open_stream(io.BytesIO(connection.getresponse().read())).read_all()
            found += table.select(COLUMNS).to_pylist()
            said = table.schema.metadata
            offset, end = int(said[b"next_offset"]), int(said[b"end_offset"])
        connection.close()
        if len(found) >= rows:
            return [
                tuple((each[name] or None) if name == "error" else each[name] for name in COLUMNS) for each in found
            ]
        assert time.monotonic() < deadline, f"{len(found)} of {rows} rows"
        time.sleep(0.2)  # Real time: another process.


class World(NamedTuple):
    """A server that was under load, what the client knows of it, and an archive of it that took three attempts."""

    url: str
    record: Record
    root: Path
    trims: list[Trim]
    archived: Outcome


@contextmanager
def archived_world(spark: SparkSession, folder: Path) -> Iterator[World]:
    root, trims = folder / "archive", list[Trim]()
    messages = root / MESSAGES

    def is_writing_after(version: int) -> bool:
        """Whether there are files that no commit names, after this version."""
        if not is_table(str(messages)):
            return False
        table = Table.open(str(messages))
        return table.version >= version and len(list(messages.rglob("*.parquet"))) > len(table.delta.file_uris())

    with server(folder / "data") as address, witness(address, root, trims) as url:
        with connect(f"http://{address}") as client:
            record = traffic.begin(client)
            archive_until(client, record, url, root, lambda: is_writing_after(0))
            archive_until(client, record, url, root, lambda: is_writing_after(3))
        history_of(f"http://{address}", len(record.acked) + len(record.buried))
        archived = archive.run(
            spark, ArchiveOptions(source=HistoryLocation(where=url), root=str(root), is_trimming=True), Silent()
        )
        yield World(f"http://{address}", record, root, trims, archived)


@pytest.mark.slow
def test_what_a_queue_forgets_is_archived_counted_triaged_replayed_and_audited(
    spark: SparkSession, tmp_path: Path
) -> None:
    # One test, as its world is a minute in the making.
    with archived_world(spark, tmp_path) as world:
        check_archive(world)
        check_signals(spark, world, tmp_path)
        check_triage_and_replay(spark, world, tmp_path)
        check_audit(spark, world, tmp_path)


def check_archive(world: World) -> None:
    """An archiver that is killed twice has each row once, and lets the server drop only what it has."""
    root, record = world.root, world.record
    found = [tuple(row[name] for name in COLUMNS) for row in rows_of(root, list(COLUMNS))]
    assert Counter(found) == Counter(history_of(world.url, len(found)))
    assert Counter(row[4] for row in found) == {"acked": len(record.acked), "buried": len(record.buried)}
    assert len({row[5] for row in found}) == 3
    assert world.trims
    assert all(each.asked["before"] <= each.archived_to and each.has_all_files for each in world.trims)
    letters = Table.open(f"{root}/{DEAD_LETTERS}").delta.to_pyarrow_table().to_pylist()
    assert world.archived.figures["dead_letters"] == len(letters) == len(record.buried)
    assert all(json.loads(each["data"])["order"] % 10 == 7 for each in letters)
    queues = json.loads((root / "queues.json").read_text())
    assert queues["orders"]["settings"]["max_deliveries"] == traffic.DELIVERIES_MAX
    assert len(queues["orders.dead"]["settings"]["tiers"]["weights"]) == 5


def check_signals(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """The signals of an archive are those that the client saw."""
    record = world.record
    signals.run(
        spark, SignalsOptions(place=HistoryLocation(where=str(world.root)), out=str(tmp_path / "out")), Silent()
    )

    tiers = {PRIORITIES[row["tier"] // 2]: row for row in pq.read_table(tmp_path / "out" / "tiers.parquet").to_pylist()}
    assert set(tiers) == set(PRIORITIES)
    for priority, row in tiers.items():
        served = {message for message, at in record.served_at.items() if at == priority}
        assert row["acked"] == len(served & record.acked)
        assert row["buried"] == len(served & set(record.buried))
        assert row["retries"] == sum(record.deliveries[message] - 1 for message in served)
        waits = record.waits_of(priority)
        assert row["wait_ms_max"] == waits[-1]
        assert row["wait_ms_mean"] == pytest.approx(sum(waits) / len(waits))
        for percent in (50, 90, 99):
            expected = float(numpy.percentile(waits, percent))
            assert row[f"wait_ms_p{percent}"] == pytest.approx(expected, rel=0.008, abs=1)
    escalated = [
        row for row in rows_of(world.root, ["id", "sent_tier", "tier"]) if row["sent_tier"] == 4 and row["tier"] == 0
    ]
    assert {row["id"] for row in escalated} == record.escalated


def check_triage_and_replay(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """Triage finds the planted causes, and replay sends one of them, once."""
    planted = Counter(world.record.buried.values())
    place, out = HistoryLocation(where=str(world.root)), tmp_path / "triage"
    triage.run(spark, TriageOptions(place=place, out=str(out)), Silent())
    files = {path: json.loads(path.read_text())["signatures"] for path in (out / "signatures").iterdir()}
    counts = [sum(each["count"] for each in entries) for entries in files.values()]
    assert len(planted) == 3
    assert Counter(counts) == Counter(planted.values())

    chosen = next(path for path, entries in files.items() if "ValueError" in entries[0]["signature"])
    target, work = Target(url=world.url), str(tmp_path / "work")
    options = ReplayOptions(place=place, target=target, work=work, job="again", signatures=str(chosen), into="again")
    with connect(world.url) as client:
        client.create_queue("again")
        sent = [replay.run(spark, options, Silent()).figures["sent"] for _ in range(2)]
        received = client.queue("again").receive(limit=1_000)
        origins = {message.attributes["replayed-from"] for message in received}
        received.ack()
    assert sent == [planted[1], 0]
    assert len(received) == planted[1]
    assert origins == {message for message, kind in world.record.buried.items() if kind == 1}


def check_audit(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """The books are balanced, and a planted loss is found."""
    ids = tmp_path / "sent.txt"
    ids.write_text("\n".join(world.record.sent))
    options = AuditOptions(server=HistoryLocation(where=world.url), history=str(world.root), sent=str(ids))
    balanced = audit.run(spark, options, Silent())
    assert balanced.is_good, balanced.tables
    assert int(balanced.figures["audited"]) >= len(world.record.sent)

    # Its producer was told that it is safe, and it is nowhere.
    ids.write_text("\n".join([*world.record.sent, "1-7ffff8"]))
    found = audit.run(spark, options, Silent())
    assert not found.is_good
    assert found.figures["lost"] == 1
    assert "1-7ffff8" in str(found.tables)
