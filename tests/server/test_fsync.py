"""When a server forces messages to the disk, and what it says if that is not before each answer."""

import os
from pathlib import Path

import pytest

from penstock.log.settings import MAY_LOSE
from penstock.settings import BadSetting, Fsync, ServerSettings
from tests.server.serving import server


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were forced to the disk."""
    found: list[int] = []
    sync = os.fdatasync

    def counted(file: int) -> None:
        found.append(file)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    return found


@pytest.mark.parametrize("fsync", Fsync)
def test_a_server_forces_messages_to_the_disk_as_it_is_told_and_says_what_may_be_lost(
    tmp_path: Path, syncs: list[int], caplog: pytest.LogCaptureFixture, fsync: Fsync
) -> None:
    with server(ServerSettings(port=0, data=tmp_path, kafka=False, fsync=fsync)) as running, running.client() as client:
        assert client.ask("POST", "/api/queues", {"queue_name": "orders"}).status == 201
        syncs.clear()
        for number in range(20):
            assert client.ask("POST", "/api/queues/orders/messages", {"data": number}).status == 201
        if fsync is Fsync.BATCH:
            assert len(syncs) >= 20
        elif fsync is Fsync.OS:
            # Of files beside the journal.
            assert len(syncs) < 10
        ready = client.ask("GET", "/health/ready").json()
        metrics = client.ask("GET", "/metrics").body.decode()
        is_relaxed = fsync is not Fsync.BATCH
        assert ready.get("may_lose") == (MAY_LOSE[fsync.value] if is_relaxed else None)
        assert ready.get("fsync") == (fsync.value if is_relaxed else None)
        assert (f'penstock_fsync_may_lose{{fsync="{fsync.value}"}} 1.0' in metrics) is is_relaxed
    assert ("server.may_lose" in caplog.text) is is_relaxed


def test_a_store_in_postgresql_is_refused_another_policy_than_its_own() -> None:
    with pytest.raises(BadSetting, match="fsync is interval; a store in PostgreSQL is as durable as the database"):
        ServerSettings(store="postgresql://localhost/shop", fsync=Fsync.INTERVAL)
