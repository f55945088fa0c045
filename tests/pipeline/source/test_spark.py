"""`spark.read.format("penstock")` and `readStream`, in a real Spark."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from bench.pipeline_data import write_history
from penstock.contract.history_columns import HISTORY
from penstock.pipeline.locations import HistoryLocation, read_history
from tests.pipeline.reading import read
from tests.pipeline.streams import begun, run

ROWS = 4_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    write_history(made, ROWS, seed=1, rows_per_frame=250, with_bodies=True)
    return made


def reader(spark: SparkSession, folder: Path) -> DataFrameReader:
    return spark.read.format("penstock").option("path", str(folder)).option("rowsPerPartition", "2500")


def test_spark_reads_the_rows_of_a_data_folder_with_their_types(spark: SparkSession, folder: Path) -> None:
    rows = reader(spark, folder).load()

    assert [(field.name, field.dataType.simpleString().upper()) for field in rows.schema] == [
        (column.name, column.kind) for column in HISTORY
    ]
    found = rows.orderBy("offset").toArrow()
    assert found.num_rows == ROWS
    assert found.to_pylist() == read({"path": str(folder)}).to_pylist()


def test_reads_with_different_ranges_do_not_disturb_each_other(spark: SparkSession, folder: Path) -> None:
    everything = reader(spark, folder).load()
    middle = "2026-02-26T12:00:00Z"
    early = reader(spark, folder).option("endingTime", middle).load()
    mail = reader(spark, folder).option("startingTime", middle).option("queue", "mail").load()

    parts = {"all": everything, "early": early, "mail": mail, "again": everything.where("queue = 'mail'")}
    counted = _together(parts).groupBy("part").count().collect()
    found = {row["part"]: row["count"] for row in counted}

    table = read({"path": str(folder), "columns": "queue,settled_at"}).to_pylist()
    is_early = [f"{row['settled_at']:%Y-%m-%dT%H:%M}" < "2026-02-26T12:00" for row in table]
    is_mail = [row["queue"] == "mail" for row in table]
    late_mail = sum(mail and not early for mail, early in zip(is_mail, is_early, strict=True))
    assert found == {"all": ROWS, "early": sum(is_early), "mail": late_mail, "again": sum(is_mail)}
    assert 0 < late_mail < sum(is_mail)


def _together(parts: dict[str, DataFrame]) -> DataFrame:
    first, *others = (rows.select(f.lit(name).alias("part"), "offset") for name, rows in parts.items())
    for other in others:
        first = first.union(other)
    return first


def test_a_place_is_read_with_the_id_of_each_message(spark: SparkSession, folder: Path) -> None:
    rows = read_history(spark, HistoryLocation(where=str(folder), queues=("mail",), since="2026-02-24T00:00:00Z"))

    first = rows.orderBy("offset").select("id", "first_queue", "number", "sent_tier").first()
    assert first is not None
    assert first.id == f"{first.first_queue:x}-{first.number * 8 + first.sent_tier:x}"


def test_spark_says_which_option_is_wrong(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(AnalysisException, match=r"there is no option 'colum'\. Do you mean columns\?"):
        reader(spark, folder).option("colum", "queue").load()
    with pytest.raises(AnalysisException, match="the schema has a column `colour` STRING"):
        reader(spark, folder).schema("colour STRING").load().count()
    assert reader(spark, folder).schema("outcome STRING, offset BIGINT").load().columns == ["outcome", "offset"]


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    chosen = spark.readStream.format("penstock").option("path", str(folder)).option("maxRowsPerTrigger", "1500")
    return chosen.option("columns", "shard,offset,queue").load()


def test_a_stream_that_was_stopped_goes_on_with_each_row_once(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    writing = _stream(spark, folder).writeStream.format("parquet").option("checkpointLocation", checkpoint)

    begun(writing.trigger(processingTime="0 seconds"), out).stop()
    before = spark.read.parquet(out).count()
    sizes = [progress.numInputRows for progress in run(writing, out).recentProgress]

    assert before > 0
    # At most 1,500 rows at a time, in whole frames.
    assert all(size <= 1_500 for size in sizes)
    assert sum(sizes) >= ROWS - before
    written = spark.read.parquet(out).select("offset").toArrow().column("offset").to_pylist()
    assert sorted(written) == sorted(read({"path": str(folder), "columns": "offset"}).column("offset").to_pylist())
