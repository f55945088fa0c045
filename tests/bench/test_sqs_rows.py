"""The rows of SQS: both servers take what boto3 wrote, whoever sends it again."""

import asyncio
from pathlib import Path

import pytest

from bench import moto_peer, processes, sqs, sqs_asking, sqs_recorded, sqs_requests
from bench.sqs_requests import BATCH, QUEUE, Recorded

SHORT_S = 2.0


@pytest.mark.slow
def test_recorded_requests_send_receive_and_delete(tmp_path: Path) -> None:
    with processes.penstock(tmp_path, "--sqs") as server:
        requests = sqs_requests.record(server, QUEUE)
        found = [asyncio.run(sqs_asking.ask(server, requests, connections=2, seconds=SHORT_S))]
        if sqs_recorded.has_wrk():
            found.append(asyncio.run(sqs_recorded.by_wrk(server, requests, connections=2, seconds=1)))
    assert all(each.messages >= BATCH for each in found)
    assert [*found[0].cpu] == ["server", "generator"]
    assert not Path(f"/proc/{server.pid}").exists()


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
