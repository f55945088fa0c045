"""The reference page of `pipeline.toml`: its sections and keys, the kinds of job, and the tables that they make."""

from collections.abc import Sequence

from penstock.pipeline.service.plan import JOB_KEYS, KINDS, PIPELINE_KEYS, Key
from penstock.pipeline.service.tables import TABLES

OPENING = """\
`penstock pipeline run pipeline.toml` reads this file: which jobs there are, when each runs, and where its results go.
[How to run it](../how-to/run-the-pipeline-by-itself.md). A name or a value that is not allowed is an error that names
the key; `--check` shows the plan and runs nothing. The API key is in `PENSTOCK_KEY`, not here.

```text
[pipeline]
source = "http://127.0.0.1:8080"
archive = "/srv/archive"
out = "/srv/pipeline"

[jobs.archive]

[jobs.signals]
every = "5m"
window = "1m"

[jobs.orders-causes]
kind = "triage"
queues = ["orders"]

[jobs.audit]
at = "03:00"

[spark]
"spark.driver.memory" = "2g"
```"""

_JOBS = """\
A job is a section `[jobs.NAME]`. Its name is that of its folder of results, and its kind, unless it says another one.
Reports on the archive wait until it is there. The archive has a lane of its own; reports run one at a time."""

_SPARK = """\
Settings of Spark, in quotes as their names have dots; `--conf` overrides them. Jobs share the cores fairly
(`spark.scheduler.mode`)."""

_TABLES = """\
In `tables` below `out`, each a folder of Parquet files for Grafana, Superset, DuckDB or a notebook. Besides the columns
of the results each row has `job` and `run_at`. A file takes its place in one step: a reader never sees half of it."""


def pipeline_lines() -> list[str]:
    lines = ["## `[pipeline]`", "", *_table(PIPELINE_KEYS), "", "## `[jobs.NAME]`", "", _JOBS, "", *_table(JOB_KEYS)]
    for name, kind in KINDS.items():
        lines += ["", f"### `{name}`", "", f"{kind.meaning} By default `{kind.every}`."]
        lines += ["", *_table(kind.keys)] if kind.keys else []
    lines += ["", "## `[spark]`", "", _SPARK, "", "## Tables", "", _TABLES, ""]
    lines += ["| table | job | rows | |", "|---|---|---|---|"]
    for name, tables in TABLES.items():
        for each in tables:
            kept = "kept for `keep`" if each.is_growing else "of the last run"
            lines.append(f"| `{each.table}` | `{name}` | {kept} | {each.meaning} |")
    return lines


def _table(keys: Sequence[Key]) -> list[str]:
    rows = [f"| `{key.name}` | {key.allowed} | {_default(key)} | {key.meaning} |" for key in keys]
    return ["| key | allowed | default | meaning |", "|---|---|---|---|", *rows]


def _default(key: Key) -> str:
    return f"`{key.default}`" if key.default else "–"
