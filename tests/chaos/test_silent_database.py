"""A whole server whose database falls silent: it says that it is not ready, answers what it is asked, and stops."""

import asyncio
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import penstock
from tests.cli.servers import Served
from tests.postgres.falling_silent import relayed
from tests.postgres.servers import shared_server
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

# Five seconds until it is asked after and five for a connection, for each of those who wait one after the other: from 6
# to 16 seconds were seen. TCP alone would take a quarter of an hour.
_SECONDS_MAX = 40.0
SEND, MESSAGES = "/api/queues/orders/messages", b'{"messages": [{"data": "a"}]}'
JSON = {"content-type": "application/json"}


async def test_a_server_whose_database_falls_silent_says_so_and_comes_back(tmp_path: Path) -> None:
    async with relayed(shared_server().new_database(), connect_s=2) as (relay, url):
        served = await asyncio.to_thread(Served, tmp_path / "a", "--store", url, seconds_max=120)
        with served:
            async with penstock.connect(served.url) as client:
                await client.create_queue("orders")
                assert await _is_ready(served)
                relay.fall_silent()
                began = time.monotonic()
                assert await _status_of_a_send(served) == 503
                assert time.monotonic() - began < _SECONDS_MAX
                await _until_ready(served, is_ready=False)
                relay.speak()
                await _until_ready(served, is_ready=True)
                await client.queue("orders").send("after")


@pytest.mark.parametrize("has_request", [False, True])
async def test_a_server_stops_while_its_database_is_silent(tmp_path: Path, has_request: bool) -> None:
    async with relayed(shared_server().new_database(), connect_s=2) as (relay, url):
        # Longer than the server takes to find out, so that it answers what was asked before it stops.
        options = ("--store", url, "--stop-timeout-s", "60")
        served = await asyncio.to_thread(Served, tmp_path / "a", *options, seconds_max=120)
        with served:
            async with penstock.connect(served.url) as client:
                await client.create_queue("orders")
            relay.fall_silent()
            sending = HTTPConnection(urlsplit(served.url).netloc, timeout=60)
            if has_request:
                sending.request("POST", SEND, MESSAGES, JSON)
                # A server that answers this has read what was sent before.
                assert await asyncio.to_thread(_status, urllib.request.Request(f"{served.url}/health/live")) == 200
            # By the request, or by what the server does by itself.
            await relay.was_asked.wait()
            began = time.monotonic()
            assert await asyncio.to_thread(served.stop) == 0
            assert time.monotonic() - began < _SECONDS_MAX
            if has_request:
                assert sending.getresponse().status == 503
            sending.close()


async def _status_of_a_send(served: Served) -> int:
    request = urllib.request.Request(f"{served.url}{SEND}", MESSAGES, JSON)
    return await asyncio.to_thread(_status, request)


async def _is_ready(served: Served) -> bool:
    return await asyncio.to_thread(_status, urllib.request.Request(f"{served.url}/health/ready")) == 200


async def _until_ready(served: Served, *, is_ready: bool) -> None:
    async def is_so() -> bool:
        return await _is_ready(served) == is_ready

    await eventually(is_so, within_s=2 * _SECONDS_MAX)


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
