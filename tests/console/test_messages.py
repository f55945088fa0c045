"""Messages: looked at by filter, explained, shown, moved; and hostile ones, which stay what they are."""

import json
from typing import Any

import pytest

from tests.console.chromium import Pages
from tests.waiting import wait_until

SCRIPT = "<script>window.wasHacked = true</script><img src=x onerror='window.wasHacked = true'>"
BIDI = "abc\u202edcba\u2066\u200b"


def shown(console: Pages) -> list[str]:
    """Return the ids of the messages that are shown."""
    found: list[str] = console.page.locator(".messages .message .mono:first-child").all_inner_texts()
    return found


def test_messages_are_looked_at_by_state_tier_group_text_and_time(console: Pages, client: Any) -> None:
    queue = client.queue("peeked")
    client.create_queue("peeked")
    plain = queue.send("a teapot")
    urgent = queue.send("a lamp", priority="CRITICAL", group="ada")
    later = queue.send("a spoon", delay_s=3_600)
    held = queue.receive(wait_s=5).id
    assert held == urgent

    for query, wanted in (
        ("", {plain, urgent, later}),
        ("?state=in_flight", {urgent}),
        ("?state=delayed", {later}),
        ("?priority=CRITICAL", {urgent}),
        ("?group=ada", {urgent}),
        ("?text=teapot", {plain}),
        ("?since=2020-01-01T00:00:00&until=2020-01-02T00:00:00", set()),
        ("?since=2020-01-01T00:00:00", {plain, urgent, later}),
    ):
        console.open(f"#/queues/peeked/messages{query}")
        console.page.locator("[role=status]", has_text="shown, of").wait_for()
        assert set(shown(console)) == wanted, query


def test_a_filter_that_nothing_fits_teaches_what_to_do(console: Pages, client: Any) -> None:
    client.create_queue("bare")

    console.open("#/queues/bare/messages")
    console.sees("There are no messages here")
    console.page.locator("main [name=text]").fill("nothing like it")
    console.page.get_by_role("button", name="Look", exact=True).click()
    console.sees("No message fits")
    assert "text=nothing+like+it" in console.page.url


def test_a_message_says_in_words_what_it_waits_for(console: Pages, client: Any) -> None:
    queue = client.queue("told")
    client.create_queue("told")
    first, second = queue.send({"n": 1}), queue.send({"n": 2})

    console.open(f"#/queues/told/messages/{second}")
    console.sees("Messages before it in its tier are leased first.")
    console.sees("1 message of its tier goes first.")
    console.sees("Tiers share by weights 16 : 8 : 4 : 2 : 1")
    held = queue.receive()
    assert held.id == first
    console.do("Look again")
    console.sees("It is next")
    console.open(f"#/queues/told/messages/{first}")
    console.sees("The lease ends")
    queue.pause()
    console.open(f"#/queues/told/messages/{second}")
    console.sees("The queue is paused.")
    console.sees("Now ready")


def test_a_message_is_escalated_with_a_reason_that_its_story_keeps(console: Pages, client: Any) -> None:
    queue = client.queue("raised")
    client.create_queue("raised")
    sent = queue.send("x", priority="LOW")

    console.open(f"#/queues/raised/messages/{sent}")
    console.do("Escalate …")
    console.page.locator("dialog [name=priority]").select_option("CRITICAL")
    console.fill("reason", "the customer called")
    console.submit()

    console.sees("the customer called", within=".story")
    assert queue.get_message(sent).priority == "CRITICAL"
    assert queue.escalations()[0].reason == "the customer called"


def test_a_body_is_shown_as_json_as_text_and_as_bytes(console: Pages, client: Any) -> None:
    queue = client.queue("bodies")
    client.create_queue("bodies")
    sent = queue.send({"b": [1, {"c": "ü"}]}, attributes={"source": "shop", "size": 3})

    console.open(f"#/queues/bodies/messages/{sent}")
    body = console.page.locator(".body-view")
    wait_until(lambda: '"c": "ü"' in body.inner_text())
    console.page.get_by_role("button", name="Text").click()
    wait_until(lambda: json.loads(body.inner_text()) == {"b": [1, {"c": "ü"}]})
    console.page.get_by_role("button", name="Hex").click()
    wait_until(lambda: body.inner_text().startswith("000000  7b 22 62 22"))
    console.sees("source", within="table")


@pytest.mark.parametrize("body", [SCRIPT, json.dumps({SCRIPT: SCRIPT, "__proto__": SCRIPT})])
def test_markup_in_a_message_is_shown_and_never_run(console: Pages, client: Any, body: str) -> None:
    queue = client.queue("hostile")
    client.create_queue("hostile", max_deliveries=1)
    sent = queue.send(body, group=SCRIPT[:80], attributes={SCRIPT[:40]: SCRIPT}, priority="HIGH")
    console.open("#/queues/hostile/messages")
    console.sees("window.wasHacked")
    console.open(f"#/queues/hostile/messages/{sent}")
    for way in ("JSON", "Text", "Hex"):
        console.page.get_by_role("button", name=way).click()
        console.page.locator(f"[data-way={way}][aria-pressed=true]").wait_for()
    queue.receive(wait_s=5).release(error=SCRIPT)
    wait_until(lambda: queue.describe().dlq_id)
    console.open("#/queues/hostile/dead")
    console.sees("script")
    console.open("#/history?queue=hostile&text=script")
    console.sees("found in")

    assert console.page.evaluate("window.wasHacked") is None
    assert console.page.locator("main script, main img").count() == 0
    queue.purge()
    client.queue("hostile.dead").purge()


def test_text_that_turns_or_hides_is_shown_as_what_it_is(console: Pages, client: Any) -> None:
    queue = client.queue("bidi")
    client.create_queue("bidi")
    sent = queue.send(BIDI, group=BIDI)

    console.open(f"#/queues/bidi/messages/{sent}")
    console.page.get_by_role("button", name="Text").click()

    wait_until(lambda: console.text(".body-view") == "abc‹U+202E›dcba‹U+2066›‹U+200B›")
    assert "\u202e" not in console.page.locator("main").inner_text()


def test_bytes_that_are_no_text_are_shown_as_bytes(console: Pages, client: Any) -> None:
    queue = client.queue("binary")
    client.create_queue("binary")
    sent = queue.send(b"\xff\xfe\x00broken\xc3")

    console.open("#/queues/binary/messages")
    console.sees("binary, 10 bytes")
    console.open(f"#/queues/binary/messages/{sent}")
    console.sees("ff fe 00 62 72 6f 6b 65", within=".body-view")
    console.page.get_by_role("button", name="Text").click()
    console.sees("Some bytes are no UTF-8")


def test_bodies_of_a_mebibyte_are_listed_by_their_beginning_and_shown_in_part(console: Pages, client: Any) -> None:
    queue = client.queue("large")
    client.create_queue("large")
    ids = [queue.send("y" * (1024 * 1024 - 9)) for _ in range(5)]

    console.open("#/queues/large/messages")
    wait_until(lambda: len(shown(console)) == 5)
    answers = console.page.evaluate(_ANSWER_BYTES)
    console.open(f"#/queues/large/messages/{ids[0]}")
    console.page.get_by_role("button", name="Text").click()
    console.sees("The first 256.0 KiB of 1.0 MiB")

    assert 500 < max(answers) < 20_000


_ANSWER_BYTES = """() => performance.getEntriesByType("resource")
  .filter((each) => each.name.endsWith("/large/messages")).map((each) => each.decodedBodySize)"""


def test_a_message_that_is_gone_leads_to_its_history(console: Pages, client: Any) -> None:
    queue = client.queue("gone")
    client.create_queue("gone", history="full")
    sent = queue.send("the missing umbrella")
    queue.receive(wait_s=5).ack()
    console.expects_refusals = True

    console.open(f"#/queues/gone/messages/{sent}")
    console.sees("The message does not exist")
    console.page.get_by_role("link", name="What became of it").click()
    # A row comes about a second after its message is settled.
    search = console.page.get_by_role("button", name="Search", exact=True)
    wait_until(lambda: (search.click(), console.page.locator(".record .badge", has_text="acked").count())[1])
    console.sees("the missing umbrella")
    console.open("#/history?queue=gone&text=umbrella&outcome=acked")
    console.sees(sent)
    console.open("#/history?queue=gone&text=nonsense")
    console.sees("Nothing fits")
