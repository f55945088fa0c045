"""Registers the data source with Spark, which looks for packages called `pyspark_*`; nothing else is here."""

from penstock.pipeline.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
