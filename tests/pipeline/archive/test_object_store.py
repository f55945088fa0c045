"""An archive in a bucket: moto's server refuses a second write of one version, as S3 does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from bench import moto_peer
from bench.pipeline_data import write_history
from penstock.pipeline.archive import upkeep
from penstock.pipeline.archive.files import ARCHIVED, write_rows
from penstock.pipeline.archive.position import position_name
from penstock.pipeline.archive.upkeep import Chosen
from penstock.pipeline.locations import MESSAGES
from penstock.pipeline.tables import DAY, AnotherWriter, Table, uri_for_tasks
from tests.pipeline.archive.test_table import BATCH_ROWS, rows

ROWS = 3_000
SECRET = "nobody-may-see-this"
# What a team would run: the archive, twice, and a job that reads it.
_JOB = """
import json, sys
from penstock.pipeline.archive.job import ArchiveOptions, run
from penstock.pipeline.job import Silent
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.spark import open_session

spark = open_session(master="local[2]", name="bucket", settings={"spark.driver.memory": "1g"})
options = ArchiveOptions(source=HistoryLocation(where=sys.argv[1]), root=sys.argv[2], rows_per_batch=1_000)
figures = [run(spark, options, Silent()).figures for _ in range(2)]
found = read_history(spark, HistoryLocation(where=sys.argv[2]))
wanted = read_history(spark, HistoryLocation(where=sys.argv[1]))
different = found.exceptAll(wanted).count() + wanted.exceptAll(found).count()
print(json.dumps({"figures": figures, "rows": found.count(), "different": different}))
spark.stop()
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Credentials are where AWS's own programs find them."""
    with moto_peer.server(tmp_path) as server:
        said = {"ENDPOINT_URL": server.url, "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": SECRET, "REGION": "eu-west-1"}
        for name, value in said.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        place = {"LocationConstraint": "eu-west-1"}
        boto3.client("s3", region_name="eu-west-1").create_bucket(Bucket="archives", CreateBucketConfiguration=place)
        yield "s3://archives/team"


def begin(root: str) -> Table:
    return Table.begin(f"{root}/{MESSAGES}", ARCHIVED, described={"shards": [0]}, partition_by=[DAY])


def add(table: Table) -> None:
    start = table.position(position_name(0)) or 0
    files = write_rows(rows(range(start, start + BATCH_ROWS)), uri_for_tasks(table.location))
    table.commit(files, positions={position_name(0): start + BATCH_ROWS})


def offsets_of(table: Table) -> list[int]:
    return sorted(Table.open(table.location).delta.to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


@pytest.mark.skipif(not moto_peer.is_installed(), reason="moto is not installed")
def test_an_archive_in_a_bucket_is_kept_by_the_same_rules(bucket: str) -> None:
    slow = begin(bucket)
    add(slow)
    quick = Table.open(slow.location)
    add(quick)
    with pytest.raises(AnotherWriter, match="two are at work"):
        add(slow)
    assert offsets_of(quick) == list(range(2 * BATCH_ROWS))

    assert upkeep.compact(bucket).figures == {"files_before": 4, "files_after": 2}
    done = upkeep.delete(bucket, Chosen(queues=["mail"]))
    assert done.figures["rows"] == BATCH_ROWS
    # Of the archiver that was refused, and has not cleaned up.
    assert done.figures["files_unnamed"] == 2
    assert offsets_of(quick) == list(range(0, 2 * BATCH_ROWS, 2))


@pytest.mark.slow
@pytest.mark.skipif(not moto_peer.is_installed(), reason="moto is not installed")
def test_a_job_archives_into_a_bucket_and_another_reads_it_without_a_jar(bucket: str, tmp_path: Path) -> None:
    write_history(tmp_path / "data", ROWS, seed=3, rows_per_frame=500)
    command = [sys.executable, "-c", _JOB, str(tmp_path / "data"), bucket]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    assert done.returncode == 0, done.stderr[-4_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert [each["rows"] for each in said["figures"]] == [ROWS, 0]
    assert (said["rows"], said["different"]) == (ROWS, 0)
    assert SECRET not in done.stdout + done.stderr
