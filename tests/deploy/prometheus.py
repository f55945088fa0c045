"""A real Prometheus with the configuration and the rules that are shipped, beside a server that it scrapes."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY
from tests.ports import HeldPort


def unchanged(rules: str) -> str:
    return rules


@contextmanager
def scraping(folder: Path, url: str, change: Callable[[str], str] = unchanged) -> Iterator[str]:
    """Run a Prometheus that scrapes ``url`` each second; yield its address. ``change`` may change the rules."""
    port = HeldPort()
    address = f"127.0.0.1:{port.number}"
    (folder / "rules.yml").write_text(change((DEPLOY / "prometheus" / "rules.yml").read_text()))
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    del config["alerting"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address={address}",
            "--log.level=error",
        ],
    )
    try:
        until_scraped_twice(address, process)
        yield address
    finally:
        process.kill()
        process.wait()
        port.give_back()


def until_scraped_twice(address: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            if samples(address, "count_over_time(penstock_ready[1h]) >= 2"):
                return
        except OSError:
            pass
    raise AssertionError(f"Prometheus ended with {process.returncode}")


def samples(address: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=60) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return list(found["data"]["result"])
