"""How fast Spark reads the history of a store in PostgreSQL, directly, beside Parquet files with the same rows.

    INSERT … generate_series ──▶ a PostgreSQL of our own ──▶ format("penstock"), postgresql://…  ─┐
                                                     └─────▶ Parquet, as Spark writes it         ─┴─▶ an aggregate

The same two questions as in `pipeline_source.py`. Database and Spark share the machine's cores. It is a program of its
own, as it wants PostgreSQL:

    python -m bench.pipeline_database --rows 2000000
    python -m bench.pipeline_database --rows 2000000 --packs 1000    what was acked a thousand at a time
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import psycopg

from bench.pipeline_source import NARROW, history, narrow, wide
from penstock.store.postgres import migrate
from penstock.store.postgres.database import Database, PostgresSettings
from tests.postgres.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUNDS = 3
TARGET = 400_000
_ROWS_PER_TRANSACTION = 100_000
_QUEUES = "INSERT INTO penstock.queue SELECT n, 'queue-' || n, '{}', 0, '', '{}', 0, NULL FROM generate_series(1, 5) n"
# Three in a hundred were buried with an error, a tenth has a group, and none a body.
_SETTLED = """
INSERT INTO penstock.history (
    period, at_offset, queue, key, home, home_key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms,
    deliveries, tier, ending, grp, error, body, attributes
)
SELECT
    1, pg_current_xact_id()::text::bigint << 24 | n, mod(n, 5) + 1, (%(first)s + n) << 3 | 2, NULL, NULL,
    1700000000000 + n, 1700000000100 + n, 1700000000100 + n, 1700000000200 + n, 1 + mod(n, 3), 2,
    CASE WHEN mod(n, 33) = 0 THEN 2 ELSE 1 END, CASE WHEN mod(n, 10) = 0 THEN ('customer-' || mod(n, 1000))::bytea END,
    CASE WHEN mod(n, 33) = 0 THEN 'TimeoutError: no answer in 30 s' END, NULL, NULL
FROM generate_series(0, %(rows)s - 1) AS n
"""
# The messages of an ack are one row, in a transaction of its own.
_ACKED = """
DO $$ BEGIN
    FOR v_first IN 0..{rows} - 1 BY {packs} LOOP
        INSERT INTO penstock.history (
            period, at_offset, queue, key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier,
            ending, packed, keys, sent_ats_ms
        )
        SELECT
            1, pg_current_xact_id()::text::bigint << 24, mod(v_first / {packs}, 5) + 1, v_first::bigint << 3 | 2,
            1700000000000 + v_first, 1700000000100 + v_first, 1700000000100 + v_first, 1700000000200 + v_first, 1, 2, 1,
            count(*), string_agg(int8send(n::bigint << 3 | 2), '' ORDER BY n),
            string_agg(int8send(1700000000000 + n), '' ORDER BY n)
        FROM generate_series(v_first, least(v_first + {packs}, {rows}) - 1) AS n;
        COMMIT;
    END LOOP;
END $$
"""


def fill(url: str, rows: int, packs: int = 1) -> None:
    """Make a store, and a history of so many messages in it: a row for each, or for as many as a pack has."""

    async def make() -> None:
        connection = await Database(PostgresSettings(url=url)).connect()
        await migrate.migrate(connection, "penstock")
        await connection.close()

    asyncio.run(make())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_QUEUES)
        if packs > 1:
            connection.execute("SET synchronous_commit = off")
            connection.execute(_ACKED.format(rows=rows, packs=packs).encode())
            return
        for first in range(0, rows, _ROWS_PER_TRANSACTION):
            part = min(_ROWS_PER_TRANSACTION, rows - first)
            connection.execute(_SETTLED, {"first": first, "rows": part})


def measure(url: str, rows: int, folder: str) -> None:
    from penstock.pipeline.spark import open_session  # noqa: PLC0415

    spark = open_session(master="local[2]", name="bench", settings={"spark.driver.memory": "1g"})
    try:
        history(spark, "url", url).write.parquet(f"{folder}/parquet")
        sides: dict[str, Callable[[], DataFrame]] = {
            "PostgreSQL, narrow": lambda: narrow(history(spark, "url", url, columns=NARROW)),
            "PostgreSQL, wide": lambda: wide(history(spark, "url", url)),
            "Parquet, narrow": lambda: narrow(spark.read.parquet(f"{folder}/parquet")),
            "Parquet, wide": lambda: wide(spark.read.parquet(f"{folder}/parquet")),
        }
        for name, query in sides.items():
            rates = []
            for _ in range(ROUNDS + 1):
                began = time.perf_counter()
                counted = sum(row["messages"] for row in query().collect())
                rates.append(rows / (time.perf_counter() - began))
                assert counted == rows, f"{name}: {counted} of {rows}"
            # The first round warms up.
            print(f"{name:20} {median(rates[1:]):12,.0f} rows/s   load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--packs", type=int, default=1, help="how many messages were acked together")
    asked = parser.parse_args()
    with Server(options={"shared_buffers": "512MB"}) as server, tempfile.TemporaryDirectory() as scratch:
        database = server.new_database()
        fill(database, asked.rows, asked.packs)
        print(f"{asked.rows:,} rows, packs of {asked.packs:,}; the target is {TARGET:,} rows/s")
        measure(database, asked.rows, scratch)
