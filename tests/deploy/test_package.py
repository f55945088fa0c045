"""The package: what the wheel holds, and that it is enough; and the site of the documentation."""

import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import __version__
from tests.deploy.tools import DEPLOY

ROOT = DEPLOY.parent
UV = Path(sys.executable).with_name("uv")
# A bound on what an install takes; nothing waits for it to pass.
SECONDS_MAX = 300


def run(*arguments: object, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [str(each) for each in arguments], capture_output=True, text=True, check=False, cwd=folder, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder)
    return folder


def test_the_wheel_holds_every_module_and_statement_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / f"penstock-{__version__}-py3-none-any.whl") as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(f"penstock-{__version__}.dist-info/METADATA").decode()
    listed = subprocess.run(["git", "ls-files", "src"], capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert held == {name.removeprefix("src/") for name in listed.split()}
    assert f"Version: {__version__}" in metadata
    assert re.search(r"^License-Expression: Apache-2.0$", metadata, re.MULTILINE)


def test_the_sdist_holds_what_a_packager_builds_and_tests_with(built: Path) -> None:
    with tarfile.open(built / f"penstock-{__version__}.tar.gz") as sdist:
        held = {name.partition("/")[2].partition("/")[0] for name in sdist.getnames()}

    assert {"src", "tests", "docs", "examples", "bench", "deploy", "requirements", "Makefile", "pyproject.toml"} <= held


def test_the_sdist_builds_the_same_wheel_by_itself(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / f"penstock-{__version__}.tar.gz") as sdist:
        sdist.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"penstock-{__version__}"
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path, folder=unpacked)
    name = f"penstock-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(built / name) as first, zipfile.ZipFile(tmp_path / name) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel as the image does into an empty environment; return the folder around it."""
    folder = tmp_path_factory.mktemp("installed")
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    needed = ROOT / "requirements" / "image.txt"
    run(UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", needed)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", next(built.glob("*.whl")))
    return folder


@pytest.fixture
def url(installed: Path, tmp_path: Path) -> Iterator[str]:
    """Run the entry point of the image, with a port of its own."""
    with serving(installed / "venv" / "bin" / "penstock", tmp_path) as found:
        yield found


@contextmanager
def serving(program: Path, tmp_path: Path) -> Iterator[str]:
    command = [str(program), "serve", "--host", "127.0.0.1", "--port", "0", "--no-kafka"]
    environment = {"PATH": "/usr/bin:/bin", "PENSTOCK_DATA": str(tmp_path / "data")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, (re.search(r"listens on (\S+)", line) for line in process.stdout)))
            yield found[1]
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)


def test_the_entry_point_of_the_image_serves_and_its_health_check_says_so(installed: Path, url: str) -> None:
    sent = urllib.request.Request(
        f"{url}/api/queues", b'{"queue_name": "orders"}', {"content-type": "application/json"}
    )
    with urllib.request.urlopen(sent, timeout=60) as answer:
        assert json.load(answer)["queue_name"] == "orders"

    [check] = re.findall(r"^    CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    program, option, code = json.loads(check)
    assert program == "python"
    run(installed / "venv" / "bin" / "python", option, code.replace("http://127.0.0.1:8080", url))


def interpreter(version: str) -> str | None:
    """Return a Python of this machine; those of pyenv are behind shims that need not work."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*pyenv.glob(f"versions/{version}.*/bin/python"), Path(f"/usr/bin/python{version}")]
    return next((str(each) for each in candidates if each.exists()), None)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_without_extras_serves_in_an_environment_with_nothing_else(
    built: Path, tmp_path: Path, version: str
) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    run(UV, "venv", "--quiet", "--no-python-downloads", "--python", found, tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    versions = ("--constraint", ROOT / "requirements" / "run.txt")
    run(UV, "pip", "install", "--quiet", "--python", python, *versions, next(built.glob("*.whl")))
    listed = run(UV, "pip", "list", "--quiet", "--python", python)
    assert not re.search(r"^(pyarrow|psycopg|opentelemetry-\S+|aiokafka|pyspark) ", listed, re.MULTILINE)

    with serving(tmp_path / "venv" / "bin" / "penstock", tmp_path) as url:
        run(tmp_path / "venv" / "bin" / "penstock", "probe", "happy-path", "--url", url, folder=tmp_path)


def test_an_installed_package_has_its_extras_and_says_its_version(installed: Path) -> None:
    python = installed / "venv" / "bin" / "python"
    run(python, "-c", "import psycopg, pyarrow, opentelemetry.trace, penstock.store.postgres.store", folder=installed)

    assert __version__ in run(installed / "venv" / "bin" / "penstock", "--version", folder=installed)


def test_the_site_is_built_without_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    config = DEPLOY / "site" / "mkdocs.yml"
    run(mkdocs, "build", "--quiet", "--strict", "--config-file", config, "--site-dir", tmp_path / "site")

    page = (tmp_path / "site" / "index.html").read_text()
    assert "https://fonts." not in page
    assert all((tmp_path / "site" / f"{folder}").is_dir() for folder in ("tutorial", "how-to", "reference"))
