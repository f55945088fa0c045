"""`penstock config`: every value, and where it came from."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.config import masked

KEY = "pk_1f2e3d4c5b6a_" + "s" * 39 + "WXYZ"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_KEY", "PENSTOCK_CONFIG", "PENSTOCK_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_every_setting_is_shown_with_its_origin(empty_folder: Path) -> None:
    (empty_folder / "penstock.toml").write_text("[server]\nshards = 4\n")
    done = CliRunner().invoke(app, ["config"], env={"PENSTOCK_PORT": "9000"})
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["server", "shards", "4", "penstock.toml", "[server]"] in lines
    assert ["server", "port", "9000", "PENSTOCK_PORT"] in lines
    assert ["server", "log_level", "info", "default"] in lines


def test_programs_get_the_settings_as_json() -> None:
    done = CliRunner().invoke(app, ["config", "--json"], env={"PENSTOCK_PORT": "9000"})
    assert json.loads(done.stdout)["server"]["port"] == {"value": 9000, "from": "PENSTOCK_PORT"}
    assert json.loads(done.stdout)["client"]["url"]["value"] == "http://127.0.0.1:8080"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_key_is_not_shown(form: list[str]) -> None:
    done = CliRunner().invoke(app, ["config", *form], env={"PENSTOCK_KEY": KEY})
    assert "sss" not in done.output
    assert "pk_1f2e3d4c5b6a_…WXYZ" in done.stdout


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_nothing_of_a_secret_that_requests_are_signed_with_is_shown(form: list[str]) -> None:
    secret = "front_" + "s" * 30 + "rear"
    names = {"PENSTOCK_SQS_ACCESS_KEY_ID": "shop", "PENSTOCK_SQS_SECRET_ACCESS_KEY": secret}
    done = CliRunner().invoke(app, ["config", *form], env=names)
    assert "shop" in done.stdout
    assert "PENSTOCK_SQS_SECRET_ACCESS_KEY" in done.stdout
    assert not any(part in done.output for part in ("front", "sss", "rear"))


@pytest.mark.parametrize(("key", "shown"), [("", ""), ("hunter2", "…"), ("x" * 40, "…xxxx"), (KEY, f"{KEY[:16]}…WXYZ")])
def test_of_a_key_only_its_id_and_its_end_are_shown(key: str, shown: str) -> None:
    assert masked(key) == shown


def test_a_wrong_setting_ends_with_its_own_exit_code(empty_folder: Path) -> None:
    (empty_folder / "penstock.toml").write_text("[server]\nprot = 4\n")
    done = CliRunner().invoke(app, ["config"])
    assert done.exit_code == 78
    assert "[server] has no setting prot; is port meant?" in done.stderr


def test_a_file_elsewhere_can_be_named(empty_folder: Path) -> None:
    (empty_folder / "other.toml").write_text("[server]\nshards = 4\n")
    done = CliRunner().invoke(app, ["config", "--config", "other.toml", "--json"])
    assert json.loads(done.stdout)["server"]["shards"] == {"value": 4, "from": "other.toml [server]"}
