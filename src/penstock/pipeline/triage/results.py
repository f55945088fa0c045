"""The files of a triage: the causes as Parquet and CSV, and signatures for `replay`.

causes.parquet, causes.csv   one row for each cause
signatures.json              every signature found: what `replay --signature` takes
signatures/<id>.json         the same for one cause, to replay just that
memory.json                  what the next run compares with
report.html                  for people

{"version": 1, "signatures": [{"id": …, "signature": …, "cause": …, "count": …, "queues": […],
                               "first_seen": …, "last_seen": …}, …]}
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.pipeline.reports.csv_files import write_rows
from penstock.pipeline.triage.causes import Cause

SIGNATURES = "signatures.json"
_VERSION = 1


def write_causes(folder: Path, causes: Sequence[Cause]) -> None:
    import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - it comes with Spark.
    import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415

    stamp = pa.timestamp("us", tz="UTC")
    tenant = pa.struct([("tenant", pa.string()), ("burials", pa.int64())])
    kinds = {
        **dict.fromkeys(("cause_id", "signature", "sample_error", "sample_body", "trend", "deploy"), pa.string()),
        **dict.fromkeys(("burials", "since_last", "messages", "tenants", "deliveries", "still_dead"), pa.int64()),
        **dict.fromkeys(("first_seen", "last_seen"), stamp),
        **dict.fromkeys(("queues", "sample_ids"), pa.list_(pa.string())),
        **dict.fromkeys(("tiers", "buckets"), pa.list_(pa.int64())),
        "top_tenants": pa.list_(tenant),
        "is_new": pa.bool_(),
    }
    schema = pa.schema([(name, kinds[name]) for name in Cause.__dataclass_fields__])
    rows = [
        {**asdict(cause), "top_tenants": [{"tenant": name, "burials": count} for name, count in cause.top_tenants]}
        for cause in causes
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "causes.parquet", compression="zstd")
    write_rows(folder / "causes.csv", Cause.__dataclass_fields__, map(asdict, causes))


def write_signatures(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of `transforms.triage.signatures`, all together and for each cause."""
    told = defaultdict(list)
    for row in rows:
        told[row["cause_id"]].append(
            {
                "id": row["replay_id"],
                "signature": row["replay_signature"],
                "cause": row["cause_id"],
                "count": row["burials"],
                "queues": row["queues"],
                "first_seen": row["first_seen"].isoformat(),
                "last_seen": row["last_seen"].isoformat(),
            }
        )
    _write(folder / SIGNATURES, [entry for entries in told.values() for entry in entries])
    (folder / "signatures").mkdir()
    for cause, entries in told.items():
        _write(folder / "signatures" / f"{cause}.json", entries)


def _write(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    path.write_text(json.dumps({"version": _VERSION, "signatures": entries}, indent=1) + "\n", encoding="utf-8")
