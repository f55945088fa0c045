"""Streams of a real Spark, on a machine that may be busy.

Spark gives the Python that plans a stream ten seconds to start, and no setting changes that (`archives/stream.py` has
to live with it, too). A query whose planner was late has read nothing, and is started again.
"""

import time
from functools import partial

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.waiting import wait_until

STREAM_S_MAX = 600
_LATE = "Python worker failed to connect back"


def begun(writer: DataStreamWriter, out: str) -> StreamingQuery:
    """Start a query that writes to a folder, and return it when it has done a batch, or has ended."""
    deadline = time.monotonic() + STREAM_S_MAX
    while True:
        query = writer.start(out)
        wait_until(partial(_has_done_a_batch_or_ended, query), within_s=STREAM_S_MAX)
        failure = query.exception()
        if failure is None or _LATE not in str(failure):
            return query
        assert time.monotonic() < deadline, failure


def _has_done_a_batch_or_ended(query: StreamingQuery) -> bool:
    return query.lastProgress is not None or not query.isActive


def run(writer: DataStreamWriter, out: str) -> StreamingQuery:
    """Let a query write to a folder all that is there now, and return it; raises what it failed of."""
    query = begun(writer.trigger(availableNow=True), out)
    assert query.awaitTermination(STREAM_S_MAX), query.status
    return query
