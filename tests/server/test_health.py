"""What a server says of its own health."""

from pathlib import Path

import pytest

from penstock.metrics.health import BEHIND_S, Health, Journal, starting
from penstock.server import open_application
from penstock.settings import ServerSettings
from tests.server.serving import listener


def journal(
    *, end: int = 5, durable: int = 5, is_full: bool = False, is_history_behind: bool = False, name: str = "0"
) -> Journal:
    return Journal(
        name=name,
        size_bytes=1,
        end_offset=end,
        durable_offset=durable,
        is_full=is_full,
        is_history_behind=is_history_behind,
    )


def health_of(*journals: Journal) -> Health:
    health = Health()
    health.look = lambda: journals
    return health


def test_a_server_that_opens_its_store_lives_and_is_not_ready() -> None:
    with listener(starting(Health())) as running, running.client() as client:
        assert client.ask("GET", "/health/live").status == 200
        ready = client.ask("GET", "/health/ready")
        assert (ready.status, ready.json()) == (503, {"status": "not_ready", "reasons": ["starting"]})
        answer = client.ask("POST", "/api/queues/orders/messages", {"data": 1})
        assert (answer.status, answer.json()["code"], answer.headers["retry-after"]) == (503, "starting", "1")


def test_a_server_is_ready_when_nothing_keeps_it() -> None:
    assert health_of(journal(), journal(name="1")).reasons() == []


def test_every_reason_is_named() -> None:
    health = health_of(journal(is_full=True), journal(is_history_behind=True, name="1"))
    health.is_stopping = True
    assert health.reasons() == ["stopping", "disk_full", "history_behind"]


def test_a_disk_that_gets_nothing_done_is_behind() -> None:
    now = [journal(end=9, durable=5)]
    health = Health()
    health.look = lambda: now
    health.watch(100.0)
    health.watch(100.0 + BEHIND_S - 0.1)
    assert health.reasons() == []
    health.watch(100.0 + BEHIND_S)
    assert health.reasons() == ["disk_behind"]
    now[0] = journal(end=9, durable=6)
    assert health.reasons() == []
    health.watch(200.0)
    assert health.reasons() == []


def test_a_disk_that_had_nothing_to_do_is_not_behind() -> None:
    now = [journal(end=5, durable=5)]
    health = Health()
    health.look = lambda: now
    health.watch(100.0)
    health.watch(200.0)
    now[0] = journal(end=6, durable=5)
    assert health.reasons() == []


@pytest.mark.real_time
async def test_a_journal_is_seen_as_it_is(tmp_path: Path) -> None:
    async with open_application(ServerSettings(data=tmp_path / "data", shards=2)) as application:
        first, second = application.journals()
        assert (first.name, second.name) == ("0", "1")
        assert first.durable_offset == first.end_offset > 0
        assert first.size_bytes > 0
        assert not first.is_full
        assert not first.is_history_behind
