"""One Chromium for all tests of a process, and a page of it for each, which fails its test for any error it reports.

The browser is started by the first test that wants it and ended with the process. A module of tests connects to it
anew: a connection that is open keeps an event loop of its own, which no asynchronous test could live beside.
"""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.tidy.source import ROOT
from tests.waiting import wait_until

PROGRAM = shutil.which("chromium")
# Where pictures of the pages are kept, for people and for CI.
PICTURES = ROOT / "console-screenshots"
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --remote-debugging-port=0"
)
DESKTOP = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}


@cache
def _address() -> str:
    """Start the browser, and return where it is controlled."""
    assert PROGRAM is not None
    folder = Path(tempfile.mkdtemp(prefix="chromium-"))
    process = subprocess.Popen(
        [PROGRAM, *_FLAGS.split(), f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def end() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    port = folder / "DevToolsActivePort"
    wait_until(lambda: port.exists() and "\n" in port.read_text())
    return f"http://127.0.0.1:{port.read_text().splitlines()[0]}"


class Pages:
    """The console of one server, in one browser window."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        # Refused requests are reported like errors; a test that causes some says so.
        self.expects_refusals = False
        page.on("pageerror", lambda error: self.errors.append(f"pageerror: {error}"))
        page.on("console", self._heard)
        page.on("dialog", self._asked)

    def _asked(self, dialog: Any) -> None:
        # No page of ours opens one: a script of a message has.
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _heard(self, said: Any) -> None:
        is_refusal = "Failed to load resource" in said.text
        if said.type in {"error", "warning"} and not (is_refusal and self.expects_refusals):
            self.errors.append(f"{said.type}: {said.text}")

    def open(self, address: str = "#/") -> Self:
        """Go to a page by its address, as a link from elsewhere would."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{address}")
        self.page.locator("main").wait_for()
        return self

    def action(self, name: str) -> Any:
        """Return the button of an action that is in sight, in a dialog if one is open."""
        return self.page.locator(f"button[data-action='{name}']:visible")

    def do(self, name: str) -> None:
        self.action(name).first.click()

    def submit(self) -> None:
        """Send the form of the dialog, and wait until it has closed."""
        self.page.locator("dialog button[type=submit]").click()
        self.page.locator("dialog").wait_for(state="detached")

    def sees(self, text: str, *, within: str = "body") -> None:
        """Wait until a text is to be seen."""
        self.page.locator(within).get_by_text(text).first.wait_for()

    def fill(self, name: str, value: str, *, within: str = "dialog") -> None:
        self.page.locator(f"{within} [name='{name}']").fill(value)

    def text(self, within: str = "main") -> str:
        found: str = self.page.locator(within).first.inner_text()
        return found

    def picture(self, name: str) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


@contextmanager
def driving() -> Iterator[Any]:
    """Connect to the browser. Inside of it there is an event loop in this thread, so no asynchronous test can run."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.connect_over_cdp(_address())
        yield browser
        browser.close()


@contextmanager
def pages(browser: Any, url: str, *, is_dark: bool = False, size: dict[str, int] | None = None) -> Iterator[Pages]:
    """Open a window with an empty profile; at the end nothing may have gone wrong in it."""
    context = browser.new_context(viewport=size or DESKTOP, color_scheme="dark" if is_dark else "light")
    try:
        context.set_default_timeout(60_000)
        found = Pages(context.new_page(), url)
        yield found
        assert found.errors == []
    finally:
        context.close()
