"""The alert rules: each fires for its fault and for nothing else, and its runbook is there."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.alerts import METRICS, RULES, Alerts, Samples
from tests.deploy.metrics import ALL_METRICS, used_metrics
from tests.deploy.tools import DEPLOY, needs

RULES_FILE = DEPLOY / "prometheus" / "rules.yml"
RUNBOOK = DEPLOY.parent / "docs" / "how-to" / "answer-an-alert.md"
# At each minute for forty: a fault, and how the same numbers look on a good day.
ALWAYS = "x40"
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "PenstockGone": ({'up{job="penstock"}': "0+0"}, {'up{job="penstock"}': "1+0"}),
    "PenstockNotReady": ({"penstock_ready": "0+0"}, {"penstock_ready": "1+0"}),
    "PenstockDatabaseSilent": (
        {'penstock_postgres_answering{database="shop"}': "0+0"},
        {'penstock_postgres_answering{database="shop"}': "1+0"},
    ),
    "PenstockStandbyMissing": (
        {
            'penstock_postgres_standbys_needed{database="shop"}': "1+0",
            'penstock_postgres_standbys{database="shop"}': "0+0",
        },
        {
            'penstock_postgres_standbys_needed{database="shop"}': "1+0",
            'penstock_postgres_standbys{database="shop"}': "1+0",
        },
    ),
    "PenstockErrors": (
        {'penstock_requests_total{status="500"}': "0+2", 'penstock_requests_total{status="200"}': "0+100"},
        {'penstock_requests_total{status="500"}': "0+0", 'penstock_requests_total{status="200"}': "0+100"},
    ),
    "PenstockSendsRefused": (
        {
            'penstock_requests_total{operation="send_messages",status="429"}': "0+10",
            'penstock_requests_total{operation="send_messages",status="201"}': "0+100",
        },
        {
            'penstock_requests_total{operation="send_messages",status="429"}': "0+1",
            'penstock_requests_total{operation="send_messages",status="201"}': "0+100",
        },
    ),
    "PenstockQueueErrors": (
        {
            'penstock_queue_operations_total{queue="orders",operation="send",outcome="queue_full"}': "0+20",
            'penstock_queue_operations_total{queue="orders",operation="send",outcome="success"}': "0+100",
        },
        {
            'penstock_queue_operations_total{queue="orders",operation="send",outcome="queue_full"}': "0+10",
            'penstock_queue_operations_total{queue="orders",operation="send",outcome="success"}': "0+100",
        },
    ),
    "PenstockDeadLetters": (
        {
            'penstock_queue_dead_letters{queue="orders"}': "3+0",
            'penstock_queue_alert_dead_letters{queue="orders"}': "3+0",
        },
        {
            'penstock_queue_dead_letters{queue="orders"}': "2+0",
            'penstock_queue_alert_dead_letters{queue="orders"}': "3+0",
            # Of a queue whose owner does not want to be called.
            'penstock_queue_dead_letters{queue="logs"}': "900+0",
        },
    ),
    "PenstockQueueStuck": (
        {'penstock_queue_messages{queue="orders",state="stuck"}': "1+0"},
        {'penstock_queue_messages{queue="orders",state="ready"}': "1+0"},
    ),
    "PenstockQueueOld": (
        {'penstock_queue_oldest_age_seconds{queue="orders",tier="low"}': "0+60"},
        {
            'penstock_queue_oldest_age_seconds{queue="orders",tier="low"}': "10+0",
            'penstock_queue_oldest_age_seconds{queue="orders.dead",tier="low"}': "0+60",
        },
    ),
    "PenstockQueueNearlyFull": (
        {'penstock_queue_pressure_ratio{queue="orders"}': "0.81+0"},
        {'penstock_queue_pressure_ratio{queue="orders"}': "0.8+0"},
    ),
    "PenstockWaitBoundBroken": (
        {
            'penstock_queue_oldest_age_seconds{queue="orders.dead",tier="low"}': "90+0",
            'penstock_queue_wait_bound_seconds{queue="orders.dead",tier="low"}': "30+0",
        },
        {
            'penstock_queue_oldest_age_seconds{queue="orders.dead",tier="low"}': "50+0",
            'penstock_queue_wait_bound_seconds{queue="orders.dead",tier="low"}': "30+0",
        },
    ),
    "PenstockGroupLag": (
        {'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"}': "20000+10"},
        {'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"}': "50000-10"},
    ),
    "PenstockDiskStalled": (
        {'penstock_journal_lag_records{journal="0"}': "5+0", 'penstock_journal_records_total{journal="0"}': "9+0"},
        {'penstock_journal_lag_records{journal="0"}': "5+0", 'penstock_journal_records_total{journal="0"}': "9+5"},
    ),
    "PenstockDiskNearlyFull": (
        {"penstock_disk_free_bytes": "9+0", "penstock_disk_size_bytes": "100+0"},
        {"penstock_disk_free_bytes": "10+0", "penstock_disk_size_bytes": "100+0"},
    ),
    "PenstockFsyncSlow": (
        {
            'penstock_fsync_seconds_bucket{log="queues",le="0.25"}': "0+98",
            'penstock_fsync_seconds_bucket{log="queues",le="0.5"}': "0+100",
            'penstock_fsync_seconds_bucket{log="queues",le="+Inf"}': "0+100",
        },
        {
            'penstock_fsync_seconds_bucket{log="queues",le="0.25"}': "0+995",
            'penstock_fsync_seconds_bucket{log="queues",le="0.5"}': "0+1000",
            'penstock_fsync_seconds_bucket{log="queues",le="+Inf"}': "0+1000",
        },
    ),
    "PenstockLoopSlow": (
        {
            'penstock_loop_lag_seconds_bucket{le="0.1"}': "0+90",
            'penstock_loop_lag_seconds_bucket{le="0.5"}': "0+100",
            'penstock_loop_lag_seconds_bucket{le="+Inf"}': "0+100",
        },
        {
            'penstock_loop_lag_seconds_bucket{le="0.1"}': "0+1000",
            'penstock_loop_lag_seconds_bucket{le="0.5"}': "0+1001",
            'penstock_loop_lag_seconds_bucket{le="+Inf"}': "0+1001",
        },
    ),
    "PenstockClockDoubted": ({"penstock_clock_doubted": "1+0"}, {"penstock_clock_doubted": "0+0"}),
    "PenstockMayLose": ({'penstock_fsync_may_lose{fsync="os"}': "1+0"}, {}),
    "PenstockConnectionsNearLimit": (
        {"penstock_connections": "95+0", "penstock_connections_max": "100+0"},
        {"penstock_connections": "85+0", "penstock_connections_max": "100+0"},
    ),
    "PenstockFilesNearLimit": (
        {'process_open_fds{job="penstock"}': "95+0", 'process_max_fds{job="penstock"}': "100+0"},
        {'process_open_fds{job="penstock"}': "85+0", 'process_max_fds{job="penstock"}': "100+0"},
    ),
    "PenstockOldSnapshot": (
        {'penstock_postgres_oldest_snapshot_seconds{database="shop",pid="1",holder="psql"}': "0+60"},
        {'penstock_postgres_oldest_snapshot_seconds{database="shop",pid="1",holder="psql"}': "5+0"},
    ),
    "PenstockDeadRows": (
        {
            'penstock_postgres_rows{database="shop",table="ready",kind="dead"}': "2000000+0",
            'penstock_postgres_rows{database="shop",table="ready",kind="live"}': "10+0",
        },
        {
            'penstock_postgres_rows{database="shop",table="ready",kind="dead"}': "2000000+0",
            'penstock_postgres_rows{database="shop",table="ready",kind="live"}': "1500000+0",
        },
    ),
    "PenstockProbeFails": (
        {'penstock_probe_success{probe="happy-path"}': "0+0"},
        {'penstock_probe_success{probe="happy-path"}': "1+0"},
    ),
    "PenstockPipelineGone": ({'up{job="penstock-pipeline"}': "0+0"}, {'up{job="penstock-pipeline"}': "1+0"}),
    "PenstockPipelineFails": (
        {'penstock_pipeline_failures{job_name="signals"}': "3+0"},
        {'penstock_pipeline_failures{job_name="signals"}': "2+0"},
    ),
    "PenstockPipelineBehind": (
        {
            'penstock_pipeline_behind_seconds{job_name="archive"}': "0+60",
            'penstock_pipeline_interval_seconds{job_name="archive"}': "10+0",
        },
        {
            'penstock_pipeline_behind_seconds{job_name="audit"}': "0+60",
            'penstock_pipeline_interval_seconds{job_name="audit"}': "86400+0",
        },
    ),
    "PenstockPipelineFound": (
        {'penstock_pipeline_good{job_name="audit"}': "0+0"},
        {'penstock_pipeline_good{job_name="audit"}': "1+0"},
    ),
    "PenstockProbeGone": (
        {'penstock_probe_last_success_timestamp_seconds{probe="happy-path"}': "0+0"},
        {'penstock_probe_last_success_timestamp_seconds{probe="happy-path"}': "0+60"},
    ),
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]]


def test_every_alert_has_its_fault_here_a_severity_and_a_runbook() -> None:
    headings = {line.removeprefix("## ") for line in RUNBOOK.read_text().splitlines() if line.startswith("## ")}

    assert {rule["alert"] for rule in rules()} == set(FAULTS) == headings
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["runbook_url"].endswith(f"docs/how-to/answer-an-alert.md#{rule['alert'].lower()}")


def test_every_metric_of_an_alert_is_one_that_a_server_a_probe_or_a_pipeline_tells() -> None:
    for rule in rules():
        assert used_metrics(rule["expr"]) <= ALL_METRICS


@needs("promtool")
@pytest.mark.parametrize("which", [0, 1], ids=["its fault", "a good day"])
def test_every_alert_fires_for_its_fault_and_not_on_a_good_day(which: int, tmp_path: Path) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values + ALWAYS} for name, values in faults[which].items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": "40m",
                    "exp_samples": [{"value": 1}] if which == 0 else [],
                }
            ],
        }
        for alert, faults in FAULTS.items()
    ]
    file = tmp_path / "alerts.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


# What `penstock watch` does not see: the probe and the pipeline tell of themselves.
OF_OTHERS = {
    "PenstockProbeFails",
    "PenstockProbeGone",
    "PenstockPipelineBehind",
    "PenstockPipelineFails",
    "PenstockPipelineFound",
    "PenstockPipelineGone",
}


def at_minute(minute: int, series: dict[str, str]) -> Samples:
    """Return what a look at this minute finds, by the notation of promtool."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for name, values in series.items():
        first, sign, step = re.fullmatch(r"([\d.]+)([+-])([\d.]+)", values).groups()  # type: ignore[union-attr]
        value = float(first) + minute * float(step) * (1 if sign == "+" else -1)
        metric, _, labels = name.partition("{")
        found.setdefault(metric, []).append((dict(re.findall(r'(\w+)="([^"]*)"', labels)), value))
    return found


@pytest.mark.parametrize("alert", sorted(set(FAULTS) - OF_OTHERS))
def test_the_watch_fires_for_the_same_faults_as_prometheus_and_when_they_have_lasted(alert: str) -> None:
    [rule] = [rule for rule in rules() if rule["alert"] == alert]
    minutes = int(rule.get("for", "0m").removesuffix("m"))
    fault, good_day = FAULTS[alert]
    watched = Alerts()
    fired_at = [
        minute
        for minute in range(41)
        if any(each.rule.name == alert for each in watched.look(minute * 60.0, at_minute(minute, fault)))
    ]
    assert len(fired_at) == 1
    assert fired_at[0] >= minutes

    quiet = Alerts()
    found = [each for minute in range(41) for each in quiet.look(minute * 60.0, at_minute(minute, good_day))]
    assert [each for each in found if each.rule.name == alert] == []


def test_the_watch_has_the_names_severities_waits_and_summaries_of_the_rules_for_prometheus() -> None:
    words = {"$value | humanizePercentage": "percent", "$value | humanizeDuration": "duration"}
    shipped = {}
    for rule in rules():
        summary = re.sub(r"\$labels\.", "", rule["annotations"]["summary"])
        for said, meant in {**words, "$value | humanize": "value", "$value": "value"}.items():
            summary = summary.replace(said, meant)
        summary = re.sub(r"{{ (\w+) }}", r"{\1}", summary)
        shipped[rule["alert"]] = (rule["labels"]["severity"], int(rule.get("for", "0m")[:-1]) * 60, summary)

    assert {each.name: (each.severity, each.for_s, each.summary) for each in RULES} == {
        name: said for name, said in shipped.items() if name not in OF_OTHERS
    }


def test_the_watch_reads_exactly_the_metrics_that_the_rules_name() -> None:
    named = set().union(*(used_metrics(rule["expr"]) for rule in rules() if rule["alert"] not in OF_OTHERS))

    assert {metric.name for metric in METRICS} == {name for name in named if not name.startswith("process_")}


@needs("promtool")
def test_prometheus_takes_the_configuration_that_is_shipped() -> None:
    subprocess.run(["promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")], check=True)


def test_a_summary_names_only_labels_that_its_expression_keeps() -> None:
    for rule in rules():
        grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
        for label in re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())):
            assert not grouped or any(label in each for each in grouped), (rule["alert"], label)
