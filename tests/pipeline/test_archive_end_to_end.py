"""A server under load, an archiver that is killed twice on the way, and a witness between the two."""

import io
import json
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

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from penstock import connect
from penstock.client import Draft, SyncClient
from penstock.pipeline.archives.manifest import newest_entries
from penstock.pipeline.files import LocalFiles
from penstock.pipeline.jobs.archive import ArchiveOptions, run
from penstock.pipeline.jobs.outcome import Silent
from penstock.pipeline.places import Place
from tests.docs.serving import server

PATIENCE_S = 300.0
PRIORITIES = ("CRITICAL", "NORMAL", "BACKGROUND")
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
                last = newest_entries(LocalFiles(root))[-1]
                has_all = all((root / each.path).exists() for each in last.files)
                seen.append(Trim(json.loads(body), last.offsets_to["0"], has_all))
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


def some_traffic(client: SyncClient) -> int:
    """Send twenty messages in three priorities, ack most of them and bury the others; return how many left a queue."""
    queue = client.queue("orders")
    queue.send_many([Draft(data={"n": n}, priority=PRIORITIES[n % 3], attributes={"n": n}) for n in range(20)])
    batch = queue.receive(limit=20)
    for message in batch:
        if message.attributes["n"] % 10 == 7:
            message.release(f"ValueError: order {message.attributes['n']} has no customer")
        else:
            message.ack()
    return len(batch)


def archive_until(client: SyncClient, url: str, root: Path, is_time: Callable[[], bool]) -> int:
    """Archive in a process of its own, with traffic meanwhile; kill it when it is time. Return what left a queue."""
    command = [sys.executable, "-m", "penstock.pipeline", "archive", url, str(root), "--follow", "--every", "0.1"]
    options = ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--trim"]
    count, deadline = 0, time.monotonic() + PATIENCE_S
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not is_time():
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                assert time.monotonic() < deadline
                count += some_traffic(client)
                # The load comes in waves, so that there is something for a next batch.
                time.sleep(0.5)
        finally:
            process.send_signal(signal.SIGKILL)
            # Its JVM holds the other end for a moment; nobody reads it.
            if process.stderr:
                process.stderr.close()
    return count


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
        time.sleep(0.2)


@pytest.mark.slow
def test_an_archiver_that_is_killed_twice_has_each_row_once_and_drops_only_what_it_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, trims = tmp_path / "archive", list[Trim]()

    def is_staging_after(entries: int) -> bool:
        has_entries = len(list((root / "manifest").glob("*.json"))) >= entries
        return has_entries and bool(LocalFiles(root).names("staging"))

    with server(tmp_path / "data") as address, witness(address, root, trims) as url:
        with connect(f"http://{address}") as client:
            client.create_queue("orders", max_deliveries=1, history="full")
            settled = archive_until(client, url, root, lambda: is_staging_after(0))
            settled += archive_until(client, url, root, lambda: is_staging_after(2))
        wanted = history_of(f"http://{address}", settled)
        options = ArchiveOptions(source=Place(where=url), root=str(root), is_trimming=True)
        done = run(spark, options, Silent())

    table = ds.dataset(root / "messages", format="parquet", partitioning="hive").to_table(columns=list(COLUMNS))
    found = [tuple(row[name] for name in COLUMNS) for row in table.to_pylist()]
    assert Counter(found) == Counter(wanted)
    assert {row[4] for row in found} == {"acked", "buried"}
    assert len({row[5] for row in found}) == 3
    assert trims
    assert all(each.asked["before"] <= each.archived_to and each.has_all_files for each in trims)
    assert LocalFiles(root).names("staging") == []
    letters = pq.read_table(root / "dead_letters" / "dead_letters.parquet").to_pylist()
    assert done.figures["dead_letters"] == len(letters) == sum(row[4] == "buried" for row in found)
    assert all(json.loads(each["data"])["n"] % 10 == 7 for each in letters)
    queues = json.loads((root / "queues.json").read_text())
    assert queues["orders"]["settings"]["max_deliveries"] == 1
    assert len(queues["orders.dead"]["settings"]["tiers"]["weights"]) == 5
