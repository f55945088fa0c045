"""Every operation of REST and of Kafka, with every kind of key: who is refused, and that a refusal changes nothing.

The tables say who may. An operation without a row fails the test, so that a new one gets
its row before it is served.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from penstock.api.kafka.wire.schema import OFFERED, Api
from penstock.api.rest.operations import OPERATIONS
from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import create_key
from penstock.broker.records import PlainRecord, batch_of
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.messages import made, request_type

# A key with each role on `mine-*`, one that may do everything elsewhere, and one that may do everything.
GRANTS = {
    "metrics": Grant(Role.METRICS, "*"),
    "other": Grant(Role.ADMIN, "other-*"),
    "send": Grant(Role.SEND, "mine-*"),
    "receive": Grant(Role.RECEIVE, "mine-*"),
    "read": Grant(Role.READ, "mine-*"),
    "write": Grant(Role.WRITE, "mine-*"),
    "admin": Grant(Role.ADMIN, "mine-*"),
    "all": Grant(Role.ADMIN, "*"),
}
LISTS = "metrics other send receive read write admin all"
SEE = "send receive read write admin all"
FETCH = "receive read write admin all"
SEND = "send write admin all"
RECEIVE = "receive write admin all"
READ = "read write admin all"
ADMIN = "admin all"
EVERYWHERE = "all"


class Rest(NamedTuple):
    """Who may, and what to send. A list is for everybody with a key, and shows what each may see."""

    may: str
    body: Any = None
    query: dict[str, Any] | None = None


RECEIPTS = {"receipts": ["100000000-7faecdafdc0416b-0"]}
REST = {
    "create_queue": Rest(ADMIN, {"queue_name": "mine-new"}),
    "list_queues": Rest(LISTS),
    "get_queue": Rest(SEE),
    "change_queue": Rest(ADMIN, {"paused": True}),
    "delete_queue": Rest(ADMIN),
    "purge_queue": Rest(ADMIN),
    "send_messages": Rest(SEND, {"data": "x"}),
    "receive_messages": Rest(RECEIVE),
    "lease_messages": Rest(RECEIVE),
    "ack_message": Rest(RECEIVE),
    "ack_messages": Rest(RECEIVE, RECEIPTS),
    "cancel_message": Rest(SEND),
    "release_messages": Rest(RECEIVE, RECEIPTS),
    "extend_messages": Rest(RECEIVE, {**RECEIPTS, "visibility_timeout": 60}),
    "peek_messages": Rest(READ),
    "get_message": Rest(READ),
    "explain_message": Rest(READ),
    "escalate_messages": Rest(ADMIN, {"filter": {}, "priority": "CRITICAL", "reason": "test", "actor": "somebody"}),
    "list_escalations": Rest(READ),
    "requeue_message": Rest(ADMIN, {}),
    "begin_redrive": Rest(ADMIN, {}),
    "list_redrives": Rest(READ),
    "get_redrive": Rest(READ),
    "end_redrive": Rest(ADMIN),
    "read_history": Rest(READ),
    "list_live_messages": Rest(READ),
    "list_history_shards": Rest(EVERYWHERE),
    "read_shard_history": Rest(EVERYWHERE, query={"shard": 0}),
    "find_history_offset": Rest(EVERYWHERE, query={"shard": 0, "offset": 0, "rows": 1}),
    "trim_history": Rest(EVERYWHERE, {"shard": 0, "before": 0}),
    "read_audit_log": Rest("other admin all"),
    "create_topic": Rest(ADMIN, {"topic_name": "mine-new"}),
    "list_topics": Rest(LISTS),
    "get_topic": Rest(SEE),
    "change_topic": Rest(ADMIN, {"retention_s": 60}),
    "delete_topic": Rest(ADMIN),
    "create_producers": Rest(SEND, {"count": 1}),
    "produce_records": Rest(SEND, {"records": [{"value": "x"}]}),
    "browse_records": Rest(FETCH),
    "list_groups": Rest(LISTS),
    "get_group": Rest(READ),
    "delete_group": Rest(ADMIN),
}

TOPIC, GROUP, NEW = "mine-topic", "mine-group", "mine-new"
_CONFIG = {"resource_type": 2, "resource_name": TOPIC}


class Kafka(NamedTuple):
    """The role that is needed, and a request in one version. Without a role every caller gets public facts."""

    may: str | None
    version: int
    values: dict[str, Any]


KAFKA: dict[int, Kafka] = {
    Api.LIST_OFFSETS: Kafka(
        FETCH,
        1,
        {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    ),
    Api.METADATA: Kafka(SEE, 4, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
    Api.OFFSET_COMMIT: Kafka(
        RECEIVE,
        2,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "retention_time": -1,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
        },
    ),
    Api.OFFSET_FETCH: Kafka(FETCH, 2, {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}),
    Api.FIND_COORDINATOR: Kafka(SEE, 0, {"key": GROUP}),
    Api.JOIN_GROUP: Kafka(
        RECEIVE,
        0,
        {
            "group_id": "mine-joined",
            "session_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    Api.HEARTBEAT: Kafka(RECEIVE, 0, {"group_id": GROUP, "generation_id": 1, "member_id": "none"}),
    Api.LEAVE_GROUP: Kafka(RECEIVE, 0, {"group_id": GROUP, "member_id": "none"}),
    Api.SYNC_GROUP: Kafka(RECEIVE, 0, {"group_id": GROUP, "generation_id": 1, "member_id": "none"}),
    Api.DESCRIBE_GROUPS: Kafka(READ, 0, {"groups": [GROUP]}),
    Api.LIST_GROUPS: Kafka(None, 0, {}),
    Api.CREATE_TOPICS: Kafka(ADMIN, 2, {"topics": [{"name": NEW, "num_partitions": 1, "replication_factor": 1}]}),
    Api.DELETE_TOPICS: Kafka(ADMIN, 1, {"topic_names": [TOPIC]}),
    Api.DELETE_RECORDS: Kafka(
        ADMIN, 0, {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 1}]}]}
    ),
    # A number that no other producer has; it writes nothing.
    Api.INIT_PRODUCER_ID: Kafka(None, 0, {"transactional_id": None}),
    Api.OFFSET_FOR_LEADER_EPOCH: Kafka(
        FETCH, 2, {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    ),
    Api.DESCRIBE_CONFIGS: Kafka(SEE, 1, {"resources": [{**_CONFIG, "configuration_keys": None}]}),
    Api.ALTER_CONFIGS: Kafka(
        ADMIN, 0, {"resources": [{**_CONFIG, "configs": [{"name": "retention.ms", "value": "60000"}]}]}
    ),
    Api.DESCRIBE_LOG_DIRS: Kafka(None, 1, {"topics": None}),
    Api.CREATE_PARTITIONS: Kafka(ADMIN, 0, {"topics": [{"name": TOPIC, "count": 2, "assignments": None}]}),
    Api.DELETE_GROUPS: Kafka(ADMIN, 0, {"groups_names": [GROUP]}),
    Api.INCREMENTAL_ALTER_CONFIGS: Kafka(
        ADMIN,
        0,
        {"resources": [{**_CONFIG, "configs": [{"name": "retention.ms", "config_operation": 0, "value": "60000"}]}]},
    ),
    Api.OFFSET_DELETE: Kafka(
        ADMIN, 0, {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    ),
    Api.DESCRIBE_CLUSTER: Kafka(None, 0, {}),
    # There is one broker, so this changes nothing.
    Api.ELECT_LEADERS: Kafka(ADMIN, 2, {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]}),
    Api.LIST_PARTITION_REASSIGNMENTS: Kafka(None, 0, {"topics": None}),
    Api.DESCRIBE_QUORUM: Kafka(None, 1, {"topics": []}),
    Api.DESCRIBE_TOPIC_PARTITIONS: Kafka(SEE, 0, {"topics": [{"name": TOPIC}], "response_partition_limit": 9}),
    Api.PRODUCE: Kafka(
        SEND,
        3,
        {
            "transactional_id": None,
            "acks": -1,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": b"<a batch>"}]}],
        },
    ),
    Api.FETCH: Kafka(
        FETCH,
        4,
        {
            "replica_id": -1,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}],
                }
            ],
        },
    ),
}
# Answered before authentication, or refused to every caller.
FOR_STRANGERS = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
OFFERED_TO_NOBODY = {Api.CONSUMER_GROUP_HEARTBEAT, Api.SHARE_GROUP_HEARTBEAT}
DENIED = {29, 30, 31}


class Server:
    def __init__(self, broker: Broker, keys: Path) -> None:
        self.broker = broker
        self.texts = {
            name: create_key(keys, name, [grant], queues_max=None, created_at="2026-01-01T00:00:00Z")[1]
            for name, grant in GRANTS.items()
        }

    def rest(self, name: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json"}
        if name is not None:
            headers["authorization"] = f"Bearer {self.texts[name]}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.broker.url + path, data, headers, method=method), timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def client(self, name: str | None) -> RawClient:
        client = RawClient((self.broker.host, self.broker.port))
        if name is not None:
            assert client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
            said = f"\0{name}\0{self.texts[name]}".encode()
            assert client.ask(request(Api.SASL_AUTHENTICATE, 1, auth_bytes=said)).error_code == 0
        return client

    def actors(self) -> set[str]:
        """Who did what was written down last; `prepare` has done more before."""
        status, found = self.rest("all", "GET", "/api/audit-log?limit=1")
        assert status == 200
        return {each["actor"] for each in found["entries"]}

    def prepare(self) -> None:
        """Make what the operations are about, as it was before whatever an operation did."""
        for kind, name in (("queues", "mine-queue"), ("topics", TOPIC), ("queues", NEW), ("topics", NEW)):
            self.rest("all", "DELETE", f"/api/{kind}/{name}")
        assert self.rest("all", "POST", "/api/queues", {"queue_name": "mine-queue"})[0] == 201
        assert self.rest("all", "POST", "/api/queues/mine-queue/messages", {"data": "a"})[0] == 201
        assert self.rest("all", "POST", "/api/topics", {"topic_name": TOPIC})[0] == 201
        records = {"records": [{"value": "a", "partition": 0}, {"value": "b", "partition": 0}]}
        assert self.rest("all", "POST", f"/api/topics/{TOPIC}/records", records)[0] == 201
        with self.client("all") as client:
            commit = KAFKA[Api.OFFSET_COMMIT]
            values = {**commit.values, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
            client.ask(made(request_type(Api.OFFSET_COMMIT, commit.version), values))

    def seen(self) -> Any:
        """Everything that an operation could have changed, as an administrator sees it."""
        paths = (
            "/api/queues",
            "/api/topics",
            "/api/groups",
            "/api/queues/mine-queue",
            "/api/queues/mine-queue/peek",
            "/api/queues/mine-queue/escalations",
            "/api/queues/mine-queue/redrive",
            f"/api/topics/{TOPIC}",
            f"/api/groups/{GROUP}",
            "/api/history/shards",
        )
        return [_timeless(self.rest("all", "GET", path)) for path in paths]


def _timeless(value: Any) -> Any:
    """Return an answer without what changes by itself."""
    if isinstance(value, dict):
        by_itself = ("age_s", "wait_s", "size_bytes", "end_offset")
        return {name: _timeless(each) for name, each in value.items() if not name.endswith(by_itself)}
    return [_timeless(each) for each in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("roles")
    broker = Broker(folder / "data")
    found = Server(broker, folder / "data" / "keys.json")
    with broker:
        yield found


def test_every_operation_has_a_row() -> None:
    assert REST.keys() == {operation.name for operation in OPERATIONS}
    assert KAFKA.keys() | FOR_STRANGERS | OFFERED_TO_NOBODY == OFFERED.keys()


PARAMETERS = {"queue": "mine-queue", "message_id": "1-0", "task_id": "r_1", "topic": TOPIC, "group": GROUP}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_of_rest_is_for_those_who_may_and_changes_nothing_for_others(
    server: Server, operation: Any
) -> None:
    row = REST[operation.name]
    path = operation.path.format(**PARAMETERS) + (f"?{urlencode(row.query)}" if row.query else "")
    server.prepare()
    before = server.seen()
    for name in (None, *(each for each in GRANTS if each not in row.may.split())):
        status, answer = server.rest(name, operation.method, path, row.body)
        assert status == (401 if name is None else 403), (name, answer)
        assert server.seen() == before, name
    for name in row.may.split():
        server.prepare()
        status, answer = server.rest(name, operation.method, path, row.body)
        assert status not in {400, 401, 403, 405, 500}, (name, answer)
        if operation.method != "GET" and row.may in {ADMIN, EVERYWHERE} and status < 300:
            assert name in server.actors(), f"{operation.name} by {name} is not in the audit log"
        if row.may == LISTS and name in {"other", "metrics"}:
            assert answer == {operation.name.removeprefix("list_"): [], "next_cursor": None}


def _codes(value: Any) -> Iterator[int]:
    """Yield the codes of errors, wherever in an answer they are."""
    if isinstance(value, tuple):
        for each in value:
            yield from _codes(each)
    for name in getattr(value, "__dataclass_fields__", ()):
        found = getattr(value, name)
        if name == "error_code":
            yield int(found)
        else:
            yield from _codes(found)


def _asked(key: int, at_ms: int = 1_700_000_000_000) -> Any:
    row = KAFKA[key]
    values = row.values
    if key == Api.PRODUCE:
        batch = bytes(batch_of([PlainRecord(None, b"x", ())], at_ms=at_ms))
        values = {**values, "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]}
    return made(request_type(key, row.version), values)


@pytest.mark.parametrize("key", sorted(KAFKA), ids=lambda key: Api(key).name.lower())
def test_a_request_of_kafka_is_for_those_who_may_and_changes_nothing_for_others(server: Server, key: int) -> None:
    row = KAFKA[key]
    server.prepare()
    before = server.seen()
    with server.client(None) as client:
        client.send(_asked(key))
        assert client.is_closed()
    may = [*GRANTS] if row.may is None else row.may.split()
    for name in (each for each in GRANTS if each not in may):
        answer = _answer(server, name, key)
        assert set(_codes(answer)) & DENIED, (name, answer)
        assert server.seen() == before, name
    for name in may:
        server.prepare()
        answer = _answer(server, name, key)
        assert not set(_codes(answer)) & DENIED, (name, answer)
        is_change = row.may == ADMIN and key != Api.ELECT_LEADERS
        assert not is_change or name in server.actors(), f"{Api(key).name} by {name} is not in the audit log"
        assert row.may is not None or name not in {"other", "metrics"} or "mine" not in str(answer)


def _answer(server: Server, name: str, key: int) -> Any:
    with server.client(name) as client:
        return client.ask(_asked(key))
