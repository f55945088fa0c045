"""boto3 of the time before SQS spoke JSON, unchanged: the version itself, and not today's told to speak as it did."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import Running
from tests.sqs import older_sdk
from tests.sqs.aws_commands import environment

# Where `make` puts it, beside what the tests themselves are run with.
FOLDER = Path(sys.prefix) / "older-aws"


@pytest.mark.slow
def test_the_last_boto3_that_spoke_xml_works_unchanged(running: Running, tmp_path: Path) -> None:
    assert FOLDER.is_dir(), "run `make .venv/dev.stamp`, which installs requirements/older-aws.txt"
    done = subprocess.run(
        # Its warnings are of its own time.
        [sys.executable, "-W", "ignore", str(older_sdk.__file__), running.url],
        env=environment(tmp_path) | {"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "version": "1.28.80",
        "protocol": "query",
        "queues": True,
        "tags": {"team": "mail"},
        "body": '<a> & "b"',
        "attributes are the same": True,
        "digests are the same": True,
        "count": "1",
        "sent in a batch": ["one"],
        "failed in a batch": [["late", "InvalidParameterValue", True]],
        "deleted in a batch": [{"Id": "d"}],
        "visibility": "300",
        "left": "0",
        "nothing is there": True,
        "error": ["AWS.SimpleQueueService.NonExistentQueue", True],
    }
