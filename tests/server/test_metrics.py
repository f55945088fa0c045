"""What Prometheus is told."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from penstock.api.rest.operations import OPERATIONS
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.metrics import prometheus
from penstock.metrics.health import Health, watching
from penstock.metrics.prometheus import Connections, Prometheus, Requests
from penstock.server import Application, open_application, operation_of
from penstock.settings import ServerSettings
from penstock.store.interface import Release
from penstock.telemetry import KAFKA_METRICS, METRICS, STREAM_METRICS
from tests.server.serving import server
from tests.steps import LINES_MAX, counted
from tests.waiting import let_others_run

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(text: bytes, parse: Any = parse_plain) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text.decode())
        for sample in family.samples
    }


def labels(**names: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))


@asynccontextmanager
async def metrics_of_memory() -> AsyncIterator[tuple[Application, Prometheus]]:
    async with open_application(ServerSettings(store="memory:")) as application:
        health = Health()
        health.look = application.journals
        nobody = Connections(now=0, most=0, accepted=0, refused=0, timed_out=0, buffered_bytes=0, shed=0)
        yield application, Prometheus(application.queues, Requests(operation_of), health, lambda: nobody)


def test_a_server_counts_messages_requests_and_connections(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path)) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        for priority in ("HIGH", "HIGH", "LOW"):
            client.ask("POST", "/api/queues/orders/messages", {"data": "x", "priority": priority})
        client.ask("GET", "/api/queues/orders/messages?limit=1")
        client.ask("GET", "/api/queues/nothing")
        client.ask("GET", "/nowhere")
        found = samples_of(client.ask("GET", "/metrics").body)
    assert found["penstock_queue_messages", labels(queue="orders", state="ready", tier="high")] == 1
    assert found["penstock_queue_messages", labels(queue="orders", state="ready", tier="low")] == 1
    assert found["penstock_queue_messages", labels(queue="orders", state="in_flight", tier="")] == 1
    assert 0 <= found["penstock_queue_oldest_age_seconds", labels(queue="orders", tier="low")] < 60
    assert ("penstock_queue_oldest_age_seconds", labels(queue="orders", tier="normal")) not in found
    assert found["penstock_queue_sent_total", labels(queue="orders")] == 3
    assert found["penstock_queue_received_total", labels(queue="orders")] == 1
    assert found["penstock_requests_total", labels(operation="send_messages", status="201")] == 3
    assert found["penstock_requests_total", labels(operation="get_queue", status="404")] == 1
    assert found["penstock_requests_total", labels(operation="other", status="404")] == 1
    assert found["penstock_request_duration_seconds_count", labels(operation="send_messages")] == 3
    assert found["penstock_connections", ()] == 1
    assert found["penstock_ready", ()] == 1
    assert found["penstock_journal_records_total", labels(journal="0")] >= 5
    assert found["process_resident_memory_bytes", ()] > 0


def test_what_is_refused_counts_by_queue_operation_and_outcome_each_message_of_a_batch_by_itself(
    tmp_path: Path,
) -> None:
    with server(ServerSettings(port=0, data=tmp_path, store="memory:")) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders", "queue_size": 3})
        client.ask("POST", "/api/queues/orders/messages", {"messages": [{"data": "x"}] * 3})
        client.ask("POST", "/api/queues/orders/messages", {"messages": [{"data": "x"}] * 2})
        client.ask("POST", "/api/queues/orders/messages", {"data": None})
        client.ask("POST", "/api/queues/orders/ack", {"receipts": ["1-1-0", "1-1-1"]})
        for name in ("no-such", "nor-such", "%22%0a"):
            client.ask("POST", f"/api/queues/{name}/messages", {"data": "x"})
        found = samples_of(client.ask("GET", "/metrics").body)
    outcomes = {
        (dict(pairs)["queue"], dict(pairs)["operation"], dict(pairs)["outcome"]): value
        for (name, pairs), value in found.items()
        if name == "penstock_queue_operations_total"
    }
    assert outcomes == {
        ("orders", "send", "success"): 3,
        ("orders", "send", "queue_full"): 2,
        ("orders", "send", "bad_field"): 1,
        ("orders", "ack", "stale_receipt"): 2,
        ("", "send", "queue_not_found"): 3,
    }
    assert found["penstock_queue_pressure_ratio", labels(queue="orders")] == 1
    assert found["penstock_queue_sent_bytes_total", labels(queue="orders")] == 3


def test_a_deleted_queue_leaves_no_series_behind(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path, store="memory:")) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        client.ask("POST", "/api/queues/orders/messages", {"data": "x"})
        client.ask("POST", "/api/queues/orders/messages", {"data": None})
        client.ask("GET", "/metrics")
        client.ask("DELETE", "/api/queues/orders")
        client.ask("POST", "/api/queues/orders/messages", {"data": "x"})
        text = client.ask("GET", "/metrics").body
    assert b'"orders"' not in text


def test_waits_handling_and_the_disk_are_measured(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path)) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        assert "receipt" not in client.ask("GET", "/api/queues/orders/messages?wait_s=0.05").json()
        client.ask("POST", "/api/queues/orders/messages", {"data": "x", "priority": "HIGH"})
        receipt = client.ask("GET", "/api/queues/orders/messages").json()["receipt"]
        client.ask("POST", "/api/queues/orders/ack", {"receipts": [receipt]})
        found = samples_of(client.ask("GET", "/metrics").body)
    assert found["penstock_queue_wait_seconds_count", labels(tier="high")] == 1
    assert found["penstock_queue_wait_seconds_count", labels(tier="low")] == 0
    assert found["penstock_handling_seconds_count", ()] == 1
    assert found["penstock_receive_seconds_count", ()] == 1
    assert found["penstock_long_poll_wait_seconds_count", ()] == 1
    assert found["penstock_long_poll_wait_seconds_sum", ()] > 0.04
    assert found["penstock_fsync_seconds_count", labels(log="queues")] >= 4
    assert found["penstock_fsync_seconds_sum", labels(log="queues")] > 0
    assert (
        found["penstock_commit_seconds_sum", labels(log="queues")]
        > found["penstock_fsync_seconds_sum", labels(log="queues")]
    )
    assert 0 < found["penstock_disk_free_bytes", ()] < found["penstock_disk_size_bytes", ()]
    assert ("penstock_history_lag_records", labels(journal="0")) in found


@pytest.mark.real_time
async def test_failed_logins_are_counted_by_how_they_were_tried() -> None:
    async with metrics_of_memory() as (application, metrics):
        for via in ("rest", "kafka", "rest"):
            application.queues.activity.failed_login(via=via, said="mallory", source="127.0.0.1")
        found = samples_of(await metrics.text(is_openmetrics=False))
    assert found["penstock_failed_logins_total", labels(via="rest")] == 2
    assert found["penstock_failed_logins_total", labels(via="kafka")] == 1


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path, store="memory:")) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        plain = client.ask("GET", "/metrics")
        openly = client.ask("GET", "/metrics", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert openly.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openly.body.endswith(b"# EOF\n")
    queue = "penstock_queue_messages", labels(queue="orders", state="ready", tier="high")
    assert samples_of(plain.body)[queue] == samples_of(openly.body, parse_openmetrics)[queue] == 0


@pytest.mark.real_time
async def test_every_declared_metric_is_shown_and_no_other_of_ours() -> None:
    async with metrics_of_memory() as (application, metrics):
        await application.queues.create("orders.dead", QueueSettings(size_max=1, deliveries_max=0))
        await application.queues.send("orders.dead", Drafts(bodies=[b"x"]))
        await application.queues.create("orders", QueueSettings(deliveries_max=1))
        # What cannot be buried is stuck.
        await application.queues.send("orders", Drafts(bodies=[b"x"] * 10))
        failed = await application.queues.lease("orders", want=1)
        assert failed is not None
        await application.queues.release("orders", list(failed.receipts()), Release(delay_ms=None, error="boom"))
        delivery = await application.queues.lease("orders", want=1)
        assert delivery is not None
        await application.queues.ack("orders", list(delivery.receipts()))
        metrics._requests.count({"method": "GET", "path": "/x"}, 404, 0.1)
        async with watching(60_000, application.runtime.log_event) as metrics.watchdog:
            text = (await metrics.text(is_openmetrics=False)).decode()
    families = {family.name for family in parse_plain(text) if family.name.startswith("penstock_")}
    # Those of a database are shown with a store in one, those of topics where Kafka clients are served.
    elsewhere = {metric.name for metric in (*STREAM_METRICS, *KAFKA_METRICS)}
    here = {metric.name for metric in METRICS if "_postgres_" not in metric.name} - elsewhere
    declared = {name.removesuffix("_total") for name in here}
    # What has not happened here has no series yet; a test of its own has each.
    assert families <= declared
    unseen = {name.removeprefix("penstock_queue_") for name in declared - families}
    # Whether there is a rate to tell a wait by depends on the time of day.
    assert unseen - {"wait_bound_seconds"} == {
        "penstock_loop_stalls", "penstock_fsync_may_lose", "penstock_failed_logins", "noisy_groups", "noisy_messages",
        "redriven", "requeued", "cancelled", "expired", "purged", "escalated", "promoted", "penstock_disk_free_bytes",
        "penstock_disk_size_bytes",
    }  # fmt: skip


@pytest.mark.real_time
async def test_a_queue_tells_its_size_its_dead_letters_and_how_many_of_them_call_an_operator() -> None:
    async with metrics_of_memory() as (application, metrics):
        await application.queues.create("quiet", QueueSettings(alert_dead_letters=0))
        await application.queues.create("orders.dead", QueueSettings(deliveries_max=0))
        await application.queues.create("orders", QueueSettings(deliveries_max=1, size_max=7, alert_dead_letters=3))
        await application.queues.send("orders", Drafts(bodies=[b"x"]))
        failed = await application.queues.lease("orders", want=1)
        assert failed is not None
        await application.queues.release("orders", list(failed.receipts()))
        # It is buried a moment later.
        assert await application.queues.lease("orders.dead", want=1, wait_ms=20_000) is not None
        found = samples_of(await metrics.text(is_openmetrics=False))
    assert found["penstock_queue_size", labels(queue="orders")] == 7
    assert found["penstock_queue_dead_letters", labels(queue="orders")] == 1
    assert found["penstock_queue_alert_dead_letters", labels(queue="orders")] == 3
    of_quiet = {name for name, pairs in found if ("queue", "quiet") in pairs}
    assert not of_quiet & {"penstock_queue_size", "penstock_queue_dead_letters", "penstock_queue_alert_dead_letters"}


@pytest.mark.real_time
async def test_queues_beyond_the_limit_are_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "QUEUES_MAX", 3)
    async with metrics_of_memory() as (application, metrics):
        for name in "abcde":
            await application.queues.create(name, QueueSettings())
        found = samples_of(await metrics.text(is_openmetrics=False))
    listed = {dict(pairs)["queue"] for name, pairs in found if name == "penstock_queue_sent_total"}
    assert listed == {"a", "b", "c"}
    assert (found["penstock_queues", ()], found["penstock_queues_omitted", ()]) == (5, 2)


@pytest.mark.real_time
async def test_others_have_their_turn_while_many_queues_are_written_out() -> None:
    async with metrics_of_memory() as (application, metrics):
        for number in range(300):
            await application.queues.create(f"queue-{number}", QueueSettings())
        stalls: list[float] = []

        async def watch() -> None:
            while True:
                before = time.perf_counter()
                await let_others_run()
                stalls.append(time.perf_counter() - before)

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            text = await metrics.text(is_openmetrics=False)
            watching.cancel()
    assert len(samples_of(text)) > 300 * 10
    # In one piece it would be two: one for gathering, one for writing.
    assert len(stalls) > 50


async def test_a_scrape_of_thousands_of_queues_in_use_has_no_long_step() -> None:
    async with metrics_of_memory() as (application, metrics):
        for number in range(2_000):
            await application.queues.create(f"queue-{number}", QueueSettings())
            await application.queues.send(f"queue-{number}", Drafts(bodies=[b"x"]))
        with counted() as steps:
            await metrics.page()

    # 500 queues are looked at in one step, and what a family says of all of them is one line of Python each.
    assert steps.longest < 0.5 * LINES_MAX, steps.culprit


def test_a_request_falls_into_the_bucket_of_its_time() -> None:
    requests = Requests(lambda _: "send")
    for seconds in (0.0005, 0.001, 0.3, 99.0):
        requests.count({}, 200, seconds)
    requests.count({}, 503, 0.3)
    cell = requests.by_operation()["send"]
    assert (cell.count, requests.cells["send", 200].count) == (5, 4)
    at = dict(zip((*cell.bounds, None), cell.buckets, strict=True))
    assert (at[0.0005], at[0.001], at[0.5], at[None]) == (1, 1, 2, 1)


class Routed:
    def __init__(self, path: str) -> None:
        self.path = path


def test_a_request_is_counted_for_its_operation() -> None:
    for operation in OPERATIONS:
        assert operation_of({"method": operation.method, "route": Routed(operation.path)}) == operation.name
    hot = {"method": "POST", "path": "/api/queues/orders/ack"}
    assert operation_of(hot) == "ack_messages"
    assert operation_of({"method": "POST", "path": "/api/rabbits/orders/ack"}) == "other"
    assert operation_of({"method": "PUT", "path": "/api/queues/orders/ack"}) == "other"
