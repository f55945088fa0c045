"""Reading the history from a real server, and the same rows from its data folder."""

import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock.client import SyncClient
from penstock.contract.messages import PRIORITIES
from penstock.pipeline import http as client
from penstock.pipeline.http import ServerClient, ServerRefused, ServerUnreachable
from penstock.settings import ServerSettings
from tests.pipeline.reading import parts_of, read
from tests.ports import HeldPort
from tests.server.serving import server
from tests.waiting import wait_until

TOLD_S_MAX = 60


class Busy(NamedTuple):
    """A server with a past: its address, and what its history says in JSON, row by row."""

    url: str
    told: list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def busy(folder: Path) -> Iterator[Busy]:
    with server(ServerSettings(port=0, data=folder, shards=2)) as running:
        with penstock.connect(running.url).sync() as client:
            settled = live(client)
            told(running.url, settled)
            # Another frame, in the shard that has the mail: what the first one says is now proven durable.
            client.queue("mail").send_many([b"c", b"d"])
            client.queue("mail").receive(limit=2).ack()
        yield Busy(running.url, told(running.url, settled + 2))


def live(client: SyncClient) -> int:
    """Let messages be acked, buried, purged, moved and deleted; return how many left a queue."""
    client.create_queue("orders", max_deliveries=1, history="full")
    client.create_queue("orders.dead", history="full")
    client.create_queue("mail")
    client.create_queue("gone")
    for priority in ("CRITICAL", "NORMAL", "BACKGROUND"):
        client.queue("orders").send({"n": priority}, priority=priority, attributes={"origin": "tests"}, group=priority)
    client.queue("mail").send_many([b"\xff%d" % number for number in range(40)])
    client.queue("gone").send_many([b"a", b"b"])
    first, *others = client.queue("orders").receive(limit=3)
    first.ack()
    for message in others:
        message.reject("no «stock»")
    client.queue("mail").receive(limit=30).ack()
    client.queue("mail").purge()
    client.queue("orders.dead").receive(limit=1, wait_s=TOLD_S_MAX).ack()
    client.queue("gone").receive(limit=1).ack()
    client.queue("gone").delete()
    client.queue("orders").send("this one stays")
    return 3 + 40 + 1 + 2


def told(url: str, settled: int, *, shards: int = 2) -> list[dict[str, Any]]:
    """Return the history in JSON when it is complete: it tells of a message within a second or two."""

    def told() -> list[Any] | None:
        rows = [
            {"shard": shard, **row}
            for shard in range(shards)
            for row in _get(f"{url}/api/history?shard={shard}")["rows"]
        ]
        return rows if len(rows) >= settled else None

    rows: list[Any] = wait_until(told, within_s=TOLD_S_MAX)
    return rows


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of Spark's as REST shows it."""
    times = ("sent_at", "first_received_at", "last_received_at", "settled_at")
    data = row["data"]
    return {
        "message_id": f"{row['first_queue']:x}-{row['number'] * 8 + row['sent_tier']:x}",
        "sent_priority": PRIORITIES[row["sent_tier"]],
        "queue_id": f"q_{row['queue_id']:x}",
        "data": None if data is None else json.loads(data),
        "attributes": None if row["attributes"] is None else json.loads(row["attributes"]),
        **{name: row[name] and f"{row[name]:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for name in times},
        **{name: row[name] for name in ("shard", "queue", "key", "offset", "priority", "delivery_count", "outcome")},
        "group": row["group"],
        "last_error": row["error"],
    }


def test_a_server_gives_spark_the_rows_that_it_shows_in_json(busy: Busy) -> None:
    found = [shown(row) for row in read({"url": busy.url}).to_pylist()]

    assert found == [dict.fromkeys(found[0]) | row for row in busy.told]
    assert {row["queue"] for row in found} == {"orders", "orders.dead", "mail", "gone"}
    assert {row["outcome"] for row in found} == {"acked", "buried", "purged", "deleted"}
    assert {row["shard"] for row in found} == {0, 1}


def test_columns_and_queues_are_chosen_over_http_as_well(busy: Busy) -> None:
    table = read({"url": busy.url, "columns": "shard,priority", "queue": "orders,gone"})

    wanted = [row for row in busy.told if row["queue"] in {"orders", "gone"}]
    assert table.to_pylist() == [{"shard": row["shard"], "priority": row["priority"]} for row in wanted]
    assert read({"url": busy.url, "columns": "shard"}).num_rows == len(busy.told)


def test_ranges_over_http_are_exact_to_row_and_millisecond(busy: Busy) -> None:
    of_mail = [row for row in busy.told if row["queue"] == "mail"]
    shard, offsets = of_mail[0]["shard"], [row["offset"] for row in of_mail]
    for start, end in ((0, 42), (1, 39), (7, 8), (39, 41), (20, 20)):
        bounds = [*offsets, offsets[-1] + 1]
        given = {"startingOffsets": {shard: bounds[start]}, "endingOffsets": {shard: bounds[end], 1 - shard: 0}}
        options = {name: json.dumps(value) for name, value in given.items()}
        found = read({"url": busy.url, "columns": "offset", "rowsPerPartition": "5", "queue": "mail", **options})
        assert found.column("offset").to_pylist() == offsets[start:end]
    times = sorted({row["settled_at"] for row in busy.told})
    for since, until in pairwise(times):
        found = read({"url": busy.url, "startingTime": since, "endingTime": until, "columns": "offset"})
        assert found.num_rows == sum(since <= row["settled_at"] < until for row in busy.told)


def test_a_server_says_where_to_cut_the_work(busy: Busy) -> None:
    assert len(parts_of({"url": busy.url})) == 2
    parts = parts_of({"url": busy.url, "rowsPerPartition": "1"})
    assert len(parts) > 2
    assert read({"url": busy.url}, parts).num_rows == len(busy.told)


def test_what_a_server_refuses_is_told_in_its_words(busy: Busy) -> None:
    with pytest.raises(ServerRefused, match="404 not_found: there is nothing at /elsewhere/api/history/shards"):
        read({"url": f"{busy.url}/elsewhere"})
    said = "400 bad_field: .*there is no column 'colour'"
    with ServerClient(busy.url, "") as asker, pytest.raises(ServerRefused, match=said):
        asker.arrow("/api/history", shard=0, columns="colour")


def test_live_messages_of_all_queues_are_read_with_what_they_do_now(busy: Busy) -> None:
    options = {"url": busy.url, "read": "live"}
    found = {row["queue"]: row for row in read(options).to_pylist()}

    assert found.keys() == {"orders", "orders.dead"}
    waiting, dead = found["orders"], found["orders.dead"]
    shown = (waiting["state"], waiting["data"], waiting["priority"], waiting["group"], waiting["attributes"])
    assert shown == ("ready", b"this one stays", "NORMAL", None, None)
    assert json.loads(dead["attributes"])["origin"] == "tests"
    assert (dead["error"], dead["first_queue"]) == ("no «stock»", waiting["queue_id"])
    assert dead["sent_at"] < dead["seen_at"]
    assert read({**options, "bodies": "false", "queue": "orders"}).column("data").to_pylist() == [None]
    assert read({**options, "columns": "seen_at"}).num_rows == 2
    with pytest.raises(ServerRefused, match="404 queue_not_found"):
        read({**options, "queue": "gone"})


@contextmanager
def _door(answers: list[tuple[int, str]], kind: str = "application/json") -> Iterator[str]:
    """A door that gives these answers in turn; one of 0 closes the connection instead."""

    class Door(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = answers.pop(0)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def test_a_busy_server_and_a_broken_connection_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT_S_FIRST", 0.0)
    answers = [(503, "{}"), (0, ""), (429, "{}"), (502, "Bad Gateway"), (504, ""), (200, '{"a": 1}')]
    with _door(answers) as url, ServerClient(url, "") as asker:
        assert asker.json("/") == {"a": 1}


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT_S_FIRST", 0.0)
    problem = '{"code": "starting", "detail": "come back later"}'
    with _door([(503, problem)] * client.TRIES_MAX) as url:
        said = "in 9 tries; last, it said 503 starting: come back later"
        with ServerClient(url, "") as asker, pytest.raises(ServerUnreachable, match=said):
            asker.json("/")
    held = HeldPort()
    try:
        url = f"http://127.0.0.1:{held.number}"
        with ServerClient(url, "") as asker, pytest.raises(ServerUnreachable, match="ConnectionRefusedError"):
            asker.json("/")
    finally:
        held.give_back()


def test_of_a_server_without_arrow_a_job_says_what_to_install_and_where() -> None:
    with (
        _door([(406, '{"code": "not_acceptable", "detail": "this server has no Arrow"}')]) as url,
        ServerClient(url, "") as asker,
        pytest.raises(
            ServerRefused, match=rf"{url} has no Arrow.*there, pip install 'penstock\[arrow\]', and start it again"
        ),
    ):
        asker.arrow("/api/history", shard=0)


def test_something_else_at_the_address_of_a_server_is_told_from_one() -> None:
    with (
        _door([(200, "<html>")], "text/html; charset=utf-8") as url,
        ServerClient(url, "") as asker,
        pytest.raises(ServerRefused, match="is no Penstock server: it answers GET /api/history/shards with text/html"),
    ):
        asker.json("/api/history/shards")


def test_the_data_folder_of_an_idle_server_has_all_rows_that_it_gave(folder: Path, busy: Busy) -> None:
    rows = read({"url": busy.url}).to_pylist()

    # The last commit of each shard is seen when the log has been quiet for a moment.
    def are_all_shown() -> bool:
        seen = read({"path": str(folder)}).to_pylist()
        assert all(row in rows for row in seen)
        return bool(seen == rows)

    wait_until(are_all_shown, within_s=TOLD_S_MAX)


def test_the_data_folder_of_a_stopped_server_has_all_rows(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path, shards=2)) as running:
        with penstock.connect(running.url).sync() as client:
            settled = live(client)
        told(running.url, settled)
        over_http = read({"url": running.url}).to_pylist()

    assert read({"path": str(tmp_path)}).to_pylist() == over_http
    assert read({"path": str(tmp_path), "queue": "gone", "columns": "outcome"}).num_rows == 2
