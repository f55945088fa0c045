"""Commands that stay until told: `penstock top` on a terminal, `receive --follow` and `send --file` in pipes."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from tests.cli.servers import SECONDS_MAX, Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "data") as server:
        yield server


def run(served: Served, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], env={"PENSTOCK_URL": served.url, "PENSTOCK_KEY": ""})
    assert done.exit_code == 0, done.output
    return done.stdout


def started(
    served: Served, *arguments: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PENSTOCK_URL": served.url, "TERM": "xterm", "COLUMNS": "200", "LINES": "30"}
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.Popen(command, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)


@pytest.mark.parametrize(("keys", "code"), [(b"q", 0), (b"\x03", 130)])
def test_a_live_view_ends_when_told_by_a_key(served: Served, keys: bytes, code: int) -> None:
    run(served, "queue", "create", "orders")
    ours, theirs = pty.openpty()
    process = started(served, "top", "--interval", "60", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while b"orders" not in seen:
            seen += os.read(ours, 65_536)
        if keys == b"q":
            os.write(ours, keys)
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == code
        # The screen that was there before is there again.
        while b"\x1b[?1049l" not in seen:
            seen += os.read(ours, 65_536)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_live_view_stays_while_the_server_is_away(served: Served) -> None:
    run(served, "queue", "create", "orders")
    ours, theirs = pty.openpty()
    process = started(served, "top", "--interval", "0.1", "--timeout", "0", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while b"orders" not in seen:
            seen += os.read(ours, 65_536)
        served.stop()
        while b"No answer since" not in seen:
            seen += os.read(ours, 65_536)
        os.write(ours, b"q")
        while b"\x1b[?1049l" not in seen:
            seen += os.read(ours, 65_536)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_looks_are_lines_for_programs(served: Served) -> None:
    run(served, "queue", "create", "orders")
    with started(served, "top", "--interval", "0.1", "--json", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
    assert first["queues"][0]["rates"]["sent"] is None
    assert second["queues"][0]["rates"]["sent"] == 0


def test_following_prints_what_comes_and_leaves_nothing_leased(served: Served) -> None:
    run(served, "queue", "create", "orders")
    with started(served, "receive", "orders", "--follow", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for body in ("one", "two"):
            run(served, "send", "orders", body)
            assert process.stdout.readline() == f"{body}\n".encode()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
    view = json.loads(run(served, "queue", "show", "orders", "--json"))
    assert view["totals"]["acked"] == 2
    assert view["current_message_count"] == 0


def test_an_interrupted_file_says_with_which_line_to_go_on(served: Served) -> None:
    run(served, "queue", "create", "orders")
    words = ("send", "orders", "--file", "-", "--raw", "--json")
    with started(served, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"line\n" * 1_500)
        process.stdin.flush()
        while json.loads(run(served, "queue", "show", "orders", "--json"))["totals"]["sent"] < 1_000:
            pass
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130
    report = json.loads(out)
    # What was on its way when it was interrupted may have been sent, and then it is said.
    assert report["sent"] == 1_000 or report["is_unsure"]
    assert b"--from-line" in errors
    assert report["next_line"] == report["sent"] + 1
