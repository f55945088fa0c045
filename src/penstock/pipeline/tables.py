"""Delta tables: how the pipeline begins, reads and commits them, with deltalake alone and no jar.

    <table>/day=2026-03-01/<name>.parquet    rows; a file counts if the log says so, and is never changed
    <table>/_delta_log/<version>.json        what was committed, one file for each version

Files are written where they stay, and then named in one commit together with **the position of the source**: for each
shard the offset behind its last row, as the version of a transaction of the application, which is part of Delta's
protocol. So rows and position are there together or not at all, and nothing else has to be remembered.

Laws
----
1. From asking for positions until the commit it is one handle, and it is not brought up to date between. A commit
   of the same shard meanwhile makes this one fail: a second archiver is refused by the protocol itself. A
   commit that the upkeep made fail is tried again, if the positions are still those that were planned from.
2. What a commit names is durable before the commit, and the commit is durable before anybody relies on it.
3. A table is read as a list of files. That is right only without deletion vectors and column mapping, so a table that
   has them is refused.

A file system of an object store is asked for what it is: `s3://…` on the driver goes by the ordinary chain of
credentials, and tasks find theirs by the same chain. Conditional writes make a commit safe there; nothing is renamed.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import compute, fs

from penstock.pipeline.job import JobFailed

if TYPE_CHECKING:
    from deltalake import DeltaTable

DAY = "day"
# Columns of which the log says the least and the most in each file. It says so of the table, too: a reader takes what
# is not said of any other column for a lack of rows. None of them tells who a message is about.
TOLD = ("queue", "settled_at", "shard", "offset")
LOG = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"
# How often a commit is tried again that the upkeep came before.
TRIES_MAX = 10
_TWO_AT_WORK = (
    "another process has written to {} meanwhile: two are at work. Nothing is there twice; let one of them go on"
)
_UNREADABLE = ("deletionVectors", "columnMapping")


class AnotherWriter(JobFailed):
    """Another process has committed to the table what this one was about to; nothing is doubled, and this run ends."""


class UnreadableTable(JobFailed):
    """A table cannot be read as a list of files, or not at all; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that was written and is not named yet, by its path below the table."""

    path: str
    bytes: int
    rows: int
    day: str | None
    least: Mapping[str, Any]
    most: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Which rows are wanted, as far as whole files can be passed over by it; what is empty does not matter."""

    queues: Sequence[str] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    offsets_from: Mapping[str, int] = field(default_factory=dict)
    offsets_to: Mapping[str, int] = field(default_factory=dict)


EVERYTHING = Bounds()


def location_of(where: str) -> str:
    """Return a place as deltalake takes it: an absolute path, or a URI.

    >>> location_of("s3a://bucket/archive/"), location_of("file:///srv/archive")
    ('s3://bucket/archive', '/srv/archive')
    """
    said = urlsplit(where)
    if said.scheme in ("", "file"):
        return str(Path(unquote(said.path) if said.scheme else where).absolute())
    return where.replace("s3a://", "s3://", 1).rstrip("/")


def is_local(location: str) -> bool:
    return "://" not in location


def uri_for_tasks(where: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a place as `pyarrow.fs` takes it on executors, with what they cannot know: where the store answers.

    >>> uri_for_tasks("s3://bucket/a", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-west-1"})
    's3://bucket/a?endpoint_override=127.0.0.1%3A9000&scheme=http&region=eu-west-1'
    """
    location = location_of(where)
    if not location.startswith("s3://"):
        return location
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    said = urlsplit(endpoint)
    more = {"endpoint_override": said.netloc, "scheme": said.scheme} if endpoint else {}
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        more["region"] = region
    return f"{location}?{urlencode(more)}" if more else location


def is_table(where: str) -> bool:
    location = location_of(where)
    if is_local(location):
        # A kill may leave the folder of the log before there is anything in it.
        return any((Path(location) / LOG).glob("*.json"))
    from deltalake import DeltaTable  # noqa: PLC0415 - tasks import this module and have no deltalake.

    return bool(DeltaTable.is_deltatable(location, storage_options=_storage()))


class Table:
    """One version of a table: that of the moment when it was opened, or of the last commit by way of it."""

    def __init__(self, location: str, delta: "DeltaTable") -> None:
        self.location = location
        self.delta = delta
        # Files of the log that are known to be durable.
        self._durable: set[str] = set()

    @classmethod
    def open(cls, where: str) -> "Table":
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        location = location_of(where)
        try:
            delta = DeltaTable(location, storage_options=_storage())
        except (DeltaError, OSError, ValueError) as error:
            raise UnreadableTable(f"{where} cannot be read as a Delta table: {error}") from None
        _check_features(where, delta)
        return cls(location, delta)

    @classmethod
    def begin(
        cls, where: str, schema: Any, *, described: Mapping[str, Any], partition_by: Sequence[str] = ()
    ) -> "Table":
        """Open a table, or make it if it is not there."""
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        location = location_of(where)
        if not is_table(location):
            said = json.dumps(described, sort_keys=True)
            by = list(partition_by)
            told = ",".join(name for name in TOLD if name in schema.names)
            try:
                DeltaTable.create(
                    location,
                    schema,
                    mode="ignore",
                    partition_by=by,
                    description=said,
                    configuration={"delta.dataSkippingStatsColumns": told},
                    storage_options=_storage(),
                )
            except (DeltaError, OSError) as error:
                raise UnreadableTable(f"there cannot be a table in {where}: {error}") from None
            sync_log(location)
        return cls.open(where)

    @property
    def described(self) -> dict[str, Any]:
        """What the description of the table says, which we write as JSON."""
        try:
            said = json.loads(self.delta.metadata().description or "{}")
        except ValueError:
            said = {}
        return said if isinstance(said, dict) else {}

    def describe(self, said: Mapping[str, Any]) -> None:
        self.delta.alter.set_table_description(json.dumps(said, sort_keys=True))
        self.delta.update_incremental()

    @property
    def id(self) -> str:
        return str(self.delta.metadata().id)

    @property
    def version(self) -> int:
        return self.delta.version()

    def operations_since(self, version: int) -> set[str] | None:
        """Return what was done after a version; None if the log does not go back so far."""
        found = self.delta.history(self.version - version) if self.version > version else []
        return {each["operation"] for each in found} if len(found) == self.version - version else None

    def position(self, name: str) -> int | None:
        return self.delta.transaction_version(name)

    def commit(
        self,
        files: Sequence[DataFile],
        *,
        positions: Mapping[str, int],
        remark: Mapping[str, str] | None = None,
        replaces: bool = False,
    ) -> None:
        """Name files and set positions in one step, and return when that is durable; the files are already.

        Raises `AnotherWriter`, and changes nothing, if one of the positions was set since they were asked for.
        """
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction  # noqa: PLC0415

        now_ms = time.time_ns() // 1_000_000
        added: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.bytes, {DAY: each.day} if each.day else {}, now_ms, True, _stats(each))
            for each in files
        ]
        planned = {name: self.position(name) for name in positions}
        properties = CommitProperties(
            custom_metadata=dict(remark or {}),
            app_transactions=[Transaction(name, version) for name, version in sorted(positions.items())],
        )
        for _ in range(TRIES_MAX):
            try:
                self.delta.create_write_transaction(
                    added,
                    mode="overwrite" if replaces else "append",
                    schema=self.delta.schema(),
                    partition_by=self.delta.metadata().partition_columns,
                    commit_properties=properties,
                )
                break
            except CommitFailedError as error:
                # It may have been the upkeep: then the positions are those that were planned from.
                self.delta.update_incremental()
                if planned != {name: self.position(name) for name in positions}:
                    raise AnotherWriter(_TWO_AT_WORK.format(self.location)) from error
        else:
            raise AnotherWriter(f"other processes write to {self.location} all the time: run the job again")
        self.delta.update_incremental()
        self._durable = sync_log(self.location, self._durable)

    def files(self, bounds: Bounds = EVERYTHING) -> list[str]:
        """Return the files that may have wanted rows, by their paths below the table."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        masks = list(_masks(actions, bounds))
        if masks:
            actions = actions.filter(reduce(compute.and_, masks))
        return [unquote(path) for path in sorted(actions["path"].to_pylist())]

    def files_there(self) -> set[str]:
        """Return all Parquet files below the table, also those that no version names."""
        system, root = file_system(uri_for_tasks(self.location))
        found = system.get_file_info(fs.FileSelector(root, recursive=True))
        paths = {info.path.removeprefix(f"{root}/") for info in found if info.path.endswith(".parquet")}
        return {path for path in paths if not path.startswith(LOG)}


def _check_features(where: str, delta: "DeltaTable") -> None:
    """Refuse a table of which a list of files is not the rows."""
    features = list(delta.protocol().reader_features or ())
    if delta.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.append("columnMapping")
    for name in _UNREADABLE:
        if name in features:
            raise UnreadableTable(
                f"{where} has the feature {name} of Delta, which says more than a list of files does. Rewrite it "
                "without it; in Spark: ALTER TABLE … DROP FEATURE"
            )


def _masks(actions: Any, bounds: Bounds) -> Iterable[Any]:
    for name, least, most in _ranges(bounds):
        for column, limit, is_within in (
            (f"max.{name}", least, compute.greater_equal),
            (f"min.{name}", most, compute.less),
        ):
            if limit is not None and column in actions.column_names:
                # A file that does not say is kept.
                yield compute.fill_null(is_within(actions[column], limit), True)


def sync(paths: Iterable[Path]) -> None:
    """Return when files and folders of this machine survive a loss of power."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_log(where: str, known: Collection[str] = ()) -> set[str]:
    """Make the log of a table durable, but for files that are ``known`` to be, and return those that are now.

    An object store has kept what it confirmed.
    """
    location = location_of(where)
    if not is_local(location):
        return set()
    root = Path(location)
    log = root / LOG
    # A reader begins at the last checkpoint, so what is before it does not matter.
    try:
        first = int(json.loads((log / _LAST_CHECKPOINT).read_text())["version"])
    except FileNotFoundError:
        first = 0
    needed = {each.name for each in os.scandir(log) if each.is_file() and each.name >= f"{first:020}"}
    sync([*(log / name for name in sorted(needed.difference(known))), log, root, root.parent])
    # It is written over.
    return needed - {_LAST_CHECKPOINT}


def _ranges(bounds: Bounds) -> Iterable[tuple[str, Any, Any]]:
    yield "settled_at", _instant(bounds.since_ms), _instant(bounds.until_ms)
    # One offset for all shards: a file may have rows of several.
    firsts, lasts = bounds.offsets_from.values(), bounds.offsets_to.values()
    yield "offset", min(firsts) if firsts else None, max(lasts) if lasts else None
    if bounds.queues:
        yield "queue", min(bounds.queues), max(bounds.queues) + "\0"


def _instant(at_ms: int | None) -> Any:
    return None if at_ms is None else pa.scalar(at_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _stats(each: DataFile) -> str:
    return json.dumps({"numRecords": each.rows, "minValues": dict(each.least), "maxValues": dict(each.most)})


def _storage(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what an endpoint in plain text needs; all else deltalake finds by itself."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    return {"AWS_ALLOW_HTTP": "true"} if endpoint.startswith("http://") else {}


def spark_path(location: str, path: str) -> str:
    """Return a file as Spark takes it: a path of this machine is not escaped."""
    return f"file:{location}/{path}" if is_local(location) else f"{location}/{quote(path, safe='/=')}"


@cache
def file_system(where: str) -> tuple[Any, str]:
    """Return a file system and the path on it, of a place as `uri_for_tasks` has it."""
    if is_local(where):
        return fs.LocalFileSystem(), where
    system, path = fs.FileSystem.from_uri(where)
    return system, path


def read_parquet(where: str, path: str, names: Sequence[str]) -> Iterator[Any]:
    """Yield batches of a file with these columns; null where an older file has none."""
    system, root = file_system(where)
    with system.open_input_file(f"{root}/{path}") as opened:
        file = pq.ParquetFile(opened)
        there = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            found = {name: batch.column(name) for name in there}
            missing = pa.nulls(batch.num_rows)
            yield pa.RecordBatch.from_pydict({name: found.get(name, missing) for name in names})
