"""A server without Arrow: a job says so before Spark is started, and leaves nothing behind."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.settings import ServerSettings
from tests.server.serving import server


def test_a_server_without_arrow_is_refused_before_there_is_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it were not installed where the server runs.
    monkeypatch.setitem(sys.modules, "penstock.api.rest.arrows", None)
    monkeypatch.setattr("penstock.pipeline.spark.open_session", lambda **_: pytest.fail("Spark was started"))
    with server(ServerSettings(port=0, store="memory:", kafka=False)) as running:
        ended = CliRunner().invoke(app, ["pipeline", "archive", running.url, str(tmp_path / "archive")])
    assert ended.exit_code != 0
    assert "has no Arrow" in ended.stderr
    assert "pip install 'penstock[arrow]'" in ended.stderr.replace("\n", " ")
    assert not (tmp_path / "archive").exists()
