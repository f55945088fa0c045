"""What the pages of the console ask: logging in, one look for all, rights, groups of dead letters, offsets, history."""

import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.api.console.app import Console
from penstock.api.console.monitor import EVERY_MS, POINTS, WIDTH, Monitor, Trends
from penstock.api.rest.app import RestApplication
from penstock.api.rest.request import Service
from penstock.broker.access import Access, Role
from penstock.broker.api_keys import Change, Keyring
from penstock.broker.sessions import AGE_MS, IDLE_MS, SESSIONS_MAX, Sessions
from penstock.contract.error_signatures import signature
from tests.api.asgi import REQUEST_BYTES_MAX, Api, Response, bury, send
from tests.api.holders import access_of, key, shown
from tests.broker.brokers import open_broker

OWN = {"x-penstock-console": "1", "host": "queues.example.com"}
OVERVIEW = "/api/console/overview"
SESSION = "/api/console/session"


class Book:
    """Keys in memory, in the place of a file."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.keyring: Keyring | None = None

    async def read(self) -> Keyring | None:
        return self.keyring

    async def change(self, change: Callable[[Keyring | None], Change]) -> Change:
        done = change(self.keyring)
        self.keyring = done.keyring
        return done


@asynccontextmanager
async def open_console(access: Access | None = None) -> AsyncIterator[Api]:
    """Open a server with a console and one queue, `orders`."""
    async with open_broker() as broker:
        access = access or Access.open()
        sessions = Sessions(access, broker.queues.now_ms)
        service = Service(broker.queues, access, REQUEST_BYTES_MAX, sessions=sessions)
        monitor = Monitor(broker.queues, None, lambda: {"server": {}}, lambda: broker.queues.now_ms() / 1_000)
        console = Console(service, monitor, Book(access), is_secure=True)
        application = RestApplication(service, broker.log_events, operations=console.operations())
        api = Api(application, broker.queues, broker.log_events)
        owner = Api(
            RestApplication(replace(service, access=Access.open()), broker.log_events), broker.queues, broker.log_events
        )
        await owner.post("/api/queues", {"queue_name": "orders"})
        yield api
        assert "rest.failed" not in broker.log_events.names(), broker.log_events.events


def unpacked(answer: Response) -> Any:
    return msgspec.json.decode(gzip.decompress(answer.body))


async def log_in(api: Api, name: str) -> dict[str, str]:
    """Return the headers of a browser that has logged in."""
    answer = await api.post(SESSION, None, headers=OWN | shown(name))
    assert answer.status == 201, answer
    cookie = answer.headers["set-cookie"]
    assert cookie.endswith("; Path=/; Max-Age=28800; HttpOnly; SameSite=Strict; Secure")
    return OWN | {"cookie": cookie.partition(";")[0]}


async def test_a_login_stands_for_its_key_for_every_request_of_the_page() -> None:
    async with open_console(access_of(ops=(Role.ADMIN, "*"))) as api:
        browser = await log_in(api, "ops")

        assert (await api.get("/api/queues", headers=browser)).status == 200
        assert (await api.post("/api/queues/orders/purge", None, headers=browser)).status == 200
        view = (await api.get(SESSION, headers=browser)).value
        assert (view["name"], view["has_session"], view["is_open"]) == ("ops", True, False)
        log = await api.get("/api/audit-log", headers=browser)
        newest = log["entries"][0]
        assert (newest["action"], newest["actor"], newest["via"]) == ("queue.purge", "ops", "console")


@pytest.mark.parametrize(
    "change",
    [
        {"x-penstock-console": None},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"cookie": "penstock_console=guessed"},
    ],
)
async def test_a_page_of_another_site_cannot_use_a_login(change: dict[str, str | None]) -> None:
    async with open_console(access_of(ops=(Role.ADMIN, "*"))) as api:
        browser = await log_in(api, "ops")
        headers = {name: value for name, value in {**browser, **change}.items() if value is not None}

        assert (await api.post("/api/queues/orders/purge", None, headers=headers)).status == 401
        assert (await api.post("/api/queues/orders/purge", None, headers=browser)).status == 200
        login = {name: value for name, value in headers.items() if name != "cookie"} | shown("ops")
        if "cookie" not in change:
            assert (await api.post(SESSION, None, headers=login)).is_problem(
                403, "cross_site", field="X-Penstock-Console"
            )


async def test_a_login_ends_when_it_is_told_to_and_with_its_key() -> None:
    access = access_of(ops=(Role.ADMIN, "*"), temp=(Role.READ, "*"))
    async with open_console(access) as api:
        ops, temp = await log_in(api, "ops"), await log_in(api, "temp")
        ended = await api.call("DELETE", SESSION, headers=ops)
        assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (204, True)
        assert (await api.get("/api/queues", headers=ops)).status == 401

        assert (await api.get("/api/queues", headers=temp)).status == 200
        access.replace([key("ops")])
        assert (await api.get("/api/queues", headers=temp)).status == 401


async def test_a_login_ends_by_itself_when_it_is_old_or_idle() -> None:
    now_ms = 0
    access = access_of(ops=(Role.ADMIN, "*"))
    sessions = Sessions(access, lambda: now_ms)
    caller = access.authenticate(shown("ops")["authorization"])

    def is_good(token: str) -> bool:
        return (
            sessions.caller_of({b"x-penstock-console": b"1", b"cookie": f"penstock_console={token}".encode()}) is caller
        )

    used, idle = sessions.begin(caller), sessions.begin(caller)
    for _ in range(AGE_MS // (IDLE_MS // 2) - 1):
        now_ms += IDLE_MS // 2
        assert is_good(used)
    assert not is_good(idle)
    now_ms += IDLE_MS // 2
    assert not is_good(used)


async def test_logins_take_a_bounded_amount_of_memory() -> None:
    access = access_of(ops=(Role.ADMIN, "*"))
    sessions = Sessions(access, lambda: 0)
    caller = access.authenticate(shown("ops")["authorization"])

    tokens = [sessions.begin(caller) for _ in range(SESSIONS_MAX + 1)]

    found = [
        sessions.caller_of({b"x-penstock-console": b"1", b"cookie": f"penstock_console={each}".encode()})
        for each in tokens
    ]
    assert found == [None, *[caller] * SESSIONS_MAX]


async def test_consoles_that_are_open_together_share_one_look() -> None:
    async with open_console() as api:
        await send(api, "a", "b")
        first = await api.get(OVERVIEW)
        again = await api.get(OVERVIEW)
        same = await api.get(OVERVIEW, headers={"if-none-match": first.headers["etag"]})

        assert (first.headers["content-encoding"], again.body) == ("gzip", first.body)
        assert (same.status, same.body) == (304, b"")
        (row,) = unpacked(first)["queues"]
        assert (row["name"], row["ready"], row["in_flight"]) == ("orders", [0, 0, 2, 0, 0], 0)


async def test_an_overview_shows_what_the_key_may_see() -> None:
    keys = access_of(ops=(Role.ADMIN, "*"), mine=(Role.READ, "mine-*"), meter=(Role.METRICS, "*"))
    async with open_console(keys) as api:
        await api.post("/api/queues", {"queue_name": "mine-1"}, headers=shown("ops"))
        everything, own, nothing = [
            unpacked(await api.get(OVERVIEW, headers=shown(name))) for name in ("ops", "mine", "meter")
        ]

    assert [row["name"] for row in everything["queues"]] == ["mine-1", "orders"]
    assert [row["name"] for row in own["queues"]] == ["mine-1"]
    assert nothing["queues"] == []
    assert ("server" in everything, "server" in own, "server" in nothing) == (True, False, False)


_READ = ("/messages", "/messages/1-1", "/messages/1-1/body", "/dead-letters", "/history")


@pytest.mark.parametrize("path", _READ)
async def test_what_shows_messages_needs_the_role_read(path: str) -> None:
    keys = access_of(sender=(Role.SEND, "*"), elsewhere=(Role.ADMIN, "other-*"), reader=(Role.READ, "orders"))
    async with open_console(keys) as api:
        place = f"/api/console/queues/orders{path}"
        assert (await api.get(place, headers=shown("sender"))).status == 403
        assert (await api.get(place, headers=shown("elsewhere"))).status == 403
        assert (await api.get(place)).status == 401
        assert (await api.get(place, headers=shown("reader"))).status in {200, 404}


async def test_dead_letters_are_grouped_and_a_group_is_sent_back() -> None:
    async with open_console() as api:
        ids = await bury(api, "a", "b", "c")
        groups = await api.get("/api/console/queues/orders.dead/dead-letters")
        (group,) = groups["groups"]
        assert (group["count"], group["signature"], group["origins"], groups["is_all"]) == (
            3,
            "boom",
            {"orders": 3},
            True,
        )
        assert (sum(group["trend"]), group["literal"]) == (3, "boom")

        path = "/api/console/queues/orders.dead/dead-letters/redrive"
        dry = await api.post(path, {"group": group["id"], "dry_run": True})
        assert (dry.status, dry["moved_total"], dry["moved"]) == (200, 3, {"orders": 3})
        begun = await api.post(path, {"group": group["id"], "limit": 2})
        assert begun.status == 202
        while (await api.get(begun.headers["location"]))["state"] == "running":
            await api.get("/api/queues")
        assert (await api.get("/api/queues/orders.dead"))["ready"] == 1
        unknown = await api.post(path, {"group": "0" * 16})
        assert unknown.is_problem(404, "message_not_found", field="group")
        assert len(ids) == 3


async def test_only_who_administers_everything_may_look_at_keys_and_make_them() -> None:
    keys = access_of(ops=(Role.ADMIN, "*"), near=(Role.ADMIN, "o*"), writer=(Role.WRITE, "*"))
    wanted = {"name": "new", "grants": [{"role": "send"}]}
    async with open_console(keys) as api:
        for name in ("near", "writer"):
            assert (await api.get("/api/console/keys", headers=shown(name))).status == 403
            assert (await api.post("/api/console/keys", wanted, headers=shown(name))).status == 403
            assert (await api.call("DELETE", "/api/console/keys/x", headers=shown(name))).status == 403
        made = await api.post("/api/console/keys", wanted, headers=shown("ops"))
        listed = await api.get("/api/console/keys", headers=shown("ops"))

        assert made["key"].startswith("pk_")
        assert [each["name"] for each in listed["keys"]] == ["new"]
        assert made["key"].encode() not in listed.body
        bad = await api.post(
            "/api/console/keys", wanted | {"grants": [{"role": "send", "queue": "no space"}]}, headers=shown("ops")
        )
        assert bad.status == 400
        gone = await api.call("DELETE", "/api/console/keys/000000000000", headers=shown("ops"))
        assert gone.is_problem(404, "key_not_found")


async def test_trends_keep_so_many_points_and_forget_what_is_idle() -> None:
    trends, idle = Trends(), [0.0] * WIDTH
    for place in range(POINTS + 10):
        busy = [float(place), *[0.0] * (WIDTH - 1)]
        trends.add(place * EVERY_MS, {"busy": busy, "idle": idle, "once": busy if place == 12 else idle})

    times, points = trends.of("busy")
    assert (len(times), len(points), points[0][0], points[-1][0]) == (POINTS, POINTS, 10.0, POINTS + 9.0)
    assert trends.of("idle")[1] == []
    assert trends.of("once")[1][2][0] == 12.0
    for place in range(POINTS):
        trends.add((POINTS + 10 + place) * EVERY_MS, {"busy": idle, "once": idle})
    assert trends.of("once")[1] == []


def test_errors_have_the_words_of_their_cause() -> None:
    assert (
        signature('Traceback:\n  File "/srv/a.py", line 3, in f\n    x()\nValueError: bad 77')
        == "ValueError: bad <n> | a.py:f"
    )
    assert signature("KeyError: 'sku'") == "KeyError: ‹sku›"
    assert signature("HTTP 503 from https://a.example/x?y=1 after 12.5 s") == "HTTP 503 from <url> after <n>"
