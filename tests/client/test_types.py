"""What a type checker accepts of a program that uses the SDK, and what it refuses."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import penstock
from penstock.client import errors, settings
from penstock.contract.messages import PRIORITIES, STATES

_PROGRAM = """
from penstock.client import Client, Message, SyncClient, SyncMessage

async def asynchronous(client: Client) -> None:
    await client.create_queue("orders", max_deliveries=3, tiers={"mode": "strict"})
    queue = client.queue("orders")
    await queue.send(b"x", priority="HIGH")
    async for message in queue.consume():
        found: Message = message

def synchronous(client: SyncClient) -> None:
    client.create_queue("orders", max_deliveries=3, retry={"jitter": False})
    queue = client.queue("orders")
    queue.send(b"x", priority=1)
    for message in queue.consume():
        found: SyncMessage = message

async def wrong(client: Client, sync: SyncClient) -> None:
    await client.create_queue("orders", max_delivery=3)
    await client.queue("orders").send(b"x", priority="URGENT")
    sync.create_queue("orders", tiers={"mode": "loose"})
    sync.queue("orders").send(b"x", priority="URGENT")
    sync.queue("orders").consume().ack()
"""
_CONFIGURATION = """
[mypy]
strict = True
# `connect` knows the server, which is much to read and is not asked about here.
[mypy-penstock.connect]
follow_imports = skip
"""


@pytest.mark.slow
def test_a_type_checker_refuses_settings_and_priorities_that_do_not_exist(tmp_path: Path) -> None:
    program, configuration = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(_PROGRAM)
    configuration.write_text(_CONFIGURATION)
    command = [sys.executable, "-m", "mypy", f"--config-file={configuration}", "--no-error-summary", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    first = _PROGRAM.split("\n").index("async def wrong(client: Client, sync: SyncClient) -> None:") + 2

    refused = {int(line.split(":")[1]) for line in done.stdout.splitlines() if " error: " in line}
    assert refused == set(range(first, first + 5)), done.stdout


def test_every_error_and_public_class_is_exported() -> None:
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}

    assert own <= set(penstock.client.__all__)
    assert set(penstock.client.__all__) <= set(penstock.__all__)
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)


def test_the_words_of_priorities_and_states_are_those_of_the_api() -> None:
    assert get_args(settings.Priority) == (*PRIORITIES, *range(len(PRIORITIES)))
    assert get_args(settings.State) == STATES
