"""Dead letters: grouped by cause, sent back one by one, by the group, in part, and stopped on the way."""

from typing import Any

from tests.console.chromium import Pages
from tests.waiting import wait_until


def bury(client: Any, name: str, errors: list[str]) -> None:
    """Make a queue with one dead letter for each error."""
    client.create_queue(name, max_deliveries=1)
    queue = client.queue(name)
    queue.send_many([{"place": place} for place in range(len(errors))])
    left = list(errors)
    while left:
        for message in queue.receive(limit=100, wait_s=10):
            message.release(error=left.pop())
    dead = client.queue(f"{name}.dead")
    wait_until(lambda: queue.describe().dlq_id and dead.describe().ready == len(errors))


def refused(count: int) -> list[str]:
    return [f"ConnectionError: 10.0.0.{place}:5432 refused order {1000 + place}" for place in range(count)]


def group(console: Pages, words: str) -> Any:
    return console.page.locator(".cause", has_text=words)


def test_errors_that_differ_in_numbers_and_names_only_are_one_group(console: Pages, client: Any) -> None:
    bury(client, "causes", [*refused(7), "KeyError: 'sku'", "KeyError: 'sku'", ""])

    console.open("#/queues/causes/dead")
    console.sees("10 dead letters in 3 groups")
    first = group(console, "ConnectionError: <host> refused order <n>")

    assert first.locator(".cause-count").inner_text() == "7"
    assert "from causes 7" in first.inner_text()
    assert first.locator(".bars rect").count() == 30
    first.get_by_text("A sample").click()
    console.sees("ConnectionError: 10.0.0.")
    assert group(console, "(no error text)").locator(".cause-count").inner_text() == "1"


def test_one_dead_letter_is_sent_back_to_see_whether_it_is_mended(console: Pages, client: Any) -> None:
    bury(client, "one-back", refused(3))

    console.open("#/queues/one-back/dead")
    console.do("Requeue one")
    console.sees("went to one-back")

    wait_until(lambda: client.queue("one-back").describe().ready == 1)
    assert client.queue("one-back.dead").describe().ready == 2


def test_a_group_is_sent_back_after_a_look_that_moves_nothing(console: Pages, client: Any) -> None:
    bury(client, "group-back", [*refused(6), "KeyError: 'sku'"])

    console.open("#/queues/group-back/dead")
    group(console, "refused order").locator("[data-action^=Redrive]").click()
    console.do("Dry run")
    console.sees("Would send 6 messages: 6 to group-back.")
    assert client.queue("group-back.dead").describe().ready == 7
    console.sees("penstock dlq redrive group-back --error ConnectionError:", within="dialog")
    console.submit()

    wait_until(lambda: client.queue("group-back").describe().ready == 6)
    console.page.locator(".task", has_text="6 messages sent back").wait_for()
    assert client.queue("group-back.dead").describe().ready == 1


def test_a_redrive_shows_how_far_it_is_and_can_be_stopped(console: Pages, client: Any) -> None:
    bury(client, "slow-back", refused(40))

    console.open("#/queues/slow-back/dead")
    group(console, "refused order").locator("[data-action^=Redrive]").click()
    console.fill("rate_per_s", "2")
    console.submit()
    task = console.page.locator(".task", has_text="running")
    task.wait_for()
    wait_until(lambda: client.queue("slow-back").describe().ready >= 1)
    task.locator("[data-action=Stop]").click()
    console.page.locator(".task", has_text="stopped").wait_for()

    left = client.queue("slow-back.dead").describe().ready
    assert 0 < left < 40
    assert left + client.queue("slow-back").describe().ready == 40


def test_all_dead_letters_go_into_another_queue_at_most_as_many_as_said(console: Pages, client: Any) -> None:
    bury(client, "all-back", refused(5))
    client.create_queue("all-back-test")

    console.open("#/queues/all-back/dead")
    console.do("Send all back …")
    console.fill("target_queue", "all-back-test")
    console.fill("limit", "2")
    console.submit()

    wait_until(lambda: client.queue("all-back-test").describe().ready == 2)
    assert client.queue("all-back.dead").describe().ready == 3


def test_a_dead_letter_has_a_page_with_its_story_and_goes_back_from_there(console: Pages, client: Any) -> None:
    bury(client, "story", ["CardDeclined: card ending 4242"])

    console.open("#/queues/story/dead")
    console.page.get_by_role("link", name="Open the sample").click()
    console.sees("Sent to story", within=".story")
    console.sees("Delivered 1× there", within=".story")
    console.sees("Came to story.dead", within=".story")
    console.do("Requeue …")
    console.submit()

    console.sees("went to story")
    wait_until(lambda: client.queue("story").describe().ready == 1)


def test_a_queue_without_dead_letters_says_when_there_will_be_some(console: Pages, client: Any) -> None:
    client.create_queue("spotless", max_deliveries=4)

    console.open("#/queues/spotless/dead")

    console.sees("No message was buried yet")
    console.sees("delivered 4 times without an ack")
