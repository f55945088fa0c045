"""Topics and consumer groups: made, produced to, browsed, and read again from another place."""

import json
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.servers import Served
from tests.console.chromium import Pages
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _has_topics(server: Served, client: Any) -> None:
    try:
        list(client.topics())
    except Exception as error:
        pytest.skip(str(error))


def test_a_topic_is_made_produced_to_and_browsed(console: Pages, client: Any) -> None:
    console.open("#/streams")
    console.do("New topic")
    console.fill("topic_name", "clicks")
    console.fill("partitions", "2")
    console.submit()
    console.sees("clicks", within="h1")
    console.do("Produce a record")
    console.fill("value", '{"page": "<b>cart</b>"}')
    console.fill("key", "ada")
    console.page.locator("dialog [name=partition]").select_option("1")
    console.fill("headers", '{"source": "test"}')
    console.submit()
    console.sees("It is at 1:0")

    console.open("#/topics/clicks/records?partition=1")
    record = console.page.locator(".record")
    record.wait_for()
    assert "1:0" in record.inner_text()
    assert "ada" in record.inner_text()
    assert "source: test" in record.inner_text()
    assert "<b>cart</b>" in record.inner_text()


def test_records_are_browsed_from_an_offset_and_from_a_time(console: Pages, client: Any) -> None:
    client.create_topic("browsed")
    client.topic("browsed").add([f"r{place}" for place in range(120)])

    console.open("#/topics/browsed/records?offset=10")
    console.sees("r10")
    console.do("Later")
    console.sees("r60")
    console.do("Earlier")
    console.sees("r10")
    console.open("#/topics/browsed/records")
    console.sees("r119")
    console.open("#/topics/browsed/records?since=2020-01-01T00:00:00")
    console.sees("r0")


def test_a_topic_has_its_settings_changed_and_is_deleted(console: Pages, client: Any) -> None:
    client.create_topic("tuned")

    console.open("#/topics/tuned")
    console.do("Settings …")
    console.fill("retention_s", "3600")
    console.fill("partitions", "3")
    console.submit()
    wait_until(lambda: client.topic("tuned").describe().partition_count == 3)
    assert client.topic("tuned").describe().retention_s == 3600
    console.do("Delete …")
    console.fill("typed", "tuned")
    console.submit()
    wait_until(lambda: "tuned" not in [each.topic_name for each in client.topics()])


def test_the_offsets_of_a_group_are_reset_after_a_look(console: Pages, client: Any) -> None:
    client.create_topic("read", partitions=2)
    for partition in (0, 1):
        client.topic("read").add([f"{place}" for place in range(30)], partition=partition)
    body = {"group": "readers", "topic": "read", "to": "offset", "value": 10, "dry_run": False}
    asked = Request(
        f"{console.url}/api/console/offsets", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urlopen(asked) as answer:
        assert answer.status == 200

    console.open("#/groups/readers")
    console.sees("40 records", within=".tiles")
    console.do("Reset offsets …")
    console.page.locator("dialog [name=to]").select_option("shift")
    console.fill("value", "-5")
    console.do("Preview")
    console.page.locator("dialog tbody tr").first.wait_for()
    assert console.page.locator("dialog tbody tr").first.locator("td").all_inner_texts() == ["0", "10", "5", "20", "25"]
    assert client.group("readers").lag == 40
    console.submit()

    wait_until(lambda: client.group("readers").lag == 50)
    console.sees("50 records", within=".tiles")
    console.do("Delete …")
    console.fill("typed", "readers")
    console.submit()
    wait_until(lambda: "readers" not in [each.group_name for each in client.groups()])
