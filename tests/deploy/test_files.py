"""The files for containers, Kubernetes, Terraform, systemd and workflows: right by their schemas, true of Penstock."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

from penstock.cli import app
from penstock.pipeline.service.plan import read_plan
from penstock.settings import ClientSettings, ServerSettings
from tests.deploy.tools import DEPLOY, needs
from tests.docs.commands import commands

ROOT = DEPLOY.parent
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BASE, OVERLAYS = DEPLOY / "kubernetes" / "base", sorted((DEPLOY / "kubernetes" / "overlays").iterdir())
TERRAFORM = DEPLOY / "terraform" / "gcp"
SERVICE, PIPELINE = (DEPLOY / "systemd" / f"{name}.service" for name in ("penstock", "penstock-pipeline"))
POD_OF_PIPELINE = DEPLOY / "kubernetes" / "pipeline.yaml"
KINDS_ON_KUBERNETES = ("archive", "signals", "triage", "quality", "upkeep", "audit")
# What is said to a command rather than to a server.
SAID = {"PENSTOCK_NEW_KEY", "PENSTOCK_CONFIG"}
VARIABLES = SAID | {
    f"PENSTOCK_{name.upper()}" for kind in (ServerSettings, ClientSettings) for name in kind.__dataclass_fields__
}
# Variables of our own files, which stand for a value of the reader.
OURS = {"PENSTOCK_ADMIN_KEY", "PENSTOCK_IMAGE", "PENSTOCK_PROBE_KEY"}


def run(*arguments: object) -> str:
    done = subprocess.run([str(each) for each in arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def shipped() -> Iterator[Path]:
    for folder in (DEPLOY, ROOT / ".github"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in {".json", ".pyc"}:
                yield path


def test_every_variable_in_a_shipped_file_is_a_setting_of_penstock() -> None:
    for path in shipped():
        said = set(re.findall(r"\bPENSTOCK_[A-Z_]+\b", path.read_text())) - OURS
        assert said <= VARIABLES, (path, said - VARIABLES)


def said_commands() -> Iterator[tuple[Path, list[str]]]:
    """Yield the commands that containers and units run."""
    for path in COMPOSE:
        for service in yaml.safe_load(path.read_text())["services"].values():
            if "penstock" in str(service.get("image", "")) and "command" in service:
                yield path, service["command"]
    pod = yaml.safe_load((BASE / "statefulset.yaml").read_text())["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        yield BASE, container["args"]
    for unit in (SERVICE, PIPELINE):
        [line] = re.findall(r"^ExecStart=\S+/penstock (.*)$", unit.read_text(), re.MULTILINE)
        yield unit, line.split()


def test_every_command_that_a_container_runs_is_there_with_all_its_options() -> None:
    known = {command.name.removeprefix("penstock "): command for command in commands()}
    for path, said in said_commands():
        words = [word for word in said if not word.startswith("-")]
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in known)
        options = {each for parameter in known[name].parameters for each in parameter.names.split(", ")}
        assert {word for word in said if word.startswith("--")} <= options, (path, said)
    assert app is not None


# Containers


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_is_right_by_its_schema(path: Path) -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path)


@needs(str(tool("hadolint")))
def test_the_dockerfile_has_no_known_mistake() -> None:
    run(tool("hadolint"), DEPLOY / "Dockerfile")


def test_the_image_is_given_every_file_that_its_build_copies() -> None:
    copied = [
        word
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    let_in = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}

    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_the_versions_of_the_image_are_those_that_the_tests_ran_with() -> None:
    pins = [set(re.findall(r"^(\S+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)) for name in LOCKS]

    assert pins[0] <= pins[1]


LOCKS = ("image.txt", "dev.txt")


# Kubernetes


def of_kustomization(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


def test_every_resource_for_kubernetes_is_right_by_its_schema_and_listed() -> None:
    files = sorted(path.name for path in BASE.glob("*.yaml") if path.name != "kustomization.yaml")
    # Of the Prometheus operator, whose schema Kubernetes does not have.
    plain = [BASE / name for name in files if name != "service-monitor.yaml"]

    assert sorted(of_kustomization(BASE)["resources"]) == files
    run(tool("kubernetes-validate"), "--strict", "--quiet", *plain, POD_OF_PIPELINE)


def test_the_file_of_the_pipeline_on_kubernetes_is_a_plan(tmp_path: Path) -> None:
    first = next(iter(yaml.safe_load_all(POD_OF_PIPELINE.read_text())))
    (tmp_path / "pipeline.toml").write_text(first["data"]["pipeline.toml"])

    assert [job.kind for job in read_plan(tmp_path / "pipeline.toml").jobs] == [*KINDS_ON_KUBERNETES]


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_names_what_the_base_has(folder: Path) -> None:
    overlay = of_kustomization(folder)
    base = [yaml.safe_load((BASE / name).read_text()) for name in of_kustomization(BASE)["resources"]]
    named = {(each["kind"], each["metadata"]["name"]) for each in base}
    pod = next(each for each in base if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    containers = {each["name"] for each in pod["containers"]}

    assert [(folder / each).resolve() for each in overlay["resources"]] == [BASE.resolve()]
    assert overlay["images"][0]["name"] == pod["containers"][0]["image"]
    assert overlay["configMapGenerator"][0]["name"] == pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]
    for patch in overlay.get("patches", ()):
        changed = yaml.safe_load((folder / patch["path"]).read_text())
        assert (changed["kind"], changed["metadata"]["name"]) in named
        assert {each["name"] for each in changed["spec"]["template"]["spec"]["containers"]} <= containers


# Terraform


def blocks(kind: str) -> Iterable[str]:
    for path in sorted(TERRAFORM.glob("*.tf")):
        for block in hcl2.loads(path.read_text()).get(kind, ()):
            yield from (name.strip('"') for name in block if not name.startswith("__"))


def test_terraform_declares_every_variable_that_it_uses_and_uses_every_one_that_it_declares() -> None:
    text = "".join(path.read_text() for path in sorted(TERRAFORM.glob("*.tf")))
    declared = set(blocks("variable"))

    assert set(re.findall(r"\bvar\.(\w+)", text)) == declared
    for values in TERRAFORM.glob("*.tfvars"):
        assert {name.strip('"') for name in hcl2.loads(values.read_text()) if not name.startswith("__")} <= declared


def test_what_the_machine_is_told_at_its_first_start_is_filled_in_and_is_yaml() -> None:
    template, main = (TERRAFORM / "cloud-init.yaml").read_text(), (TERRAFORM / "main.tf").read_text()
    given = set(re.findall(r"^ {6}(\w+) +=", main.split("templatefile(")[1].split("})")[0], re.MULTILINE))
    filled = re.sub(r"\$\{(\w+)\}", "x", template)

    assert set(re.findall(r"\$\{(\w+)\}", template)) == given
    scripts = {each["path"]: each["content"] for each in yaml.safe_load(filled)["write_files"]}
    run("bash", "-n", "-c", scripts["/etc/penstock/start"])


@pytest.mark.parametrize("path", sorted((DEPLOY / "postgres").glob("*.sh")), ids=lambda path: path.name)
def test_a_script_of_a_container_is_one_that_bash_understands(path: Path) -> None:
    run("bash", "-n", path)


# systemd and workflows


@needs("systemd-analyze")
@pytest.mark.parametrize("path", [SERVICE, PIPELINE], ids=lambda path: path.stem)
def test_a_unit_for_systemd_is_understood_and_locked_down(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name
    # The command has to be there for systemd to be content.
    unit.write_text(path.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    run("systemd-analyze", "verify", unit)
    # 2.0 on a scale of 10.
    run("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)


def test_every_workflow_is_right_by_its_schema() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.dependabot", ROOT / ".github" / "dependabot.yml")


def test_a_workflow_runs_only_targets_and_workflows_that_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        text = path.read_text()
        assert set(re.findall(r"\bmake ([a-z]+)", text)) <= targets, path
        assert all((ROOT / used).exists() for used in re.findall(r"uses: \./(\S+)", text)), path
