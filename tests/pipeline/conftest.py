"""One Spark session for all tests of a process: starting one takes ten seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.spark import open_session

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A task that fails is tried again, as on a cluster.
    session = open_session(master="local[2,4]", name="tests", settings=SETTINGS)
    yield session
    session.stop()
