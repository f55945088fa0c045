"""The first minutes with a client: no server yet, and a queue with nothing in it."""

import logging
import threading

import pytest

import penstock
from penstock.settings import ServerSettings
from tests.ports import HeldPort
from tests.server.serving import server
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time


def test_who_finds_no_server_is_told_at_once_and_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    port, is_told = HeldPort(), threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_told.set()

    logger, handler = logging.getLogger("penstock.client"), Told()
    logger.addHandler(handler)
    made: list[str] = []

    def create() -> None:
        with penstock.connect(f"http://127.0.0.1:{port.number}", timeout_s=300) as client:
            made.append(client.create_queue("orders").queue_name)

    creating = threading.Thread(target=create)
    creating.start()
    try:
        assert is_told.wait(60)
        with server(ServerSettings(port=port.number, store="memory:", kafka=False)):
            creating.join(60)
            assert made == ["orders"]
    finally:
        creating.join(300)
        logger.removeHandler(handler)
        port.give_back()
    (record,) = [each for each in caplog.records if each.name == "penstock.client"]
    assert f"no connection to 127.0.0.1:{port.number}" in record.getMessage()
    assert "`penstock serve` starts one" in record.getMessage()


def test_an_empty_queue_ends_the_loop_that_receives_from_it() -> None:
    with penstock.connect("memory:") as client:
        client.create_queue("orders")
        orders = client.queue("orders")
        orders.send("teapot")
        found: list[str] = []
        while message := orders.receive():
            with message:
                found.append(message.text)
        assert found == ["teapot"]
        assert orders.describe().current_message_count == 0


async def test_an_empty_queue_ends_a_loop_that_awaits() -> None:
    async with penstock.connect("memory:") as client:
        await client.create_queue("orders")
        orders = client.queue("orders")
        await orders.send("lamp")
        found: list[str] = []
        while message := await orders.receive():
            async with message:
                found.append(message.text)
        assert found == ["lamp"]
        await let_others_run()
