"""Using it: by keyboard, on a phone, in the dark, with a screen reader, with many queues, when nothing answers."""

import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.contract.messages import PRIORITIES
from tests.cli.servers import Served
from tests.console.chromium import DESKTOP, PHONE, Pages, pages
from tests.console.conftest import start
from tests.console.test_dead_letters import bury, refused
from tests.waiting import wait_until


def addresses_of(queue: str, message: str) -> list[str]:
    """Return the address of every page, with those of a queue and of a message in it."""
    own = f"#/queues/{queue}"
    parts = [own, f"{own}/messages", f"{own}/messages/{message}", f"{own}/dead", f"{own}/settings"]
    return ["#/", *parts, "#/streams", f"#/history?queue={queue}", "#/audit", "#/keys"]


def test_everything_is_reached_by_keys(console: Pages, client: Any) -> None:
    client.create_queue("a-first")
    console.open()
    console.page.locator("[data-key='a-first']").wait_for()
    press = console.page.keyboard.press

    press("?")
    console.sees("Keys and words", within="dialog")
    press("Escape")
    console.page.locator("dialog").wait_for(state="detached")
    for key, heading in (("h", "History"), ("a", "Audit log"), ("k", "API keys"), ("q", "Queues")):
        press("g")
        press(key)
        console.page.locator("h1", has_text=heading).wait_for(state="attached")
    console.page.locator("[data-key='a-first']").wait_for()
    press("/")
    assert console.page.evaluate("document.activeElement.type") == "search"
    console.page.keyboard.type("a-first")
    wait_until(lambda: console.page.locator(".grid-body .grid-row").count() == 1)
    press("Escape")
    console.page.locator(".grid").focus()
    press("ArrowDown")
    press("Enter")
    console.sees("a-first", within="h1")
    press("u")
    console.page.locator(".grid").wait_for()


def test_light_and_dark_follow_the_system_until_they_are_chosen(console: Pages) -> None:
    def ground() -> str:
        found: str = console.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    console.open()
    light = ground()
    console.page.emulate_media(color_scheme="dark")
    dark = ground()
    assert dark != light
    console.do("Theme")
    assert ground() == light
    console.page.reload()
    console.page.locator("main").wait_for()
    assert ground() == light
    console.do("Theme")
    console.page.emulate_media(color_scheme="light")
    assert ground() == dark


def test_every_control_has_a_name_and_every_page_one_heading(console: Pages, client: Any) -> None:
    client.create_queue("named")
    sent = client.queue("named").send({"a": 1})
    for address in addresses_of("named", sent):
        console.open(address)
        console.page.locator("main h1, main .empty").first.wait_for(state="attached")
        assert console.page.evaluate(_NAMELESS) == [], address
        assert console.page.locator("h1").count() <= 1, address
        assert console.page.title().endswith("· Penstock")


_NAMELESS = """() => [...document.querySelectorAll("button, a, input, select, textarea")].filter((each) => {
  const labelled = each.labels?.length || each.getAttribute("aria-label") || each.getAttribute("placeholder");
  return each.checkVisibility() && !labelled && !each.textContent.trim();
}).map((each) => each.outerHTML)"""


def test_nothing_is_wider_than_a_phone(chromium: Any, server: Served, client: Any) -> None:
    bury(client, "narrow", refused(3))
    sent = client.queue("narrow").send({"long": "word" * 200}, group="g" * 100)
    with pages(chromium, server.url, size=PHONE) as console:
        for address in addresses_of("narrow", sent):
            console.open(address)
            console.page.locator("main h1, main .empty").first.wait_for(state="attached")
            width = console.page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"], address


def test_the_page_says_when_the_server_is_gone_and_goes_on_when_it_is_back(chromium: Any, tmp_path: Path) -> None:
    served = start(tmp_path / "data", "embedded")
    with pages(chromium, served.url) as console:
        console.open()
        console.page.locator(".pulse", has_text="Live").wait_for()
        console.expects_refusals = True
        served.close()
        console.page.locator(".pulse.bad", has_text="No answer").wait_for()
        console.errors.clear()


@pytest.mark.slow
def test_five_thousand_queues_are_a_few_rows_that_scroll(chromium: Any, tmp_path: Path) -> None:
    served = start(tmp_path / "data", "embedded", "--store", "memory:")
    try:
        with penstock.connect(served.url) as client:
            for place in range(5_000):
                client.create_queue(f"q-{place:04}")
        with pages(chromium, served.url) as console:
            console.open()
            console.sees("5,000 queues")
            rows = console.page.locator(".grid-body .grid-row")
            assert rows.count() < 60
            console.page.locator(".grid").evaluate("element => { element.scrollTop = element.scrollHeight; }")
            console.page.locator("[data-key='q-4999']").wait_for()
            assert rows.count() < 60
            console.page.get_by_label("Search queues").fill("q-2345")
            console.page.locator("[data-key='q-2345']").wait_for()
            wait_until(lambda: rows.count() == 1)
            # A look at all of them is shared, so it is asked for again only when there may be another one.
            wait_until(lambda: console.page.evaluate(_OVERVIEWS) >= 2)
    finally:
        served.close()


_OVERVIEWS = "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('/overview')).length"


@pytest.mark.parametrize("name", ["light", "dark", "phone"])
def test_pictures_of_the_pages_are_kept(chromium: Any, server: Served, client: Any, name: str) -> None:
    size = PHONE if name == "phone" else DESKTOP
    if "pictured" not in [each.queue_name for each in client.queues("pictured")]:
        bury(client, "pictured", [*refused(12), *["CardDeclined: card ending 4242"] * 4, "KeyError: 'sku'"])
        for place in range(40):
            client.queue("pictured").send({"order": place, "customer": "ada"}, priority=PRIORITIES[place % 5])
    sent = client.queue("pictured").peek(limit=1).messages[0].message_id
    with pages(chromium, server.url, is_dark=name == "dark", size=size) as console:
        for page, address, seen in (
            ("overview", "#/?find=p", "pictured"),
            ("queue", "#/queues/pictured", "By tier"),
            ("messages", "#/queues/pictured/messages", "looked at"),
            ("message", f"#/queues/pictured/messages/{sent}", "Story"),
            ("dead-letters", "#/queues/pictured/dead", "refused order"),
            ("settings", "#/queues/pictured/settings", "visibility_timeout"),
            ("streams", "#/streams", re.compile("opic")),
            ("keys", "#/keys", "There are no keys"),
        ):  # fmt: skip
            console.open(address)
            console.page.get_by_text(seen).first.wait_for()
            console.picture(f"{page}-{name}")
