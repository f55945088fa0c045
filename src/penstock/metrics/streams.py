"""Metrics of topics and consumer groups, with the names of kafka_exporter, which dashboards for Kafka use."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from penstock import telemetry
from penstock.broker.consumer_groups import GroupNotFound, Groups
from penstock.broker.topics import Topics, TopicTotals
from penstock.metrics.histograms import add_histogram, histogram_family
from penstock.runtime.interface import Histogram
from penstock.telemetry import Metric

# Partitions, and rows of groups, that have numbers of their own.
ROWS_MAX = 10_000
_TURN_TOPICS, _TURN_GROUPS = 50, 10

Rows = dict[Metric, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the listener for Kafka clients has counted."""

    connections: int
    # How long requests took, by the number of their API; and errors that were answered, by their names.
    durations: Mapping[int, Histogram]
    errors: Mapping[str, int]
    # The names of the APIs.
    names: Mapping[int, str]
    refused: int
    timed_out: int


def families_of_clients(found: Clients) -> list[Any]:
    requests = sum(histogram.count for histogram in found.durations.values())
    families: list[Any] = []
    for metric, count in (
        (telemetry.KAFKA_CONNECTIONS, found.connections),
        (telemetry.KAFKA_REQUESTS, requests),
        (telemetry.KAFKA_REFUSED, found.refused),
        (telemetry.KAFKA_TIMED_OUT, found.timed_out),
    ):
        family = _family(metric)
        family.add_metric((), count)
        families.append(family)
    seconds = histogram_family(telemetry.KAFKA_SECONDS)
    for api, histogram in sorted(found.durations.items()):
        add_histogram(seconds, (found.names[api],), histogram)
    errors = _family(telemetry.KAFKA_ERRORS)
    for error, count in sorted(found.errors.items()):
        errors.add_metric((error,), count)
    return [*families, seconds, errors]


async def families_of_streams(topics: Topics, groups: Groups) -> list[Any]:
    families = {metric: _family(metric) for metric in telemetry.STREAM_METRICS}
    await topics.refresh()
    await topics.look_at(topics.list())
    await _of_topics(families, topics)
    left = ROWS_MAX
    for place, each in enumerate(await groups.listed(is_own=True)):
        left -= await _of_group(families, groups, each.group) if left > 0 else 0
        if place % _TURN_GROUPS == 0:
            await asyncio.sleep(0)
    return list(families.values())


async def _of_topics(families: Rows, topics: Topics) -> None:
    left = ROWS_MAX
    for name in topics.totals.keys() - {topic.name for topic in topics.list()}:
        # Deleted: it leaves no series behind.
        del topics.totals[name]
    for place, topic in enumerate(topics.list()):
        if place % _TURN_TOPICS == 0:
            await asyncio.sleep(0)
        families[telemetry.TOPIC_PARTITIONS].add_metric((topic.name,), len(topic.partitions))
        _count_topic(families, topics.totals.get(topic.name) or TopicTotals(), topic.name)
        for index, partition in enumerate(topic.partitions[: max(0, left)]):
            labels = topic.name, str(index)
            families[telemetry.PARTITION_CURRENT].add_metric(labels, partition.high_watermark)
            families[telemetry.PARTITION_OLDEST].add_metric(labels, partition.start_offset)
        left -= len(topic.partitions)


def _count_topic(families: Rows, totals: TopicTotals, name: str) -> None:
    families[telemetry.TOPIC_RECORDS_IN].add_metric((name,), totals.records_in)
    families[telemetry.TOPIC_RECORDS_OUT].add_metric((name,), totals.records_out)
    families[telemetry.TOPIC_BYTES_IN].add_metric((name,), totals.bytes_in)
    families[telemetry.TOPIC_BYTES_OUT].add_metric((name,), totals.bytes_out)


async def _of_group(families: Rows, groups: Groups, name: str) -> int:
    """Add the numbers of a group; return how many rows they are."""
    try:
        described, lags = await groups.describe(name), await groups.lag(name)
    except GroupNotFound:
        # It went between two looks.
        return 0
    families[telemetry.GROUP_MEMBERS].add_metric((name,), len(described.members))
    for each in lags:
        if each.committed is not None and each.lag is not None:
            labels = name, each.topic, str(each.partition)
            families[telemetry.GROUP_CURRENT].add_metric(labels, each.committed)
            families[telemetry.GROUP_LAG].add_metric(labels, each.lag)
    return len(lags)


def _family(metric: Metric) -> Any:
    kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    return kind(metric.name, metric.meaning, labels=metric.labels)
