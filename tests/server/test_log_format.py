"""Logs as JSON: one object on each line, with the fields of an event, and of others what they say."""

import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

from penstock.runtime.system import JsonLines
from tests.cli.servers import Served


def test_every_line_of_a_log_in_json_is_an_object_with_its_time_and_fields(tmp_path: Path) -> None:
    with Served(tmp_path / "data", "--no-kafka") as server:
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.errors().splitlines()]

    started = next(line for line in lines if line["event"] == "server.started")
    assert (started["level"], started["logger"], started["address"]) == ("info", "penstock", server.url)
    assert started["data"] == str(tmp_path / "data")
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert lines[-1]["event"] == "server.stopped"


def test_a_log_on_a_terminal_has_lines_for_people(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--no-kafka", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs) as server:
        os.close(theirs)
        with os.fdopen(ours, encoding="utf-8", errors="replace") as terminal:
            line = next(line for line in terminal if "server.started" in line)
            server.terminate()
            assert server.wait(60) == 0

    assert "INFO server.started" in line
    assert "{" not in line


def test_what_others_log_is_an_object_too_with_its_sentence_and_traceback() -> None:
    try:
        int("two\nlines")
    except ValueError:
        record = logging.LogRecord("asyncio", logging.ERROR, "", 1, "it %s", ("broke",), sys.exc_info())
    (line,) = JsonLines().format(record).splitlines()

    said = json.loads(line)
    assert (said["logger"], said["level"], said["message"]) == ("asyncio", "error", "it broke")
    assert "ValueError: invalid literal" in said["traceback"]
