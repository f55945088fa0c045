"""The command line where the extra `penstock[spark]` is not installed: it says so, and everything else works."""

import subprocess
import sys

# A module that is None in this table cannot be imported, as if it were not installed.
_BLOCKED = """
import sys

for name in ("pyspark", "pandas", "pyarrow", "numpy"):
    sys.modules[name] = None
"""

_EVERY_HELP = """
import typer
from typer.testing import CliRunner

from penstock.cli.pipeline import app

commands = typer.main.get_command(app).commands if app.registered_commands else {}
for name in commands:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, (name, done.output, done.exception)
print("shown", *commands)
"""

_EVERY_JOB = """
import typer
from typer.testing import CliRunner

from penstock.cli.pipeline import app

arguments = {"archive": ["in", "out"], "load": ["x.csv", "--queue", "q"], "replay": ["in", "--job", "j"], "prepare": []}
arguments |= dict.fromkeys(("signals", "triage"), ["in", "--out", "out"])
jobs = [name for name in typer.main.get_command(app).commands if name != "package" and not name.startswith("archive-")]
for name in jobs:
    done = CliRunner().invoke(app, [name, *arguments.get(name, ["in"])])
    print(name, done.exit_code, done.output.strip())
"""


def test_every_job_explains_itself_without_spark() -> None:
    done = _run(_EVERY_HELP)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shown")


def test_every_job_without_spark_says_what_to_install() -> None:
    done = _run(_EVERY_JOB)
    said = [line.partition(" ") for line in done.stdout.splitlines()]

    assert {name for name, _, _ in said} >= {
        "archive",
        "audit",
        "load",
        "replay",
        "signals",
        "skew",
        "triage",
        "whatif",
    }
    assert {rest for _, _, rest in said} == {
        "69 Spark is not installed. Install it with: pip install 'penstock[spark]'"
    }, done.stderr


def _run(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", _BLOCKED + script], capture_output=True, text=True, check=False)
