"""The dashboards: they are what their table says, and Prometheus understands every line against a running server."""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import penstock
from tests.cli.servers import Served
from tests.deploy.dashboards import DASHBOARDS, FOLDER, Dashboard, text_of
from tests.deploy.metrics import ALL_METRICS, used_metrics
from tests.deploy.prometheus import samples, scraping
from tests.deploy.tools import DEPLOY, needs

# Those that a server tells only with a database, and a probe by itself.
ELSEWHERE = re.compile(r"penstock_(?:postgres|probe)_|stuck|wait_bound|dead_letters|queue_size")


def expressions() -> list[tuple[str, str]]:
    return [(panel.title, line) for board in DASHBOARDS for panel in board.panels for line, _ in panel.lines]


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_what_its_table_says(board: Dashboard) -> None:
    assert (FOLDER / f"{board.name}.json").read_text() == text_of(board), "run python -m tests.deploy.dashboards"


def test_every_metric_of_a_dashboard_is_one_that_a_server_or_a_probe_tells() -> None:
    queries = [query for board in DASHBOARDS for query in board.variables.values()]
    for text in [*(line for _, line in expressions()), *queries]:
        found = used_metrics(text)
        assert found, text
        assert found <= ALL_METRICS


def test_grafana_is_told_where_dashboards_and_prometheus_are() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "penstock.yml").read_text())["providers"]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]

    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    assert urllib.parse.urlsplit(source["url"]).hostname in services


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus beside a server with work in it."""
    folder = tmp_path_factory.mktemp("prometheus")
    with Served(folder / "data", "--kafka-port", "0") as server:
        with penstock.connect(server.url) as client:
            client.create_queue("orders", max_deliveries=1, queue_size=100)
            queue = client.queue("orders")
            queue.send_many(["a", "b", "c"])
            queue.receive()
            client.create_topic("views")
        with scraping(folder, server.url) as address:
            yield address


def chosen(expression: str) -> str:
    for variable, value in {
        "$__rate_interval": "1m",
        "$server": ".*",
        "$queue": "orders",
        "$topic": "views",
        "$database": "shop",
    }.items():
        expression = expression.replace(variable, value)
    return expression


@needs("prometheus")
def test_every_line_of_a_dashboard_shows_something_of_a_server_that_works(prometheus: str) -> None:
    empty = {line for _, line in expressions() if not samples(prometheus, chosen(line))}
    # No consumer group, no failure and no watchdog is there.
    expected = re.compile(r"consumergroup|5\.\.|loop_lag|noisy|outcome!=|records_(?:in|out)")

    assert [line for line in empty if not expected.search(line) and not ELSEWHERE.search(line)] == []


@needs("prometheus")
def test_a_server_that_works_sets_off_no_alert(prometheus: str) -> None:
    found = samples(prometheus, 'ALERTS{job!="penstock-probe"}')

    assert found == []


def test_the_files_are_where_compose_mounts_them(tmp_path: Path) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (DEPLOY / volume.split(":")[0]).exists(), volume
