"""A server with keys: logging in, what a key allows, keys made and taken away, and who did what."""

import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import penstock
from tests.cli.servers import Served
from tests.console.chromium import Pages, pages
from tests.console.conftest import start
from tests.postgres.servers import NoPostgres, shared_server
from tests.waiting import wait_until


class Locked(NamedTuple):
    served: Served
    admin: str
    where: list[str]

    def key(self, name: str, role: str, queue: str = "*") -> str:
        """Make a key, which the server knows on return: it looks for new ones every second."""
        key = _create(name, role, queue, self.where)
        wait_until(lambda: _is_known(self.served.url, key))
        return key


def _is_known(url: str, key: str) -> bool:
    try:
        with urlopen(Request(f"{url}/api/queues", headers={"authorization": f"Bearer {key}"}), timeout=60):
            return True
    except HTTPError as error:
        return error.code != HTTPStatus.UNAUTHORIZED


def _create(name: str, role: str, queue: str, where: list[str]) -> str:
    return command("key", "create", "--name", name, "--role", role, "--queue", queue, *where).splitlines()[0]


def command(*arguments: str) -> str:
    """Run a command in a process of its own: the browser has an event loop in this one."""
    done = subprocess.run([sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A server that has a key already."""
    folder = tmp_path_factory.mktemp("locked") / "data"
    folder.mkdir()
    where = ["--data", str(folder)]
    if request.param == "postgres":
        try:
            where = ["--store", shared_server().new_database()]
        except NoPostgres as error:
            pytest.skip(str(error))
    admin = _create("ops", "admin", "*", where)
    served = Served(folder, "--no-kafka", *(where if request.param == "postgres" else ()))
    with penstock.connect(served.url, key=admin) as client:
        client.create_queue("mine-1")
        client.create_queue("other-1")
    yield Locked(served, admin, where)
    served.close()


@pytest.fixture
def browser(chromium: Any, locked: Locked) -> Iterator[Pages]:
    with pages(chromium, locked.served.url) as found:
        # Before a login every page is refused.
        found.expects_refusals = True
        yield found


def log_in(console: Pages, key: str, address: str = "#/") -> None:
    console.open(address)
    console.page.get_by_label("API key").fill(key)
    console.page.get_by_role("button", name="Log in").click()
    console.page.locator("header").wait_for()


def test_a_wrong_key_is_refused_with_what_to_do(browser: Pages) -> None:
    browser.open("#/queues/mine-1")
    browser.page.get_by_label("API key").fill("pk_000000000000_" + "x" * 43)
    browser.page.get_by_role("button", name="Log in").click()

    browser.sees("A key is needed")


def test_a_login_is_a_cookie_that_scripts_cannot_read(browser: Pages, locked: Locked) -> None:
    log_in(browser, locked.admin, "#/queues/mine-1")
    browser.sees("mine-1", within="h1")

    (cookie,) = browser.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert locked.admin not in cookie["value"]
    assert browser.page.evaluate("document.cookie") == ""
    browser.page.reload()
    browser.sees("mine-1", within="h1")
    browser.page.get_by_role("button", name="Log out").click()
    browser.page.get_by_label("API key").wait_for()
    assert browser.page.context.cookies() == []


def test_a_key_sees_what_it_may_and_is_told_why_it_may_not_do_the_rest(browser: Pages, locked: Locked) -> None:
    log_in(browser, locked.key("reader", "read", "mine-*"))
    browser.page.locator("[data-key='mine-1']").wait_for()
    assert browser.page.locator("[data-key='other-1']").count() == 0

    browser.open("#/queues/mine-1")
    pause = browser.action("Pause")
    assert pause.get_attribute("aria-disabled") == "true"
    pause.press("Enter")
    browser.sees("has no role admin on mine-1")
    browser.open("#/queues/mine-1/settings")
    assert browser.page.locator("main [name=visibility_timeout]").is_disabled()
    browser.open("#/queues/other-1")
    browser.sees("The key may not do this")
    browser.open("#/keys")
    browser.sees("has no role admin on all queues")
    browser.open("#/audit")
    browser.sees("The key may not do this")


def test_keys_are_made_rotated_and_revoked(browser: Pages, locked: Locked) -> None:
    log_in(browser, locked.admin, "#/keys")
    browser.do("New key")
    browser.fill("name", "shop")
    browser.page.locator("dialog [name=role]").select_option("write")
    browser.fill("queue", "mine-*, other-1")
    browser.page.locator("dialog button[type=submit]").click()
    made = browser.page.locator("pre.secret")
    made.wait_for()
    first = made.inner_text().strip()
    with penstock.connect(locked.served.url, key=first) as client:
        client.queue("mine-1").send("x")
    browser.page.get_by_role("button", name="Close", exact=True).click()
    row = browser.page.locator("tr", has_text="shop")
    assert "write mine-*" in row.inner_text()
    row.locator("[data-action='Rotate …']").click()
    browser.page.locator("dialog [name=keep]").select_option("0")
    browser.page.locator("dialog button[type=submit]").click()
    browser.page.locator("dialog", has_text="The new secret").wait_for()
    second = browser.page.locator("pre.secret").inner_text().strip()
    assert second != first
    browser.page.get_by_role("button", name="Close", exact=True).click()
    browser.page.locator("tr", has_text="shop").locator("[data-action='Revoke …']").click()
    browser.fill("typed", "shop")
    browser.submit()
    browser.sees("The key of shop is revoked")

    with (
        penstock.connect(locked.served.url, key=second) as client,
        pytest.raises(penstock.PenstockError, match="revoked"),
    ):
        client.queue("mine-1").send("x")
    browser.open("#/audit?action=key")
    for action in ("key.create", "key.rotate", "key.revoke"):
        browser.sees(action)
    assert first not in browser.text()


def test_a_session_ends_with_its_key(browser: Pages, locked: Locked) -> None:
    key = locked.key("brief", "read")
    log_in(browser, key)
    browser.page.locator("[data-key='mine-1']").wait_for()
    command("key", "revoke", key.split("_")[1], *locked.where)

    # The server looks at its keys every second, and so does the page.
    browser.page.get_by_label("API key").wait_for()
    browser.sees("The session has ended")


def test_the_first_key_closes_the_server_and_logs_its_maker_in(chromium: Any, tmp_path: Path) -> None:
    served = start(tmp_path / "data", "embedded")
    try:
        with pages(chromium, served.url) as console:
            console.open("#/keys")
            console.sees("There are no keys")
            console.do("New key")
            console.sees("This is the first key")
            console.fill("name", "me")
            console.page.locator("dialog button[type=submit]").click()
            console.page.locator("pre.secret").wait_for()
            console.page.get_by_role("button", name="Close", exact=True).click()
            console.sees("admin *")
            with penstock.connect(served.url) as stranger:
                wait_until(lambda: _is_refused(stranger))
    finally:
        served.close()


def _is_refused(client: Any) -> bool:
    try:
        list(client.queues())
    except penstock.PenstockError:
        return True
    return False
