"""Queues: found, looked at, changed, paused, sent to, emptied."""

import re
from typing import Any

from tests.console.chromium import Pages
from tests.waiting import wait_until


def test_the_overview_shows_every_queue_with_what_is_in_it(console: Pages, client: Any) -> None:
    client.create_queue("seen-1", fifo=True)
    for _ in range(3):
        client.queue("seen-1").send("x", priority="CRITICAL", group="g")

    console.open()
    row = console.page.locator("[data-key='seen-1']")
    row.wait_for()

    wait_until(lambda: row.locator("[data-column=ready]").inner_text().strip() == "3")
    assert "FIFO" in row.inner_text()
    row.get_by_role("link", name="seen-1").click()
    console.page.wait_for_url(re.compile("#/queues/seen-1$"))
    console.page.go_back()
    row.wait_for()


def test_a_search_and_an_order_are_part_of_the_address(console: Pages, client: Any) -> None:
    for name, count in (("find-a", 1), ("find-b", 5), ("other", 9)):
        client.create_queue(name)
        client.queue(name).send_many([b"x"] * count)

    console.open()
    console.page.locator("[data-key='find-a']").wait_for()
    console.page.keyboard.press("/")
    console.page.keyboard.type("find-")
    console.page.locator("[data-column=ready] button").click()

    rows = console.page.locator(".grid-body .grid-row")
    wait_until(lambda: rows.count() == 2)
    assert "find=find-" in console.page.url
    assert "sort=ready&down=1" in console.page.url
    console.open(console.page.url.partition("/#")[2].join(["#", ""]))
    wait_until(lambda: [rows.nth(place).get_attribute("aria-rowindex") for place in range(rows.count())])
    order = {
        rows.nth(place).get_attribute("data-key"): rows.nth(place).get_attribute("aria-rowindex") for place in (0, 1)
    }
    assert order == {"find-b": "2", "find-a": "3"}


def test_a_new_queue_is_made_and_shown(console: Pages, client: Any) -> None:
    console.open()
    console.do("New queue")
    console.fill("queue_name", "no such name!")
    console.page.locator("dialog button[type=submit]").click()
    console.expects_refusals = True
    console.sees("A field is wrong", within="dialog")
    console.fill("queue_name", "made-here")
    console.submit()

    console.sees("made-here", within="h1")
    assert client.queue("made-here").describe().ready == 0
    console.errors.clear()


def test_a_queue_is_paused_and_resumed_with_a_click(console: Pages, client: Any) -> None:
    client.create_queue("halted")

    console.open("#/queues/halted")
    console.do("Pause")
    console.action("Resume").wait_for()
    assert client.queue("halted").describe().paused is True
    console.do("Resume")
    console.action("Pause").wait_for()
    assert client.queue("halted").describe().paused is False


def test_a_test_message_is_sent_with_all_that_it_may_have(console: Pages, client: Any) -> None:
    client.create_queue("tried")

    console.open("#/queues/tried")
    console.do("Send a message")
    console.fill("data", '{"a": [1, 2]}')
    console.page.locator("dialog [name=priority]").select_option("HIGH")
    console.fill("group", "ada")
    console.fill("attributes", '{"source": "test"}')
    console.submit()

    message = client.queue("tried").receive(wait_s=10)
    assert (message.json(), message.priority, message.group) == ({"a": [1, 2]}, "HIGH", "ada")
    assert message.attributes["source"] == "test"


def test_a_queue_is_emptied_only_when_its_name_is_typed(console: Pages, client: Any) -> None:
    client.create_queue("full")
    client.queue("full").send_many([b"x"] * 7)

    console.open("#/queues/full")
    console.do("Purge …")
    submit = console.page.locator("dialog button[type=submit]")
    assert submit.is_disabled()
    console.fill("typed", "ful")
    assert submit.is_disabled()
    console.fill("typed", "full")
    console.submit()

    console.sees("7 messages deleted from full")
    assert client.queue("full").describe().ready == 0


def test_a_queue_is_deleted_only_when_its_name_is_typed(console: Pages, client: Any) -> None:
    client.create_queue("unwanted")

    console.open("#/queues/unwanted")
    console.do("Delete …")
    console.fill("typed", "unwanted")
    console.submit()

    console.sees("unwanted is deleted")
    assert "unwanted" not in [each.queue_name for each in client.queues()]


def test_settings_are_explained_and_changed_in_place(console: Pages, client: Any) -> None:
    client.create_queue("set")

    console.open("#/queues/set/settings")
    console.sees("How long a received message is hidden from other consumers")
    console.fill("visibility_timeout", "77", within="main")
    console.fill("tiers.weights#4", "3", within="main")
    console.sees("2 changes")
    console.page.get_by_role("button", name="Save").click()
    console.sees("Saved.")

    view = client.queue("set").describe()
    assert (view.visibility_timeout, view.tiers.weights[-1]) == (77, 3)
    assert console.page.locator("main [name=visibility_timeout]").input_value() == "77"


def test_a_setting_out_of_bounds_is_marked_and_nothing_is_changed(console: Pages, client: Any) -> None:
    client.create_queue("bound")
    console.expects_refusals = True

    console.open("#/queues/bound/settings")
    console.fill("max_deliveries", "-3", within="main")
    console.page.get_by_role("button", name="Save").click()

    console.page.locator("[data-setting=max_deliveries].wrong").wait_for()
    console.sees("Correct the field that field names")
    assert client.queue("bound").describe().max_deliveries == 5


def test_charts_show_where_a_queue_has_been_and_are_read_by_keyboard(console: Pages) -> None:
    console.open("#/queues/charted")
    chart = console.page.get_by_role("img", name=re.compile("^Ready, by tier"))
    # A point is taken every ten seconds.
    chart.locator("polygon.t1").first.wait_for(timeout=60_000)
    readout = console.page.locator("figure", has_text="Ready, by tier").locator(".readout")
    chart.focus()
    console.page.keyboard.press("ArrowLeft")
    before = readout.inner_text()
    # The point before may be of a time when there was no queue yet; the one that was waited for is not.
    console.page.keyboard.press("ArrowRight")

    assert re.search(r"critical 0 · high \d+ · normal 0", readout.inner_text())
    assert before.split()[0] != readout.inner_text().split()[0]
    assert chart.locator(".cursor").count() == 1


def test_what_is_not_there_is_said_with_a_way_out(console: Pages) -> None:
    console.expects_refusals = True

    console.open("#/queues/nowhere")
    console.sees("The queue does not exist")
    console.sees("Create it, or correct the name.")
    console.open("#/no/such/page")
    console.page.get_by_role("link", name="Go to the queues").click()
    console.page.locator(".grid").wait_for()
