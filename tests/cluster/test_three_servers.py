"""Three servers over a primary with a synchronous standby: whichever is lost, clients with all URLs go on."""

import asyncio
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from tests.cluster.load import under_load
from tests.cluster.pair import Pair
from tests.cluster.site import NAMES, Site
from tests.waiting import wait_until

pytestmark = [pytest.mark.real_time, pytest.mark.slow]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Pair() as pair, Site(pair, "--require-standby") as site:
        yield site


def _cluster(site: Site, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["cluster", *arguments, "--store", site.store])


def test_every_server_and_the_standby_are_shown(site: Site) -> None:
    wait_until(lambda: _cluster(site, "nodes").output.count("serving") == 3)
    shown = _cluster(site, "status").output
    assert "a commit waits for 1 synchronous standby; fsync on" in shown
    assert all(name in shown for name in (*NAMES, "streaming", "sync"))
    assert (_cluster(site, "check").exit_code, _cluster(site, "check").output) == (0, "Nothing to mend.\n")


async def test_each_server_is_stopped_and_started_without_an_error_of_a_client(site: Site) -> None:
    async with under_load(site) as load:
        for name in NAMES:
            await load.goes_on()
            await asyncio.to_thread(site.stop, name)
            await asyncio.to_thread(site.start, name)
    assert load.errors == []


async def test_each_server_is_killed_and_nothing_is_lost_or_comes_twice(site: Site) -> None:
    async with under_load(site) as load:
        for name in NAMES:
            await asyncio.to_thread(site.kill, name)
            await load.goes_on()
            await asyncio.to_thread(site.start, name)
    assert load.history.acknowledged > 0


def test_a_server_is_drained_by_an_operator(site: Site) -> None:
    drained = _cluster(site, "drain", "two")
    assert (drained.exit_code, drained.output) == (0, "two has stopped.\n")
    assert site.server("two").wait() == 0
    site.kill("two")
    assert "stopped" in _cluster(site, "nodes").output
    with penstock.connect(site.url) as client:
        client.create_queue("afterwards")
    site.start("two")
    assert _cluster(site, "drain", "four").exit_code == 66


async def test_the_primary_is_killed_and_clients_go_on_at_the_standby(site: Site) -> None:
    async with under_load(site) as load:
        await load.goes_on()
        await asyncio.to_thread(site.pair.kill_primary)
        # Alone, it confirms nothing that the servers may acknowledge.
        found = await asyncio.to_thread(_cluster, site, "check")
        assert "commits wait for no synchronous standby" in found.output
        await asyncio.to_thread(site.pair.follow)
        await load.goes_on()
    found = await asyncio.to_thread(_cluster, site, "check")
    assert (found.exit_code, found.output) == (0, "Nothing to mend.\n")
