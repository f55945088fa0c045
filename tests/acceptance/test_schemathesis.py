"""Schemathesis reads the OpenAPI document of a real server and tries to catch it at saying something else.

It plays the examples, goes through the edges of every field, makes up good and bad
requests, and follows links from answer to request. Its own checks judge: no answer
may be a server's error, have a status, a content type, a header or a shape that the
document does not name; good data is accepted and bad data refused.

`SCHEMATHESIS_EXAMPLES=500` looks for longer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.http_server import RunningServer, running_server
from tests.acceptance.processes import ROOT
from tests.acceptance.raw_http import ask, request
from tests.acceptance.schemathesis_hooks import KNOWN_MESSAGES, KNOWN_QUEUE, known_message_id

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "20"))
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")


def _furnish(server: RunningServer) -> None:
    """Make a queue with messages, some of them received, so that there is something to ask for."""
    settings = json.dumps({"queue_name": KNOWN_QUEUE, "visibility_timeout": 600}).encode()
    assert ask(server.port, request("POST", "/api/queues", settings)).json["queue_id"] == "q_1"
    drafts = json.dumps({"messages": [{"data": {"number": number}} for number in range(KNOWN_MESSAGES)]}).encode()
    sent = ask(server.port, request("POST", f"/api/queues/{KNOWN_QUEUE}/messages", drafts)).json["messages"]
    assert sent[7]["message_id"] == known_message_id(7)
    ask(server.port, request("GET", f"/api/queues/{KNOWN_QUEUE}/messages?limit={KNOWN_MESSAGES // 2}"))


@pytest.mark.slow
def test_the_server_does_what_its_open_api_document_says(tmp_path: Path) -> None:
    with running_server(tmp_path / "server", may_note="Invalid HTTP request received.") as server:
        _furnish(server)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(ROOT / "tests" / "acceptance" / "schemathesis.toml")),
                *("run", f"{server.address}/openapi.json"),
                *("--seed", SEED, "--max-examples", str(EXAMPLES)),
                *("--generation-database", "none", "--no-color"),
            ],
            # It leaves files of its own where it is run.
            cwd=tmp_path,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.acceptance.schemathesis_hooks",
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1_000,
            check=False,
        )

    assert done.returncode == 0, done.stdout
    assert "selected / " in done.stdout
    # A phase that was skipped has tried nothing.
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in done.stdout, done.stdout
