"""What holds for every request: routes, formats, problems, keys, and mistakes of ours."""

from typing import Any

import pytest

from penstock.api.rest import operators, queues
from penstock.api.rest.errors import problem_of
from penstock.api.rest.operations import HOT, OPERATIONS
from penstock.api.rest.request import Operation, Request, Service
from penstock.broker.access import GRANTED, INCLUDED, Access, Caller, Grant, Key, NotAllowed, Role, TooManyQueuesMade
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.wire.problems import CODES
from penstock.wire.queues import QueueList
from tests.api.asgi import ORDERS, open_api, receive, send
from tests.broker.brokers import open_broker


async def test_a_path_that_is_not_there_is_answered_with_404() -> None:
    async with open_api() as api:
        for path in (
            "/nothing",
            "/api",
            "/api/queue",
            f"{ORDERS}/nothing",
            f"{ORDERS}/messages/1-2/nothing",
            f"{ORDERS}/",
        ):
            assert (await api.get(path)).is_problem(404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/queues", {"GET", "POST"}),
        ("POST", ORDERS, {"DELETE", "GET", "PATCH"}),
        ("GET", f"{ORDERS}/ack", {"POST"}),
        ("DELETE", f"{ORDERS}/messages", {"GET", "POST"}),
        ("HEAD", f"{ORDERS}/messages", {"GET", "POST"}),
        ("OPTIONS", f"{ORDERS}/lease", {"POST"}),
        ("POST", f"{ORDERS}/messages/1-2", {"DELETE", "GET"}),
        ("PATCH", f"{ORDERS}/redrive", {"GET", "POST"}),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_answered_with_405(
    method: str, path: str, allowed: set[str]
) -> None:
    async with open_api() as api:
        await send(api, "a")
        answer = await api.call(method, path)
        assert answer.is_problem(405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == allowed
        # A HEAD that receives would lose a message.
        assert len(await receive(api)) == 1


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "nonsense"])
async def test_a_body_has_to_say_that_it_is_json(kind: str | None) -> None:
    """A page in a browser cannot say so without being asked, so it cannot send to a server on its visitor's machine."""
    async with open_api() as api:
        headers = {} if kind is None else {"content-type": kind}
        answer = await api.raw("POST", f"{ORDERS}/messages", b'{"data":"a"}', headers=headers)
        assert (answer.status, answer["code"]) == (415, "unsupported_media_type")
        assert (await api.get(ORDERS))["current_message_count"] == 0


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=1"])
async def test_a_content_type_may_have_parameters(kind: str) -> None:
    async with open_api() as api:
        answer = await api.raw("POST", f"{ORDERS}/messages", b'{"data":"a"}', headers={"content-type": kind})
        assert answer.status == 201


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("application/msgpack", "application/msgpack"),
        ("application/x-msgpack;q=1", "application/msgpack"),
        ("text/plain", "application/json"),
        ("application/vnd.apache.arrow.stream", "application/json"),
    ],
)
async def test_the_answer_is_in_the_first_format_that_is_accepted(accept: str, kind: str) -> None:
    async with open_api() as api:
        assert (await api.get(ORDERS, headers={"accept": accept})).headers["content-type"] == kind


async def test_messages_are_not_received_as_arrow() -> None:
    async with open_api() as api:
        accept = {"accept": "application/vnd.apache.arrow.stream"}
        answer = await api.get(f"{ORDERS}/messages", headers=accept)
        assert answer.is_problem(406, "not_acceptable", field="Accept")


async def test_a_problem_is_json_whatever_is_accepted() -> None:
    async with open_api() as api:
        answer = await api.get("/api/queues/nowhere", headers={"accept": "application/msgpack"})
        assert answer.is_problem(404, "queue_not_found")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LogBusy("behind"), 503, "journal_busy"),
        (LogFull("full"), 507, "storage_full"),
        (LogClosed("closed"), 503, "stopping"),
    ],
)
def test_trouble_with_the_disk_is_a_problem_with_a_time_to_come_again(error: Exception, status: int, code: str) -> None:
    found = problem_of(error)
    assert found is not None
    assert (found.status, found.code, CODES[found.code].is_retryable) == (status, code, True)
    assert isinstance(found.retry_after_s, float)


def test_a_setting_is_named_as_rest_names_it() -> None:
    found = problem_of(BadSettings("lease_ms is 0; it is between 1 and 2"))
    assert found is not None
    assert (found.field, found.detail) == ("visibility_timeout", "visibility_timeout is 0; it is between 1 and 2")


async def test_a_mistake_of_ours_is_answered_with_500_and_noted() -> None:
    async with open_api() as api:

        def fail() -> int:
            raise KeyError("ours")

        now_ms = api.queues.now_ms
        api.queues.now_ms = fail  # type: ignore[method-assign] # There is no mistake to make on purpose.
        answer = await api.post(f"{ORDERS}/messages", {"data": "a", "delay_s": 1})
        api.queues.now_ms = now_ms  # type: ignore[method-assign]
        assert answer.is_problem(500, "internal")
        assert "ours" not in answer["detail"]
        (event,) = api.forget_log_events("rest.failed")
        assert "KeyError" in str(event["error"])


def test_every_operation_has_a_name_of_its_own_and_says_what_it_answers() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names)
    for operation in OPERATIONS:
        assert operation.summary.endswith(".")
        assert operation.answers
        assert set(operation.problems) <= set(CODES)
    assert len(HOT) == 5


def keys() -> Access:
    key = Key(
        id=f"{1:012x}",
        name="only",
        secret_sha256=bytes(32),
        ending="",
        grants=(Grant(Role.ADMIN, "*"),),
        queues_max=None,
        created_at="2023-01-01T00:00:00Z",
    )
    return Access([key])


async def test_a_server_with_keys_answers_401_without_one() -> None:
    async with open_api(access=keys()) as api:
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": f"Bearer pk_{1:012x}_{'x' * 43}"}):
            answer = await api.get("/api/queues", headers=headers)
            assert answer.is_problem(401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")


PARAMETERS = {"queue": "orders", "message_id": "1-2", "task_id": "r_1", "topic": "events", "group": "readers"}


@pytest.mark.parametrize("role", GRANTED.values(), ids=lambda role: role.name)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_an_operation_is_allowed_to_the_roles_that_include_its_own_and_to_no_other(
    operation: Operation, role: Role
) -> None:
    async with open_broker(has_queue=True) as broker:
        made = b'{"topic_name":"events"}' if operation.tag == "topics" else b'{"queue_name":"orders"}'
        body = {"type": "http.request", "body": made}

        async def receive_body() -> dict[str, Any]:
            return body

        scope = {"headers": [(b"content-type", b"application/json")], "query_string": b""}
        call = Request(Service(broker.queues, Access.open(), 1_000), scope, receive_body, PARAMETERS)
        call.caller = Caller("tester", (Grant(role, "*"),))
        if operation.name in {"list_topics", "list_groups"}:
            # They show what the caller may see, and are tested where there are topics.
            return
        if operation.name == "list_queues":
            # A list shows everyone what they may see.
            found = await operation.run(call)
            assert isinstance(found.value, QueueList)
            assert [each.queue_name for each in found.value.queues] == (["orders"] if role is not Role.METRICS else [])
            return
        refusal: Exception | None = None
        try:
            await operation.run(call)
        except Exception as error:
            # Whatever else is wrong with this request is not asked here.
            refusal = error
        assert isinstance(refusal, NotAllowed) is (operation.role not in INCLUDED[role])


async def test_a_list_shows_only_what_the_caller_may_read() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.store.create("mail", QueueSettings())
        scope = {"headers": [], "query_string": b""}
        call = Request(Service(broker.queues, Access.open(), 1_000), scope, None, {})  # type: ignore[arg-type]
        call.caller = Caller("some", (Grant(Role.READ, "ma*"),))
        answer = await queues.list_queues(call)
        assert isinstance(answer.value, QueueList)
        assert [row.queue_name for row in answer.value.queues] == ["mail"]


async def test_dead_letters_are_requeued_only_into_queues_that_the_caller_may_send_to() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.store.create("mail", QueueSettings())

        async def receive_body() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"target_queue":"mail"}'}

        scope = {"headers": [(b"content-type", b"application/json")], "query_string": b""}
        call = Request(Service(broker.queues, Access.open(), 1_000), scope, receive_body, PARAMETERS)
        call.caller = Caller("some", (Grant(Role.ADMIN, "orders"), Grant(Role.READ, "mail")))
        for run in (operators.requeue, operators.begin_redrive):
            with pytest.raises(NotAllowed):
                await run(call)


async def test_dead_letters_go_with_their_queue_only_if_the_caller_may_delete_both() -> None:
    async with open_broker(has_queue=True) as broker:
        await broker.bury(b"a")
        scope = {"headers": [], "query_string": b"with_dead_letters=true"}
        call = Request(Service(broker.queues, Access.open(), 1_000), scope, None, PARAMETERS)  # type: ignore[arg-type]
        call.caller = Caller("some", (Grant(Role.ADMIN, "orders"),))
        with pytest.raises(NotAllowed):
            await queues.delete(call)
        assert len(await broker.store.queues()) == 2


async def test_a_key_makes_only_so_many_queues() -> None:
    async with open_broker(has_queue=True) as broker:

        def asking(name: str) -> Request:
            async def receive_body() -> dict[str, Any]:
                return {"type": "http.request", "body": b'{"queue_name":"%s"}' % name.encode()}

            scope = {"headers": [(b"content-type", b"application/json")], "query_string": b""}
            call = Request(Service(broker.queues, Access.open(), 1_000), scope, receive_body, {})
            call.caller = Caller("some", (Grant(Role.ADMIN, "*"),), queues_max=2)
            return call

        assert (await queues.create(asking("mail"))).status == 201
        with pytest.raises(TooManyQueuesMade):
            await queues.create(asking("more"))
        assert (await queues.create(asking("mail"))).status == 200
