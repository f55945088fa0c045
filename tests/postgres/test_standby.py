"""A primary with a synchronous standby: no answer before the standby confirms, and none that takes for ever."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import msgspec
import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.errors import NotConfirmed, OutcomeUnknown
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.store import PostgresStore
from tests.cli.servers import Served
from tests.cluster.pair import Pair
from tests.postgres.poolers import Pooler, needs_pgbouncer
from tests.postgres.servers import STANDBY
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.real_time

# How long a commit may wait here, and what a machine that is busy with other tests makes of that.
_TIMEOUT_S = 0.5
_SECONDS_MAX = 60.0
_WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@pytest.fixture
def pair(servers: Pair) -> Iterator[Pair]:
    yield servers
    servers.resume_standby()
    servers.wait_for(STANDBY)


@asynccontextmanager
async def opened(url: str, **others: Any) -> AsyncIterator[PostgresStore]:
    settings = PostgresSettings(url=url, commit_timeout_s=_TIMEOUT_S, timing=Timing(beat_s=0.05), **others)
    async with await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice()) as store:
        yield store


def named(dedup_id: bytes = b"7") -> Drafts:
    return Drafts(bodies=[b"teapot"], dedup_ids=[dedup_id])


async def until_served(store: PostgresStore) -> None:
    await eventually(lambda: not store.commits.refusal, within_s=_SECONDS_MAX)


async def test_a_send_that_no_standby_confirms_in_time_is_unknown_and_the_next_are_refused(pair: Pair) -> None:
    async with opened(pair.new_database()) as store:
        await store.create("orders", QueueSettings())
        pair.pause_standby()
        async with asyncio.timeout(_SECONDS_MAX):
            with pytest.raises(OutcomeUnknown):
                await store.send("orders", named())
            with pytest.raises(NotConfirmed, match="standby"):
                await store.send("orders", named())
            # What only reads is answered.
            assert (await store.counts("orders")).live == 1
        assert (store.commits.durability, store.commits.unconfirmed >= 1) == ("synchronous standby", True)
        pair.resume_standby()
        await until_served(store)
        ids = await store.send("orders", named())
        assert ids == await store.send("orders", named())
        assert (await store.counts("orders")).live == 1


async def test_a_repeat_at_another_server_is_not_answered_before_a_standby_confirms(pair: Pair) -> None:
    url = pair.new_database()
    async with opened(url) as one, opened(url) as other:
        await one.create("orders", QueueSettings())
        pair.pause_standby()
        with pytest.raises(OutcomeUnknown):
            await one.send("orders", named())
        # The other one sees the message, and knows nothing of the wait that was cancelled.
        assert (await other.counts("orders")).live == 1
        with pytest.raises(OutcomeUnknown):
            await other.send("orders", named())


async def test_what_was_done_behind_a_broken_connection_is_confirmed_before_it_is_answered(pair: Pair) -> None:
    async with opened(pair.new_database()) as store:
        await store.create("orders", QueueSettings())
        pair.pause_standby()
        store._database.gate._timeout_s = store._database._watch._commit_s = 10 * _TIMEOUT_S
        found = await asyncio.gather(
            store.send("orders", named()),
            asyncio.to_thread(_end_what_waits, pair, "pg_terminate_backend"),
            return_exceptions=True,
        )
        assert isinstance(found[0], OutcomeUnknown)
        assert (await store.counts("orders")).live == 1


async def test_a_wait_that_an_operator_cancels_is_no_confirmation(pair: Pair) -> None:
    url = pair.new_database()
    settings = PostgresSettings(url=url, commit_timeout_s=_SECONDS_MAX)
    async with await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice(), has_upkeep=False) as store:
        await store.create("orders", QueueSettings())
        pair.pause_standby()
        found = await asyncio.gather(
            store.send("orders", named()),
            asyncio.to_thread(_end_what_waits, pair, "pg_cancel_backend"),
            return_exceptions=True,
        )
        assert isinstance(found[0], OutcomeUnknown)


def _end_what_waits(pair: Pair, by: str) -> None:
    with psycopg.connect(pair.primary.dsn, autocommit=True) as connection:
        wait_until(lambda: connection.execute(_WAITING).fetchone())
        connection.execute(f"SELECT {by}(pid) FROM ({_WAITING}) AS waiting".encode())


async def test_waits_for_a_standby_do_not_use_up_the_connections_of_the_database(pair: Pair) -> None:
    async with opened(pair.new_database(), connections_max=2) as store:
        await store.create("orders", QueueSettings())
        pair.pause_standby()
        with psycopg.connect(pair.primary.dsn, autocommit=True) as connection:
            most = 0
            for _ in range(6):
                sends = [store.send("orders", Drafts(bodies=[b"a"])) for _ in range(20)]
                found = await asyncio.gather(*sends, return_exceptions=True)
                assert {type(each) for each in found} <= {NotConfirmed, *_subclasses(OutcomeUnknown)}
                most = max(most, len(connection.execute(_WAITING).fetchall()))
        # Those of the pool, and no one else's: the beat waits for no standby.
        assert most <= 2


def _subclasses(kind: type) -> list[type]:
    return [kind, *kind.__subclasses__()]


async def test_a_receive_that_was_not_confirmed_gives_its_messages_back_uncounted(pair: Pair) -> None:
    async with opened(pair.new_database()) as store:
        await store.create("orders", QueueSettings())
        await store.send("orders", named())
        pair.pause_standby()
        with pytest.raises(OutcomeUnknown):
            await store.lease("orders", want=1)
        assert (await store.counts("orders")).leased == 1
        pair.resume_standby()
        await until_served(store)
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        assert list(delivery.deliveries) == [1]


async def test_a_standby_that_is_away_for_a_moment_is_waited_for(pair: Pair) -> None:
    settings = PostgresSettings(url=pair.new_database(), commit_timeout_s=_SECONDS_MAX)
    async with await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice()) as store:
        await store.create("orders", QueueSettings())
        pair.pause_standby()
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(store.send("orders", named()))
            with psycopg.connect(pair.primary.dsn, autocommit=True) as connection:
                await eventually(lambda: connection.execute(_WAITING).fetchone())
            pair.resume_standby()
        assert len(sending.result()) == 1


async def test_a_store_that_requires_a_standby_acknowledges_nothing_without_one(pair: Pair) -> None:
    pair.wait_for("")
    async with opened(pair.new_database(), requires_standby=True) as store:
        with pytest.raises(NotConfirmed, match="synchronous_standby_names"):
            await store.create("orders", QueueSettings())
        pair.wait_for(STANDBY)
        await until_served(store)
        await store.create("orders", QueueSettings())
        # As Patroni does without its strict mode.
        pair.wait_for("")
        await eventually(lambda: store.commits.refusal, within_s=_SECONDS_MAX)
        with pytest.raises(NotConfirmed):
            await store.send("orders", named())


async def test_a_standby_that_is_missing_is_noticed_without_a_commit(pair: Pair) -> None:
    async with opened(pair.new_database()) as store:
        await store.create("orders", QueueSettings())
        pair.primary.set("synchronous_standby_names", "another")
        await eventually(lambda: "0 is connected" in store.commits.refusal, within_s=_SECONDS_MAX)
        pair.wait_for(STANDBY)
        await until_served(store)


async def test_a_database_without_a_standby_has_the_durability_of_one_machine(pair: Pair) -> None:
    pair.wait_for("")
    async with opened(pair.new_database()) as store:
        await store.create("orders", QueueSettings())
        assert (store.commits.durability, store.commits.standbys_needed) == ("one machine", 0)


@needs_pgbouncer
async def test_a_wait_for_a_standby_is_bounded_behind_a_pooler_too(pair: Pair) -> None:
    with Pooler(pair.primary) as pooler:
        url = pooler.url(pair.primary.new_database())
        async with opened(url, is_pooled=True) as store:
            await store.create("orders", QueueSettings())
            pair.pause_standby()
            async with asyncio.timeout(_SECONDS_MAX):
                with pytest.raises(OutcomeUnknown):
                    await store.send("orders", named())
            pair.resume_standby()
            await until_served(store)
            assert len(await store.send("orders", named())) == 1


@pytest.mark.slow
def test_a_server_says_that_nothing_confirms_in_every_protocol(pair: Pair, tmp_path: Path) -> None:
    options = ("--store", pair.new_database(), "--require-standby", "--config", str(tmp_path / "penstock.toml"))
    (tmp_path / "penstock.toml").write_text(f"[server]\npostgres_commit_timeout_ms = {round(_TIMEOUT_S * 1_000)}\n")
    with Served(tmp_path / "a", *options) as served:
        sqs = boto3.client(
            "sqs", endpoint_url=served.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b",
            config=botocore.config.Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        status, said = _asked(f"{served.url}/health/ready")
        assert (status, said["durability"]) == (200, "synchronous standby")

        pair.pause_standby()
        status, problem = _asked(f"{served.url}/api/queues/orders/messages", {"messages": [{"data": "teapot"}]})
        assert (status, problem["code"]) == (504, "outcome_unknown")
        status, problem = _asked(f"{served.url}/api/queues/orders/messages", {"messages": [{"data": "teapot"}]})
        assert (status, problem["code"]) == (503, "not_durable")
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            sqs.send_message(QueueUrl=queue, MessageBody="teapot")
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        status, said = _asked(f"{served.url}/health/ready")
        assert (status, said["reasons"]) == (503, ["not_durable"])
        assert "standby" in said["refusals"][0]
        with urllib.request.urlopen(f"{served.url}/metrics") as answer:
            metrics = answer.read().decode()
        assert 'penstock_postgres_confirming{database="*"} 0.0' in metrics
        assert 'penstock_postgres_standbys_needed{database="*"} 1.0' in metrics

        pair.resume_standby()
        wait_until(lambda: _asked(f"{served.url}/health/ready")[0] == 200)
        assert sqs.send_message(QueueUrl=queue, MessageBody="teapot")["MessageId"]


def _asked(url: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_MAX) as answer:
            return answer.status, msgspec.json.decode(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, msgspec.json.decode(error.read())
