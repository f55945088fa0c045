"""What takes time: visibility, delays, long polls, windows of five minutes and rules of one."""

import asyncio

import pytest

from penstock.api.sqs import receive
from tests.api.asgi import Connection
from tests.sqs.in_process import Failed, Sqs, open_sqs
from tests.waiting import elapse


def of(messages: list[dict[str, str]]) -> list[str]:
    return [each["Body"] for each in messages]


async def send(sqs: Sqs, url: str, *messages: str, **more: object) -> None:
    for body in messages:
        await sqs("SendMessage", QueueUrl=url, MessageBody=body, **more)


async def test_a_received_message_is_hidden_for_its_visibility_timeout() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="10")
        await send(sqs, url, "a")
        assert of(await sqs.receive(url)) == ["a"]
        await elapse(9)
        assert await sqs.receive(url) == []
        await elapse(2)
        (again,) = await sqs.receive(url, VisibilityTimeout=100)
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"
        await elapse(99)
        assert await sqs.receive(url) == []
        await elapse(2)
        assert of(await sqs.receive(url, VisibilityTimeout=0)) == ["a"]
        await elapse(0.01)
        assert of(await sqs.receive(url)) == ["a"]


async def test_visibility_is_changed_from_now_on_up_to_twelve_hours_in_all() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="10")
        await send(sqs, url, "a")
        (message,) = await sqs.receive(url)
        change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        await elapse(5)
        await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_195)
        with pytest.raises(Failed, match="Total VisibilityTimeout for the message is beyond the limit"):
            await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=43_200)
        await elapse(43_000)
        assert await sqs.receive(url) == []
        await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=0)
        assert of(await sqs.receive(url)) == ["a"]


async def test_a_handle_of_a_standard_queue_deletes_until_the_message_is_received_again() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="1")
        await send(sqs, url, "a", "b")
        first, second = await sqs.receive(url)
        await elapse(2)
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        again = await sqs.receive(url)
        assert of(again) == ["b"]
        # No error, and no effect: the message has gone to another.
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
        await elapse(2)
        assert of(await sqs.receive(url)) == ["b"]
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"])


async def test_a_handle_of_a_fifo_queue_has_expired_with_its_visibility() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make("orders.fifo", FifoQueue="true", VisibilityTimeout="1", ContentBasedDeduplication="true")
        await send(sqs, url, "a", MessageGroupId="g")
        (message,) = await sqs.receive(url)
        await elapse(2)
        with pytest.raises(Failed, match="The receipt handle has expired") as found:
            await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert (found.value.code, found.value.status) == ("InvalidParameterValue", 400)
        (message,) = await sqs.receive(url)
        for _ in range(2):
            await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_a_message_whose_visibility_timeout_has_passed_is_hidden_again_until_it_is_received(name: str) -> None:
    kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if name.endswith(".fifo") else {}
    group = {"MessageGroupId": "g"} if kind else {}
    async with open_sqs() as sqs:
        url = await sqs.make(name, VisibilityTimeout="1", **kind)
        await send(sqs, url, "a", "b", **group)
        first, _ = await sqs.receive(url)
        change = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
        await elapse(2)
        await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=60)
        assert of(await sqs.receive(url, VisibilityTimeout=0)) == ([] if kind else ["b"])
        await elapse(50)
        # It is held by the same handle, and may be held longer, or deleted.
        await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=60)
        await elapse(50)
        assert of(await sqs.receive(url, VisibilityTimeout=0)) == ([] if kind else ["b"])
        await sqs("DeleteMessage", **change)
        assert of(await sqs.receive(url)) == ["b"]
        await elapse(2)
        # Zero, when it is visible already, is no error either.
        (message,) = await sqs.receive(url)
        await elapse(2)
        await sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
        assert of(await sqs.receive(url)) == ["b"]


async def test_an_older_handle_changes_the_visibility_of_its_message() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        await send(sqs, url, "a")
        (first,) = await sqs.receive(url, VisibilityTimeout=0)
        older = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
        (second,) = await sqs.receive(url, VisibilityTimeout=30)
        await sqs("ChangeMessageVisibility", **older, VisibilityTimeout=0)
        (third,) = await sqs.receive(url, VisibilityTimeout=3)
        assert third["MessageId"] == second["MessageId"]
        await sqs("ChangeMessageVisibility", **older, VisibilityTimeout=60)
        await elapse(10)
        assert await sqs.receive(url) == []
        # Its time passes, it is not received, and still the oldest handle is good for that.
        await elapse(60)
        await sqs("ChangeMessageVisibility", **older, VisibilityTimeout=60)
        assert await sqs.receive(url) == []
        # The newest handle deletes.
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
        assert await sqs.refused("ChangeMessageVisibility", **older, VisibilityTimeout=1) == "InvalidParameterValue"


async def test_the_visibility_of_what_is_not_in_flight_cannot_be_changed() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        await send(sqs, url, "a")
        (message,) = await sqs.receive(url)
        change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=0)
        code = await sqs.refused("ChangeMessageVisibility", **change, VisibilityTimeout=5)
        assert code == "AWS.SimpleQueueService.MessageNotInflight"
        (message,) = await sqs.receive(url)
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        with pytest.raises(Failed, match="Message does not exist or is not available for visibility timeout change"):
            await sqs("ChangeMessageVisibility", **change, VisibilityTimeout=5)


async def test_delays_are_the_queues_or_the_messages_own() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(DelaySeconds="5")
        await send(sqs, url, "queue")
        await send(sqs, url, "none", DelaySeconds=0)
        await send(sqs, url, "own", DelaySeconds=60)
        assert of(await sqs.receive(url)) == ["none"]
        await elapse(6)
        assert of(await sqs.receive(url)) == ["queue"]
        await elapse(55)
        assert "own" in of(await sqs.receive(url))


async def test_a_long_poll_ends_with_the_first_message_or_with_its_time() -> None:
    async with open_sqs() as sqs, asyncio.TaskGroup() as tasks:
        url = await sqs.make(ReceiveMessageWaitTimeSeconds="20")
        began_ms = sqs.queues.now_ms()
        waiting = tasks.create_task(sqs.receive(url))
        await elapse(3)
        await send(sqs, url, "a")
        assert of(await waiting) == ["a"]
        assert 3_000 <= sqs.queues.now_ms() - began_ms < 4_000
        began_ms = sqs.queues.now_ms()
        assert await sqs("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=7) == {}
        assert 7_000 <= sqs.queues.now_ms() - began_ms < 8_000
        began_ms = sqs.queues.now_ms()
        assert await sqs.receive(url, WaitTimeSeconds=0) == []
        assert sqs.queues.now_ms() - began_ms < 1_000


async def test_nothing_is_handed_to_a_client_that_left_while_it_waited() -> None:
    async with open_sqs() as sqs, asyncio.TaskGroup() as tasks:
        url = await sqs.make()
        connection = Connection()
        body = f'{{"QueueUrl": "{url}", "WaitTimeSeconds": 20}}'.encode()
        headers = {"x-amz-target": "AmazonSQS.ReceiveMessage"}
        tasks.create_task(sqs.raw("POST", "/", body, headers=headers, connection=connection))
        await elapse(1)
        connection.close()
        await elapse(1)
        await send(sqs, url, "a")
        (message,) = await sqs.receive(url)
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"


async def test_the_rules_of_a_minute_end_after_a_minute() -> None:
    async with open_sqs(has_cooldowns=True) as sqs:
        url = await sqs.make()
        await sqs("PurgeQueue", QueueUrl=url)
        await elapse(59)
        assert await sqs.refused("PurgeQueue", QueueUrl=url) == "AWS.SimpleQueueService.PurgeQueueInProgress"
        await elapse(2)
        await sqs("PurgeQueue", QueueUrl=url)
        await sqs("DeleteQueue", QueueUrl=url)
        await elapse(59)
        code = await sqs.refused("CreateQueue", QueueName="orders")
        assert code == "AWS.SimpleQueueService.QueueDeletedRecently"
        await elapse(2)
        # It is another queue: nothing was purged in it.
        await sqs("PurgeQueue", QueueUrl=await sqs.make())


async def test_an_id_keeps_a_second_message_away_for_five_minutes() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make("orders.fifo", FifoQueue="true")
        asked = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
        first = await sqs("SendMessage", **asked, MessageBody="a")
        (message,) = await sqs.receive(url)
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        await elapse(299)
        again = await sqs("SendMessage", **asked, MessageBody="b")
        assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
        assert await sqs.receive(url) == []
        await elapse(2)
        fresh = await sqs("SendMessage", **asked, MessageBody="c")
        assert int(fresh["SequenceNumber"]) > int(first["SequenceNumber"])
        assert of(await sqs.receive(url)) == ["c"]


async def test_a_receive_that_is_repeated_with_its_attempt_gets_the_same_messages() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make("orders.fifo", FifoQueue="true", ContentBasedDeduplication="true", VisibilityTimeout="30")
        await send(sqs, url, "a", "b", MessageGroupId="g")
        first = await sqs.receive(url, ReceiveRequestAttemptId="try-1")
        await elapse(20)
        again = await sqs.receive(url, ReceiveRequestAttemptId="try-1")
        assert again == first
        assert of(again) == ["a", "b"]
        assert await sqs.receive(url, ReceiveRequestAttemptId="try-2") == []
        # It was held again.
        await elapse(20)
        assert await sqs.receive(url) == []
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"])
        assert await sqs.receive(url, ReceiveRequestAttemptId="try-1") == []
        await elapse(31)
        assert of(await sqs.receive(url, ReceiveRequestAttemptId="try-1")) == ["b"]


async def test_a_full_queue_is_a_throttled_request_which_every_sdk_repeats() -> None:
    async with open_sqs(long_polls_max=0) as sqs:
        url = await sqs.make()
        await sqs.queues.change("orders", lambda settings: type(settings).from_json('{"size_max": 1}'))
        await send(sqs, url, "a")
        with pytest.raises(Failed) as found:
            await send(sqs, url, "b")
        assert (found.value.code, found.value.status) == ("RequestThrottled", 403)
        assert of(await sqs.receive(url)) == ["a"]
        assert await sqs.refused("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=1) == "RequestThrottled"


async def test_a_change_through_another_front_end_is_seen_within_a_second() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="30")
        await send(sqs, url, "a")
        await sqs.queues.delete("orders", with_dead_letters=False)
        await elapse(1.1)
        missing = "AWS.SimpleQueueService.NonExistentQueue"
        assert await sqs.refused("SendMessage", QueueUrl=url, MessageBody="b") == missing
        assert await sqs.refused("ReceiveMessage", QueueUrl=url) == missing


async def test_a_standard_queue_hands_out_no_more_than_aws_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "IN_FLIGHT_MAX", 3)
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="10")
        await send(sqs, url, *"abcde")
        held = await sqs.receive(url, MaxNumberOfMessages=3)
        assert await sqs.refused("ReceiveMessage", QueueUrl=url) == "OverLimit"
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=held[0]["ReceiptHandle"])
        assert of(await sqs.receive(url, MaxNumberOfMessages=1)) == ["d"]
        assert await sqs.refused("ReceiveMessage", QueueUrl=url) == "OverLimit"
        # A message whose lease has ended is not in flight.
        await elapse(11)
        assert len(await sqs.receive(url, MaxNumberOfMessages=3)) == 3


async def test_a_message_received_three_times_goes_to_the_back_of_a_standard_queue() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="1")
        await send(sqs, url, "poison", "fine")
        for _ in range(3):
            assert of(await sqs.receive(url, MaxNumberOfMessages=1)) == ["poison"]
            await elapse(1.1)
        assert of(await sqs.receive(url, MaxNumberOfMessages=1)) == ["fine"]
        (poison,) = await sqs.receive(url)
        assert (poison["Body"], poison["Attributes"]["ApproximateReceiveCount"]) == ("poison", "4")


async def test_a_fifo_queue_with_too_many_in_flight_answers_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "IN_FLIGHT_MAX", 3)
    async with open_sqs() as sqs:
        url = await sqs.make("orders.fifo", FifoQueue="true", ContentBasedDeduplication="true")
        for number in range(5):
            await send(sqs, url, str(number), MessageGroupId=str(number))
        held = await sqs.receive(url, MaxNumberOfMessages=3)
        assert await sqs.receive(url) == []
        await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=held[0]["ReceiptHandle"])
        assert of(await sqs.receive(url, MaxNumberOfMessages=1)) == ["3"]
