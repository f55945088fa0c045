"""The zip that spark-submit ships."""

import subprocess
import sys
import zipfile
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli import app
from penstock.pipeline.spark import write_package


def test_a_package_has_the_source_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    count = write_package(one)
    write_package(two)
    with zipfile.ZipFile(one) as package:
        names = package.namelist()

    assert one.read_bytes() == two.read_bytes()
    assert count == len(names)
    assert {"penstock/frame.py", "penstock/pipeline/source/__init__.py", "pyspark_penstock/__init__.py"} < set(names)
    assert [name for name in names if not name.endswith(".py")] == []


def test_the_source_is_imported_from_a_package_alone(tmp_path: Path) -> None:
    write_package(tmp_path / "penstock.zip")
    script = (
        "import sys; sys.path = [path for path in sys.path if 'src' not in path.split('/')];"
        f"sys.path.insert(0, {str(tmp_path / 'penstock.zip')!r});"
        "import pyspark_penstock, penstock.pipeline.source.reader as reading; print(reading.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert "penstock.zip/penstock/pipeline" in done.stdout


def test_the_command_writes_a_driver_and_says_how_to_submit(tmp_path: Path) -> None:
    package, driver = tmp_path / "penstock.zip", tmp_path / "run_penstock.py"
    said = CliRunner().invoke(app, ["pipeline", "package", str(package), "--driver", str(driver)])
    done = subprocess.run(
        [sys.executable, str(driver), "archive", "--help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert said.exit_code == 0
    assert f"spark-submit --py-files {package} {driver} archive" in said.output
    assert "each exactly once" in done.stdout
