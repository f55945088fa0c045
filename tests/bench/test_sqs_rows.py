"""The rows of SQS: both servers take what boto3 wrote, also when it is replayed."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bench import moto_peer, processes, sqs, sqs_asking, sqs_recorded, sqs_requests
from bench.processes import Server
from bench.sqs_requests import BATCH, QUEUE, Recorded
from bench.traffic import Traffic, WindowTooShort

SHORT_S = 0.5


@pytest.mark.slow
def test_recorded_requests_send_receive_and_delete(tmp_path: Path) -> None:
    with processes.penstock(tmp_path, "--sqs") as server:
        requests = sqs_requests.record(server, QUEUE)
        found = [_asked(server, requests)]
        if sqs_recorded.has_wrk():
            found.append(asyncio.run(sqs_recorded.by_wrk(server, requests, connections=2, seconds=1)))
    assert all(each.messages >= BATCH for each in found)
    assert [*found[0].cpu] == ["server", "generator"]
    assert not Path(f"/proc/{server.pid}").exists()


def _asked(server: Server, requests: dict[str, Recorded]) -> Traffic:
    """What was asked in a window in which a batch went all the way: a busy machine may do nothing for seconds."""

    def ask(seconds: float) -> Traffic:
        return asyncio.run(sqs_asking.ask(server, requests, connections=2, seconds=seconds))

    for seconds in (SHORT_S, 10 * SHORT_S):
        with suppress(WindowTooShort):
            found = ask(seconds)
            if found.messages >= BATCH:
                return found
    return ask(100 * SHORT_S)


@pytest.mark.slow
@pytest.mark.skipif(not moto_peer.is_installed(), reason="moto is not installed")
def test_the_peer_of_sqs_serves_the_turns_of_one_client(tmp_path: Path) -> None:
    with moto_peer.server(tmp_path) as server:
        client = sqs_requests.client(server)
        found = sqs.turns(client, server, SHORT_S)
        client.close()
    assert found.messages >= BATCH
    assert not Path(f"/proc/{server.pid}").exists()


def test_a_request_is_the_same_after_it_was_written_as_lua() -> None:
    request = Recorded("/", {"x": 'a "b" \\'}, '{"c": ["]]"]}')
    headers = '{[ [==[x]==] ] = [==[a "b" \\]==]}'
    assert sqs_recorded.as_lua(request) == f'{{path = [==[/]==], headers = {headers}, body = [==[{{"c": ["]]"]}}]==]}}'
