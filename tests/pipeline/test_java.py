"""Which Java Spark would run on, and what people are told of one that will not do; no Spark is started here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline import java
from penstock.pipeline.java import NoJava, check_java

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'


def fake_java(folder: Path, said: str, *, code: int = 0) -> Path:
    """Make a `java` that answers any question with ``said``, on its standard error, as a real one does."""
    path = folder / "java"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the path; JAVA_HOME is not set."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "said",
    [OPENJDK_17, 'openjdk version "21" 2023-09-19', 'java version "22-ea"', f"Picked up OPTIONS: -Xmx1g\n{OPENJDK_17}"],
)
def test_a_java_that_is_new_enough_will_do(path: Path, said: str) -> None:
    fake_java(path, said)

    check_java()


@pytest.mark.parametrize(
    ("said", "version"),
    [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2" 2019', 11), ('x version "16"', 16)],
)
def test_a_java_that_is_too_old_is_named_with_its_version(path: Path, said: str, version: int) -> None:
    found = fake_java(path, said)

    with pytest.raises(NoJava, match=f"needs Java 17 or newer, and {found} is Java {version}. .*JAVA_HOME"):
        check_java()


def test_a_java_home_counts_before_the_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(path, 'openjdk version "11.0.2"')
    fake_java(path / "home" / "bin", OPENJDK_17)
    monkeypatch.setenv("JAVA_HOME", str(path / "home"))
    check_java()

    fake_java(path, OPENJDK_17)
    monkeypatch.setenv("JAVA_HOME", str(path / "elsewhere"))
    with pytest.raises(NoJava, match=f"JAVA_HOME is {path}/elsewhere, where there is no bin/java"):
        check_java()


@pytest.mark.parametrize(("said", "code"), [("Unable to locate a Java Runtime.", 1), ("", 3), ("Hello", 0)])
def test_a_java_that_says_no_version_is_quoted(path: Path, said: str, code: int) -> None:
    fake_java(path, said, code=code)

    with pytest.raises(NoJava, match=f"does not say its version: {said or 'it ended with 3'}"):
        check_java()


def test_a_good_java_is_asked_only_once(path: Path) -> None:
    found = fake_java(path, OPENJDK_17)
    check_java()
    found.write_text("#!/bin/sh\nexit 1\n")

    check_java()


def test_make_is_told_by_the_file_alone(path: Path) -> None:
    command = [sys.executable, "-I", "-S", java.__file__]
    fake_java(path, OPENJDK_17)
    assert subprocess.run(command, check=False).returncode == 0

    fake_java(path / "old", 'openjdk version "11.0.2"')
    done = subprocess.run(
        command, env={**os.environ, "PATH": str(path / "old")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is Java 11" in done.stderr
