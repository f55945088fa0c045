"""The dashboards for Grafana, as tables of panels. `python -m tests.deploy.dashboards` writes them to `deploy/grafana`.

A panel has a title, a unit and its expressions, each with the legend of its lines. `$server`, `$queue` and the like are
variables that a reader chooses from.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.deploy.tools import DEPLOY

FOLDER = DEPLOY / "grafana" / "dashboards"
COLUMNS, WIDTH, HEIGHT = 24, 12, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    meaning: str = ""
    is_number: bool = False


def graph(title: str, unit: str, *lines: tuple[str, str], meaning: str = "") -> Panel:
    return Panel(title, unit, lines, meaning)


def number(title: str, unit: str, expression: str, meaning: str = "") -> Panel:
    return Panel(title, unit, ((expression, ""),), meaning, is_number=True)


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def p99(histogram: str, *, by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({histogram}_bucket{{{ON}}}[$__rate_interval])))"


ON = 'instance=~"$server"'
REFUSED = 'penstock_queue_operations_total{outcome!="success"}'
FAILED = f'penstock_requests_total{{{ON},status=~"4..|5.."}}'
SERVERS = {"server": "label_values(penstock_ready, instance)"}
OVERVIEW = Dashboard(
    "overview",
    "Penstock: overview",
    SERVERS,
    (
        number("Servers ready", "none", f"sum(penstock_ready{{{ON}}})"),
        number("Queues", "none", f"max(penstock_queues{{{ON}}})"),
        number("Dead letters", "none", "sum(max by (queue) (penstock_queue_dead_letters))"),
        number(
            "Oldest message",
            "s",
            'max(penstock_queue_oldest_age_seconds{queue!~".*[.]dead"})',
            "How long the oldest message that is ready has waited, dead letters apart.",
        ),
        graph(
            "Messages a second",
            "ops",
            ("sum(rate(penstock_queue_sent_total[$__rate_interval]))", "sent"),
            ("sum(rate(penstock_queue_received_total[$__rate_interval]))", "received"),
            ("sum(rate(penstock_queue_acked_total[$__rate_interval]))", "acked"),
            ("sum(rate(penstock_queue_released_total[$__rate_interval]))", "released"),
        ),
        graph(
            "Messages by state",
            "none",
            ("sum by (state) (max by (queue, state, tier) (penstock_queue_messages))", "{{state}}"),
        ),
        graph(
            "Time for an answer, 99 of 100",
            "s",
            (p99("penstock_request_duration_seconds", by="operation"), "{{operation}}"),
            meaning="Long polls include the time that clients chose to wait.",
        ),
        graph(
            "Requests that failed",
            "reqps",
            (f"sum by (operation, status) (rate({FAILED}[$__rate_interval]))", "{{operation}} {{status}}"),
        ),
        graph(
            "Deepest queues",
            "none",
            ("topk(10, max by (queue) (sum by (instance, queue) (penstock_queue_messages)))", "{{queue}}"),
        ),
        graph(
            "Most dead letters",
            "none",
            ("topk(10, max by (queue) (penstock_queue_dead_letters) > 0)", "{{queue}}"),
        ),
        graph(
            "Connections",
            "none",
            (f"penstock_connections{{{ON}}}", "{{instance}}"),
            (f"penstock_long_polls_waiting{{{ON}}}", "{{instance}} waiting for messages"),
        ),
        graph(
            "CPU",
            "percentunit",
            (f"rate(process_cpu_seconds_total{{{ON}}}[$__rate_interval])", "{{instance}}"),
        ),
        graph("Memory", "bytes", (f"process_resident_memory_bytes{{{ON}}}", "{{instance}}")),
        graph(
            "Journal",
            "bytes",
            (f"penstock_journal_bytes{{{ON}}}", "{{instance}} {{journal}}"),
        ),
        graph(
            "Event loop, 99 of 100 turns",
            "s",
            (p99("penstock_loop_lag_seconds", by="instance"), "{{instance}}"),
            meaning="Only on servers with the setting stall_ms.",
        ),
        graph("Probes", "s", ("penstock_probe_duration_seconds", "{{probe}}")),
        graph(
            "Disk, 99 of 100 fsyncs",
            "s",
            (p99("penstock_fsync_seconds", by="instance, log"), "{{instance}} {{log}}"),
        ),
        graph(
            "Disk, free",
            "percentunit",
            (f"penstock_disk_free_bytes{{{ON}}} / penstock_disk_size_bytes{{{ON}}}", "{{instance}}"),
        ),
        graph(
            "Refused, by queue",
            "ops",
            (
                f"topk(10, sum by (queue, operation, outcome) (rate({REFUSED}[$__rate_interval])) > 0)",
                "{{queue}} {{operation}} {{outcome}}",
            ),
        ),
    ),
)
OF_QUEUE = 'queue="$queue"'
QUEUE = Dashboard(
    "queue",
    "Penstock: one queue",
    {"queue": "label_values(penstock_queue_messages, queue)"},
    (
        number("Messages", "none", f"max(sum by (instance) (penstock_queue_messages{{{OF_QUEUE}}}))"),
        number(
            "Full",
            "percentunit",
            f"max(sum by (instance) (penstock_queue_messages{{{OF_QUEUE}}})) / max(penstock_queue_size{{{OF_QUEUE}}})",
        ),
        number("Dead letters", "none", f"max(penstock_queue_dead_letters{{{OF_QUEUE}}})"),
        number("Stuck", "none", f'max(penstock_queue_messages{{{OF_QUEUE},state="stuck"}})'),
        graph(
            "Ready, by tier",
            "none",
            (f'max by (tier) (penstock_queue_messages{{{OF_QUEUE},state="ready"}})', "{{tier}}"),
        ),
        graph(
            "In flight and delayed",
            "none",
            (f'max by (state) (penstock_queue_messages{{{OF_QUEUE},state!="ready"}})', "{{state}}"),
        ),
        graph(
            "Age of the oldest, by tier",
            "s",
            (f"max by (tier) (penstock_queue_oldest_age_seconds{{{OF_QUEUE}}})", "{{tier}}"),
        ),
        graph(
            "What a message sent now may wait, by tier",
            "s",
            (f"max by (tier) (penstock_queue_wait_bound_seconds{{{OF_QUEUE}}})", "{{tier}}"),
        ),
        graph(
            "Messages a second",
            "ops",
            *(
                (f"sum(rate(penstock_queue_{verb}_total{{{OF_QUEUE}}}[$__rate_interval]))", verb)
                for verb in ("sent", "received", "acked", "released")
            ),
        ),
        graph(
            "Outcomes a second",
            "ops",
            (
                f"sum by (operation, outcome) (rate(penstock_queue_operations_total{{{OF_QUEUE}}}[$__rate_interval]))",
                "{{operation}} {{outcome}}",
            ),
        ),
        graph(
            "Failures a second",
            "ops",
            *(
                (f"sum(rate(penstock_queue_{what}_total{{{OF_QUEUE}}}[$__rate_interval]))", what)
                for what in ("lapsed", "buried")
            ),
        ),
        graph(
            "Age of the oldest that is not settled",
            "s",
            (f"max(penstock_queue_oldest_unsettled_age_seconds{{{OF_QUEUE}}})", ""),
        ),
        graph(
            "Noisy groups",
            "none",
            (f"max(penstock_queue_noisy_groups{{{OF_QUEUE}}})", "groups"),
            (f"max by (state) (penstock_queue_noisy_messages{{{OF_QUEUE}}})", "messages {{state}}"),
        ),
    ),
)
OF_TOPIC = '{topic="$topic"}'
STREAMS = Dashboard(
    "streams",
    "Penstock: topics and consumer groups",
    {"topic": "label_values(kafka_topic_partitions, topic)"},
    (
        graph(
            "Records a second, by topic",
            "ops",
            ("sum by (topic) (rate(kafka_topic_partition_current_offset[$__rate_interval]))", "{{topic}}"),
        ),
        graph(
            "Records in and out a second",
            "ops",
            (f"sum(rate(penstock_topic_records_in_total{OF_TOPIC}[$__rate_interval]))", "in"),
            (f"sum(rate(penstock_topic_records_out_total{OF_TOPIC}[$__rate_interval]))", "out"),
        ),
        graph(
            "Lag, by group and topic",
            "none",
            ("sum by (consumergroup, topic) (kafka_consumergroup_lag)", "{{consumergroup}} {{topic}}"),
        ),
        graph(
            "Lag by partition",
            "none",
            ('kafka_consumergroup_lag{topic="$topic"}', "{{consumergroup}} {{partition}}"),
        ),
        graph(
            "Records kept, by partition",
            "none",
            (
                f"kafka_topic_partition_current_offset{OF_TOPIC} - kafka_topic_partition_oldest_offset{OF_TOPIC}",
                "{{partition}}",
            ),
        ),
        graph("Members", "none", ("kafka_consumergroup_members", "{{consumergroup}}")),
        graph(
            "Kafka clients",
            "none",
            ("penstock_kafka_connections", "{{instance}} connections"),
            ("rate(penstock_kafka_requests_total[$__rate_interval])", "{{instance}} requests a second"),
        ),
    ),
)
POSTGRES = Dashboard(
    "postgresql",
    "Penstock: PostgreSQL",
    {"database": "label_values(penstock_postgres_answering, database)"},
    (
        number("Answering", "none", 'min(penstock_postgres_answering{database="$database"})'),
        number("Oldest snapshot", "s", 'max(penstock_postgres_oldest_snapshot_seconds{database="$database"})'),
        graph(
            "Live rows",
            "none",
            ('max by (table) (penstock_postgres_rows{database="$database",kind="live"})', "{{table}}"),
        ),
        graph(
            "Dead rows",
            "none",
            ('max by (table) (penstock_postgres_rows{database="$database",kind="dead"})', "{{table}}"),
            meaning="What VACUUM has to clear.",
        ),
        graph(
            "Oldest snapshot, in transactions",
            "none",
            (
                'max by (holder) (penstock_postgres_oldest_snapshot_transactions{database="$database"})',
                "{{holder}}",
            ),
        ),
    ),
)
UNCONFIRMED = 'penstock_postgres_commits_unconfirmed_total{database="$database"}'
CLUSTER = Dashboard(
    "cluster",
    "Penstock: several servers",
    {"database": "label_values(penstock_postgres_answering, database)"},
    (
        number("Servers ready", "none", "sum(penstock_ready)"),
        number("Standbys connected", "none", 'max(penstock_postgres_standbys{database="$database"})'),
        number("Standbys needed", "none", 'max(penstock_postgres_standbys_needed{database="$database"})'),
        number("Confirming", "none", 'min(penstock_postgres_confirming{database="$database"})'),
        graph("Ready, by server", "none", ("penstock_ready", "{{instance}}")),
        graph(
            "Requests a second, by server",
            "reqps",
            ("sum by (instance) (rate(penstock_requests_total[$__rate_interval]))", "{{instance}}"),
        ),
        graph(
            "Answers of 500 and above, by server",
            "reqps",
            (
                'sum by (instance, status) (rate(penstock_requests_total{status=~"5.."}[$__rate_interval]))',
                "{{instance}} {{status}}",
            ),
        ),
        graph(
            "Commits that no standby confirmed in time",
            "ops",
            (
                f"sum by (instance) (rate({UNCONFIRMED}[$__rate_interval]))",
                "{{instance}}",
            ),
        ),
        graph("Connections, by server", "none", ("penstock_connections", "{{instance}}")),
        graph(
            "CPU, by server",
            "percentunit",
            ("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}"),
        ),
    ),
)
DASHBOARDS = (OVERVIEW, QUEUE, STREAMS, POSTGRES, CLUSTER)


def as_grafana(board: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"penstock-{board.name}",
        "title": board.title,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(name, query) for name, query in board.variables.items())]},
        "panels": list(_placed(board.panels)),
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> dict[str, Any]:
    is_many = name == "server"
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": is_many,
        "includeAll": is_many,
        **({"current": {"text": "All", "value": "$__all"}} if is_many else {}),
    }


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Lay panels out from left to right: numbers on a quarter of a row, graphs on half of one."""
    placed: list[dict[str, Any]] = []
    x = y = row_height = 0
    for place, panel in enumerate(panels, 1):
        width, height = (6, 4) if panel.is_number else (WIDTH, HEIGHT)
        if x + width > COLUMNS or (row_height and height != row_height):
            x, y, row_height = 0, y + row_height, 0
        placed.append(
            {
                "id": place,
                "title": panel.title,
                "description": panel.meaning,
                "type": "stat" if panel.is_number else "timeseries",
                "datasource": SOURCE,
                "gridPos": {"x": x, "y": y, "w": width, "h": height},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {} if panel.is_number else {"legend": {"displayMode": "list", "placement": "bottom"}},
                "targets": [
                    {"refId": chr(ord("A") + nth), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
                    for nth, (expression, legend) in enumerate(panel.lines)
                ],
            }
        )
        x, row_height = x + width, height
    return placed


def text_of(board: Dashboard) -> str:
    return json.dumps(as_grafana(board), indent=1) + "\n"


if __name__ == "__main__":
    for board in DASHBOARDS:
        (FOLDER / f"{board.name}.json").write_text(text_of(board))
