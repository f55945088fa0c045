"""The batch reader: Spark asks it for partitions on the driver, and for the rows of each on an executor."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.pipeline.schemas import Column, ddl
from penstock.pipeline.source.history_arrow import Wanted
from penstock.pipeline.source.opening import open_histories
from penstock.pipeline.source.options import BadOption, ReadOptions, known_columns, read_options
from penstock.pipeline.source.ranges import Slice, Slices, batch_ranges
from penstock.pipeline.source.topics import joined

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_for(options: Mapping[str, str]) -> str:
    """Return the columns of a read, as DDL; raises `BadOption`."""
    return ddl(read_options(options).columns)


class HistoryReader(DataSourceReader):
    """Pickled with what the driver knew: the options and the API key, so executors need no environment."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._options = options_with(options, schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.is_live:
            from penstock.pipeline.source.live import live_partitions  # noqa: PLC0415

            return live_partitions(options)
        goes_on = options.starting == "earliest" or not options.fails_on_data_loss
        parts: list[Slice] = []
        with open_histories(options) as histories:
            for rows in batch_ranges(histories, options):
                parts += histories.slices(rows, options.rows_per_partition, goes_on=goes_on)
        return tasks_of(options, parts)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Slice | Slices):
            return read_slices(self._options, partition)
        if self._options.is_live and partition.value is not None:
            from penstock.pipeline.source.live import read_live  # noqa: PLC0415

            return read_live(self._options, partition.value)
        # Spark makes a partition of nothing where there are none.
        return iter(())


def tasks_of(options: ReadOptions, parts: list[Slice]) -> list[InputPartition]:
    """Return what each task reads. Offsets of a topic count records, so that small parts are known by them."""
    return joined(parts, options.rows_per_partition) if options.topic else list(parts)


def read_slices(options: ReadOptions, task: Slice | Slices) -> Iterator[Any]:
    wanted = Wanted(options.columns, frozenset(options.queues), options.from_ms, options.until_ms)
    with open_histories(options) as histories:
        for part in task.parts if isinstance(task, Slices) else [task]:
            yield from histories.read(part, wanted)


def options_with(given: Mapping[str, str], schema: "StructType") -> ReadOptions:
    """Return the options of a read with the columns that Spark expects: ours, unless somebody gave it a schema."""
    options = read_options(given)
    there = known_columns(is_live=options.is_live, is_topic=bool(options.topic))
    known = {column.name: column for column in there}
    columns: list[Column] = []
    for field in schema.fields:
        column, kind = known.get(field.name), field.dataType.simpleString().upper()
        if column is None or column.kind.upper().replace(" ", "") != kind:
            raise BadOption(
                f"the schema has a column `{field.name}` {kind}; there are: {ddl(tuple(known.values()))}. "
                "Leave the schema out, or say which columns with the option columns"
            )
        columns.append(column)
    return replace(options, columns=tuple(columns))
