"""Commands of aws-cli, one after the other in one process: most of a command is its start, and a life has many.

`python -m tests.sqs.aws_commands` reads commands from its input, one in each line, as JSON. It runs what the
script `aws` runs, prints what that prints, and then a line that says how the command ended.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ENDED = "aws has ended: "


class CommandFailed(Exception):
    """A command has ended with an error, which is what it says."""


class Aws:
    """A process that runs commands of aws-cli as they come."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self._process = process
        self._url = url

    def sqs(self, command: str, /, **options: Any) -> Any:
        """Run a command, and return what it prints as JSON; nothing if it prints nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments(self._url, command, options)) + "\n")
        self._process.stdin.flush()
        said = ""
        for line in self._process.stdout:
            if line.startswith(ENDED):
                if line != f"{ENDED}0\n":
                    raise CommandFailed(said.strip())
                return json.loads(said) if said.strip() else None
            said += line
        raise CommandFailed(f"the process has ended: {said}")


def arguments(url: str, command: str, options: dict[str, Any]) -> list[str]:
    """Return the words of a command to the server at ``url``; options are in our way of writing.

    >>> arguments("http://here", "tag-queue", {"queue_url": "q", "tags": {"a": "b"}})
    ['--endpoint-url', 'http://here', 'sqs', 'tag-queue', '--queue-url', 'q', '--tags', '{"a": "b"}']
    """
    # Version 1 of the command does not read it from the environment.
    words = ["--endpoint-url", url, "sqs", command]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value if isinstance(value, str) else json.dumps(value)]
    return words


def environment(home: Path) -> dict[str, str]:
    """Return all that a command sees: nothing of the user's own configuration."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "AWS_CONFIG_FILE": str(home / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "credentials"),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_DEFAULT_OUTPUT": "json",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }


@contextmanager
def aws(url: str, home: Path) -> Iterator[Aws]:
    """Lend a process that runs commands against a server."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.sqs.aws_commands"],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        # Its input ends with the block, and so does it.
        yield Aws(process, url)


def _run_all() -> None:
    # Only this process is one of aws-cli.
    driver: Any = import_module("awscli.clidriver")

    for line in sys.stdin:
        sys.argv = ["aws", *json.loads(line)]
        try:
            code = driver.main()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.write(f"{ENDED}{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _run_all()
