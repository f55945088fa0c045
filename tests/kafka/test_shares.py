"""One key cannot use up what all share."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.kafka.wire.schema import Api
from penstock.broker.access import Caller, Grant, Holds, Role, Share
from penstock.broker.api_keys import create_key
from penstock.broker.long_polls import TooManyWaiting
from penstock.broker.redrives import RedriveRequest, TooManyRedrives
from penstock.contract.limits import GROUPS_MAX, PARTITIONS_MAX, REDRIVES_MAX
from tests.api.asgi import open_api
from tests.api.holders import Holder, access_of
from tests.broker.brokers import open_broker, settle
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.messages import made, request_type

GREEDY = Caller("greedy", (Grant(Role.ADMIN, "orders*"),))
OTHER = Caller("other", (Grant(Role.ADMIN, "orders*"),))
OWNER = Caller("owner", (Grant(Role.ADMIN, "*"),))


def test_what_a_key_holds_is_its_own() -> None:
    holds = Holds(8, Share(25), TooManyWaiting)
    with holds.one(GREEDY), holds.one(GREEDY):
        with pytest.raises(TooManyWaiting), holds.one(GREEDY):
            pass
        with holds.one(OTHER):
            pass
    with holds.one(GREEDY):
        pass


def test_a_key_that_may_do_everything_may_have_all_of_it() -> None:
    holds = Holds(2, Share(50), TooManyWaiting)
    with holds.one(OWNER), holds.one(OWNER), holds.one(OWNER):
        pass
    assert Share(50).most(OWNER, 100) == 100


async def test_the_long_polls_of_one_key_leave_room_for_others() -> None:
    access = access_of(ops=(Role.ADMIN, "*"), greedy=(Role.RECEIVE, "*"), other=(Role.RECEIVE, "*"))
    async with open_api(access=access, long_polls_max=4) as api, asyncio.TaskGroup() as tasks:
        await Holder(api, "ops").post("/api/queues", {"queue_name": "orders"})
        greedy, other = Holder(api, "greedy"), Holder(api, "other")
        path = "/api/queues/orders/messages"
        waiting = [tasks.create_task(greedy.get(path, wait_s=20)) for _ in range(2)]
        await settle()
        assert api.queues.waiting.count == 2
        assert (await greedy.get(path, wait_s=20)).is_problem(429, "too_many_waiting", limit=2)
        assert (await other.get(path, wait_s=0.1)).status == 200
        for each in waiting:
            assert (await each).status == 200


async def test_the_redrives_of_one_key_leave_room_for_others() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(*[b"a"] * 30)
        redrives = broker.queues.redrives
        order = RedriveRequest(rate_per_s=0.001)
        tasks = [await redrives.begin("orders.dead", order, caller=GREEDY) for _ in range(REDRIVES_MAX // 2)]
        with pytest.raises(TooManyRedrives) as caught:
            await redrives.begin("orders.dead", order, caller=GREEDY)
        assert caught.value.most == REDRIVES_MAX // 2
        tasks.append(await redrives.begin("orders.dead", order, caller=OTHER))
        for task in tasks:
            await redrives.end(task)


class Keyed:
    def __init__(self, broker: Broker, keys: Path) -> None:
        self.broker = broker
        self.texts = {
            name: create_key(keys, name, [Grant(Role.ADMIN, f"{name}-*")], queues_max=None, created_at="")[1]
            for name in ("greedy", "other")
        }

    def client(self, name: str) -> RawClient:
        client = RawClient((self.broker.host, self.broker.port))
        assert client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
        said = f"\0{name}\0{self.texts[name]}".encode()
        assert client.ask(request(Api.SASL_AUTHENTICATE, 1, auth_bytes=said)).error_code == 0
        return client


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("shares")
    broker = Broker(folder / "data")
    found = Keyed(broker, folder / "data" / "keys.json")
    with pytest.MonkeyPatch.context() as patch:
        # 100 groups and 100 partitions for each key.
        patch.setenv("PENSTOCK_KEY_SHARE_PERCENT", "1")
        with broker:
            yield found


def ask(client: RawClient, key: Api, version: int, **values: Any) -> Any:
    return client.ask(made(request_type(key, version), values))


def create(client: RawClient, *names: str, partitions: int = 1) -> list[int]:
    topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name in names]
    return [int(row.error_code) for row in ask(client, Api.CREATE_TOPICS, 2, topics=topics).topics]


def test_the_groups_and_partitions_of_one_key_leave_room_for_others(keyed: Keyed) -> None:
    most = GROUPS_MAX // 100
    assert most == PARTITIONS_MAX // 100
    with keyed.client("greedy") as greedy, keyed.client("other") as other:
        codes = create(greedy, *(f"greedy-{number}" for number in range(most // 10 + 1)), partitions=10)
        assert codes[:-1] == [0] * (most // 10)
        assert codes[-1] != 0
        assert create(greedy, "greedy-more") != [0]
        assert create(other, "other-one") == [0]

        def commit(client: RawClient, group: str, topic: str) -> int:
            part = {"partition_index": 0, "committed_offset": 0}
            values = {"group_id": group, "topics": [{"name": topic, "partitions": [part]}]}
            answer = ask(client, Api.OFFSET_COMMIT, 2, generation_id_or_member_epoch=-1, retention_time=-1, **values)
            return int(answer.topics[0].partitions[0].error_code)

        assert {commit(greedy, f"greedy-{number}", "greedy-0") for number in range(most)} == {0}
        assert commit(greedy, "greedy-more", "greedy-0") != 0
        assert commit(greedy, "greedy-0", "greedy-0") == 0
        assert commit(other, "other-one", "other-one") == 0
