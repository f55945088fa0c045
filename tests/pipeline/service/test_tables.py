"""Results as tables: replaced as a whole, or one file for each run, which are removed in time."""

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.pipeline.service.tables import publish

DAY = 86_400.0
AT = 20_000 * DAY


def results(folder: Path, file: str, **columns: list[int]) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / file)
    return folder


def test_a_table_of_states_has_the_last_run_of_each_job(tmp_path: Path) -> None:
    for job, values in (("skew", [1, 2]), ("orders", [3]), ("skew", [4])):
        folder = results(tmp_path / job, "heaviest.parquet", rank=values)
        publish(tmp_path, kind="skew", job=job, results=folder, run_at=AT, keep_s=DAY)

    rows = ds.dataset(tmp_path / "tables" / "skew").to_table().sort_by("job").to_pylist()
    assert [(row["job"], row["rank"], row["run_at"].timestamp()) for row in rows] == [
        ("orders", 3, AT),
        ("skew", 4, AT),
    ]


def test_a_table_that_grows_has_each_run_until_it_is_old(tmp_path: Path) -> None:
    for job in ("audit", "audit-orders"):
        for day in range(4):
            folder = results(tmp_path / job, "queues.parquet", lost=[day])
            publish(tmp_path, kind="audit", job=job, results=folder, run_at=AT + day * DAY, keep_s=2 * DAY)

    rows = ds.dataset(tmp_path / "tables" / "audit").to_table().to_pylist()
    assert sorted((row["job"], row["lost"]) for row in rows) == [
        (job, day) for job in ("audit", "audit-orders") for day in (1, 2, 3)
    ]
    assert not list((tmp_path / "tables" / ".partial").iterdir())
