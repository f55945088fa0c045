"""`spark.read.format("penstock")`, and `readStream`, `write`, `writeStream`: the door, and nothing behind it.

Spark makes a `PenstockSource` of the options of one read or write; readers are in this
package, writers in `penstock.pipeline.sink`. Executors import both from a zip, so what
only one of them needs is imported on first use.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "penstock"


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from penstock.pipeline.source.reader import schema_for  # noqa: PLC0415 - a writer needs none of it.

        return schema_for(self.options)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from penstock.pipeline.source.reader import HistoryReader  # noqa: PLC0415

        return HistoryReader(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name.
        from penstock.pipeline.source.reader import HistoryStreamReader  # noqa: PLC0415

        return HistoryStreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.sink.writer import MessageWriter  # noqa: PLC0415

        return MessageWriter(self.options, schema, is_overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name.
        from penstock.pipeline.sink.writer import MessageStreamWriter  # noqa: PLC0415

        return MessageStreamWriter(self.options, schema, is_overwrite=overwrite)
