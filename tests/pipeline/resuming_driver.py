"""``python -m tests.pipeline.resuming_driver OPTIONS``: a driver of Spark of its own, for a test to kill."""

import json
import sys

from penstock.pipeline.spark import open_session
from tests.pipeline.interrupting import frame


def main(said: str) -> None:
    spark = open_session(master="local[1]", name="driver", settings={"spark.ui.enabled": "false"})
    frame(spark, "data").write.format("penstock").mode("append").options(**json.loads(said)).save()


if __name__ == "__main__":
    main(*sys.argv[1:])
