"""Three servers over a primary with a synchronous standby, for minutes, while all of it is killed and stopped.

Histories are kept outside the servers, and the checker looks at all of them: nothing acknowledged is lost, doubled,
reordered in its group or delivered after its ack. With `-s` the gaps between acknowledged sends are printed.
"""

import asyncio
import json
import random
import statistics
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.cluster.load import Load, under_load
from tests.cluster.pair import Pair
from tests.cluster.site import NAMES, Site

pytestmark = pytest.mark.real_time

_ROUNDS = 14
_KILLS = 50
_RESTARTS = 20
# Longer than a commit may wait for a standby (10 s), so that answers are bounded by that and not by our patience.
_AWAY_S = 20.0
# What a machine that is busy makes of ten seconds and a look each second.
_BOUND_S = 30.0


@pytest.fixture
def site() -> Iterator[Site]:
    with Pair() as pair, Site(pair) as site:
        yield site


async def _kill_a_server(site: Site, dice: random.Random) -> None:
    name = dice.choice(NAMES)
    await asyncio.to_thread(site.kill, name)
    await asyncio.to_thread(site.start, name)


async def _kill_two_servers(site: Site, dice: random.Random) -> None:
    names = dice.sample(NAMES, 2)
    for name in names:
        await asyncio.to_thread(site.kill, name)
    for name in names:
        await asyncio.to_thread(site.start, name)


async def _stop_a_server(site: Site, dice: random.Random) -> None:
    name = dice.choice(NAMES)
    await asyncio.to_thread(site.stop, name)
    await asyncio.to_thread(site.start, name)


async def _pause_a_server(site: Site, dice: random.Random) -> None:
    name = dice.choice(NAMES)
    site.pause(name)
    await asyncio.sleep(dice.uniform(1, _AWAY_S))  # Real time: for so long nothing of it runs.
    site.resume(name)


async def _restart_the_primary(site: Site, dice: random.Random) -> None:
    primary = site.pair.primary
    await asyncio.to_thread(dice.choice([primary.kill, primary.stop]))
    await asyncio.to_thread(primary.start)


async def _pause_the_standby(site: Site, dice: random.Random) -> None:
    await asyncio.to_thread(site.pair.pause_standby)
    await asyncio.sleep(dice.uniform(1, _AWAY_S))  # Real time: for so long it confirms nothing.
    await asyncio.to_thread(site.pair.resume_standby)


async def _fail_over(site: Site, _dice: random.Random) -> None:
    await asyncio.to_thread(site.pair.kill_primary)
    await asyncio.to_thread(site.pair.follow)


async def _fail_over_with_unconfirmed_commits(site: Site, dice: random.Random) -> None:
    """What the primary has committed and the standby has not is lost, and must not have been acknowledged."""
    await asyncio.to_thread(site.pair.pause_standby)
    await asyncio.sleep(dice.uniform(0.5, _AWAY_S))  # Real time: for so long commits gather that nobody confirms.
    await asyncio.to_thread(site.pair.primary.kill)
    await asyncio.to_thread(site.pair.resume_standby)
    await asyncio.to_thread(site.pair.standby.promote)
    await asyncio.to_thread(site.pair.follow)


Fault = Callable[[Site, random.Random], Awaitable[None]]
_FAULTS: list[Fault] = [
    _kill_a_server, _kill_two_servers, _stop_a_server, _pause_a_server, _restart_the_primary, _pause_the_standby,
    _fail_over, _fail_over_with_unconfirmed_commits,
]  # fmt: skip


async def test_whatever_is_lost_nothing_acknowledged_is(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    # Each of them at least once.
    faults = [*_FAULTS, *dice.choices(_FAULTS, k=_ROUNDS - len(_FAULTS))]
    dice.shuffle(faults)
    async with under_load(site) as load:
        await load.goes_on()
        for fault in faults:
            began_s = time.monotonic()
            await fault(site, dice)
            await load.goes_on()
            _say(f"{fault.__name__[1:]}: {load.longest_gap_s(began_s):.1f} s without an acknowledged send")
    _say(f"{load.history.acknowledged} acknowledged, {len(load.errors)} errors of clients: {load.errors[:3]}")
    assert load.history.acknowledged > _ROUNDS * 20


async def test_fifty_kills_of_servers(site: Site, seed: int) -> None:
    dice, gaps = random.Random(seed), []
    async with under_load(site, senders=2, receivers=1) as load:
        await load.goes_on()
        for _ in range(_KILLS):
            name, began_s = dice.choice(NAMES), time.monotonic()
            await asyncio.to_thread(site.kill, name)
            await load.goes_on()
            gaps.append(load.longest_gap_s(began_s))
            await asyncio.to_thread(site.start, name)
    _tell("kills", gaps, load)


async def test_twenty_rolling_restarts_without_an_error_of_a_client(site: Site) -> None:
    gaps: list[float] = []
    async with under_load(site, senders=2, receivers=1) as load:
        for nth in range(_RESTARTS):
            began_s = time.monotonic()
            await asyncio.to_thread(site.stop, NAMES[nth % 3])
            await asyncio.to_thread(site.start, NAMES[nth % 3])
            await load.goes_on()
            gaps.append(load.longest_gap_s(began_s))
    _tell("restarts", gaps, load)
    assert load.errors == []


async def test_without_a_standby_nothing_is_acknowledged_and_every_answer_comes_in_time(site: Site) -> None:
    async with under_load(site) as load:
        await load.goes_on()
        await asyncio.to_thread(site.pair.pause_standby)
        # What was confirmed before is answered by now.
        url = site.url.partition(",")[0] + "/api/queues/plain/messages"
        codes, took_s = set(), []
        began_s = time.monotonic()
        while time.monotonic() - began_s < _AWAY_S:
            asked_s = time.monotonic()
            codes.add(await asyncio.to_thread(_status_of_a_send, url, f"direct-{asked_s}"))
            took_s.append(time.monotonic() - asked_s)
        acknowledged = [each for each in load.answered_s if began_s + 1 < each]
        assert acknowledged == []
        await asyncio.to_thread(site.pair.resume_standby)
        await load.goes_on()
        for body in _DIRECT:
            load.history.sent(body, is_ok=False)
    assert codes <= {503, 504}
    assert max(took_s) < _BOUND_S


_DIRECT: list[bytes] = []


def _status_of_a_send(url: str, body: str) -> int:
    _DIRECT.append(body.encode())
    data = json.dumps({"messages": [{"data": body}]}).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=2 * _BOUND_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _tell(what: str, gaps: list[float], load: Load) -> None:
    told = " ".join(f"{gap:.2f}" for gap in gaps)
    _say(f"{len(gaps)} {what}, seconds without an acknowledged send: {told}")
    _say(f"median {statistics.median(gaps):.2f} s, most {max(gaps):.2f} s; {load.history.acknowledged} acknowledged")
