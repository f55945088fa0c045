"""How fast Spark reads a history: from a data folder and from a server, beside Parquet files with the same rows.

    write_history ──▶ folder ──▶ format("penstock"), path      ─┐
                        │                                       ├─▶ an aggregate, local[2]
                        ├──────▶ a server ──▶ url              ─┤
                        └──────▶ Parquet, as Spark writes it   ─┘

*narrow* counts rows and adds up deliveries by outcome: two columns, which Parquet finds
by itself and our source is told by `columns`. *wide* also counts every other column.
The session is made once and warmed up by a round that does not count.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench import Bench, Row, Workload, processes
from bench.pipeline_data import write_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 3
FOLDER_TARGET = 1_000_000
SERVER_TARGET = 300_000
NARROW = "outcome,delivery_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsHistory:
    name: str
    rows: int
    steps: int = 2 + 2 * (ROUNDS + 1)
    is_long: bool = True

    def run(self, bench: Bench) -> list[Row]:
        # Imported here: the log is measured without Spark, too.
        from penstock.pipeline.spark import open_session  # noqa: PLC0415

        with bench.folder() as folder, ExitStack() as stack:
            write_history(folder / "data", self.rows, end_ms=time.time_ns() // 1_000_000)
            bench.step_done()
            spark = open_session(master="local[2]", name="bench", settings={"spark.driver.memory": "1g"})
            stack.callback(spark.stop)
            parquet = str(folder / "parquet")
            history(spark, "path", folder / "data").write.parquet(parquet)
            bench.step_done()
            peers = {
                "parquet, narrow": lambda: narrow(spark.read.parquet(parquet)),
                "parquet, wide": lambda: wide(spark.read.parquet(parquet)),
            }
            found = self._rates(bench, {**_sides(spark, "folder", "path", folder / "data"), **peers})
            server = stack.enter_context(processes.penstock(folder))
            found |= self._rates(bench, _sides(spark, "HTTP", "url", server.url))
        return [self._row(name, found) for name in found if not name.startswith("parquet")]

    def _rates(self, bench: Bench, sides: "dict[str, Callable[[], DataFrame]]") -> dict[str, list[float]]:
        """Return rows a second of each side in each round but the first; sides take turns."""
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(ROUNDS + 1):
            for name, query in sides.items():
                began = time.perf_counter()
                counted = sum(row["messages"] for row in query().collect())
                took = time.perf_counter() - began
                assert counted == self.rows, f"{name}: {counted} of {self.rows}"
                if turn:
                    rates[name].append(self.rows / took)
            bench.step_done()
        return rates

    def _row(self, name: str, found: dict[str, list[float]]) -> Row:
        shape = name.rpartition(", ")[2]
        peer = median(found[f"parquet, {shape}"])
        return Row(
            name=f"{self.name}, {name}",
            figure=median(found[name]),
            unit="rows/s",
            target=FOLDER_TARGET if name.startswith("folder") else SERVER_TARGET,
            to_parquet=median(found[name]) / peer,
            rounds=tuple(found[name]),
            remark=f"{self.rows:,} rows, load {os.getloadavg()[0]:.1f}; Parquet {peer:,.0f} rows/s",
        )


def _sides(spark: "SparkSession", name: str, option: str, where: Path | str) -> "dict[str, Callable[[], DataFrame]]":
    return {
        f"{name}, narrow": lambda: narrow(history(spark, option, where, columns=NARROW)),
        f"{name}, wide": lambda: wide(history(spark, option, where)),
    }


def history(spark: "SparkSession", option: str, where: Path | str, **more: str) -> "DataFrame":
    return spark.read.format("penstock").option(option, str(where)).options(**more).load()


def narrow(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    return rows.groupBy("outcome").agg(f.count("*").alias("messages"), f.sum("delivery_count"))


def wide(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    others = [f.count(f.col(name)).alias(f"counted_{name}") for name in rows.columns if name != "outcome"]
    return rows.groupBy("outcome").agg(f.count("*").alias("messages"), f.sum("delivery_count"), *others)


WORKLOADS: tuple[Workload, ...] = (ReadsHistory(name="pipeline: history", rows=4_000_000),)
