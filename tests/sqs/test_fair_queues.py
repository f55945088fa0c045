"""Fair queues through boto3: a tenant that has all workers busy does not keep the others waiting."""

from typing import Any

from tests.server.serving import Running
from tests.sqs.conftest import bodies, name_of, received


def send(sqs: Any, queue: str, tenant: str, count: int) -> None:
    for first in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": f"{tenant} {number}", "MessageGroupId": tenant}
            for number in range(first, min(count, first + 10))
        ]
        assert len(sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"]) == len(entries)


def test_a_tenant_with_thirty_messages_in_flight_waits_behind_quiet_ones(sqs: Any, queue: str) -> None:
    send(sqs, queue, "loud", 50)
    for _ in range(3):
        assert len(received(sqs, queue)) == 10, "one tenant may have many messages out at once"
    send(sqs, queue, "quiet", 12)
    assert {each["Attributes"]["MessageGroupId"] for each in received(sqs, queue)} == {"quiet"}
    tenants = [each["Attributes"]["MessageGroupId"] for each in received(sqs, queue)]
    assert tenants == ["quiet"] * 2 + ["loud"] * 8, "no lease waits for quiet messages that are not there"


def test_thresholds_are_set_through_rest_and_metrics_tell_who_is_noisy(sqs: Any, running: Running, queue: str) -> None:
    name = name_of(queue)
    with running.client() as client:
        changed = client.ask("PATCH", f"/api/queues/{name}", {"tenants": {"noisy_in_flight": 3}})
        assert changed.json()["tenants"]["noisy_in_flight"] == 3
    send(sqs, queue, "loud", 9)
    assert len(received(sqs, queue, 3)) == 3
    send(sqs, queue, "quiet", 2)
    assert bodies(received(sqs, queue, 3)) == ["quiet 0", "quiet 1", "loud 3"]
    with running.client() as client:
        told = client.ask("GET", "/metrics").body.decode()
    assert f'penstock_queue_noisy_groups{{queue="{name}"}} 1\n' in told
    assert f'penstock_queue_noisy_messages{{queue="{name}",state="in_flight"}} 4\n' in told
    assert f'penstock_queue_noisy_messages{{queue="{name}",state="ready"}} 5\n' in told
