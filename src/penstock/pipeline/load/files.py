"""The files that `load` reads: which there are, which are new, and what is in them.

A file is known by its path, size and time of change: one that was written again is another
file. Lines that cannot be read come out as rows with `_corrupt_record`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.job import JobFailed
from penstock.pipeline.load.rows import CORRUPT, FILE, ROW

PARQUET, CSV, JSON = "parquet", "csv", "json"
FORMATS = (PARQUET, CSV, JSON)
_BY_ENDING = {".parquet": PARQUET, ".csv": CSV, ".tsv": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")


@dataclass(frozen=True, slots=True)
class File:
    path: str
    size: int
    changed_at_ms: int

    def as_note(self) -> dict[str, Any]:
        return asdict(self)


def find_files(spark: SparkSession, paths: Sequence[str]) -> list[File]:
    """Return the files that are meant, by path: names, patterns, and all that is in folders."""
    found: dict[str, File] = {}
    for path in paths:
        here = listed(spark, path)
        if not here:
            raise JobFailed(f"there is no file {path}")
        found |= {file.path: file for file in here}
    return [found[path] for path in sorted(found)]


def listed(spark: SparkSession, path: str) -> list[File]:
    """Return the files of one name, pattern or folder; those of a hidden one do not count."""
    jvm = spark._jvm
    assert jvm is not None, "the jobs run in a classic session"
    asked = jvm.org.apache.hadoop.fs.Path(path)
    system = asked.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    pending = list(system.globStatus(asked) or ())
    files = []
    while pending:
        status = pending.pop()
        is_hidden = status.getPath().getName().startswith(("_", "."))
        if status.isDirectory():
            pending += [] if is_hidden else list(system.listStatus(status.getPath()))
        elif not is_hidden:
            files.append(File(status.getPath().toString(), status.getLen(), status.getModificationTime()))
    return files


def format_of(path: str, said: str) -> str:
    """Return the format of a file, by what was said or by its ending.

    >>> format_of("a/orders.csv.gz", ""), format_of("a/orders.dat", "json")
    ('csv', 'json')
    """
    if said:
        if said not in FORMATS:
            raise JobFailed(f"--format is {said!r}; it is one of {', '.join(FORMATS)}")
        return said
    plain = next((path.removesuffix(ending) for ending in _PACKED if path.endswith(ending)), path)
    found = next((form for ending, form in _BY_ENDING.items() if plain.lower().endswith(ending)), "")
    if not found:
        raise JobFailed(f"the ending of {path} says no format; say --format {', '.join(FORMATS)}")
    return found


def read_files(spark: SparkSession, files: Sequence[File], *, form: str, options: Mapping[str, str]) -> list[DataFrame]:
    """Return the columns of the files, `_row`, `_file` and `_corrupt_record`; a frame for each format and header."""
    by_format: dict[str, list[str]] = {}
    for file in files:
        by_format.setdefault(format_of(file.path, form), []).append(file.path)
    frames = []
    for found, paths in by_format.items():
        if found == CSV:
            frames += [_csv(spark, group, options) for group in _by_header(spark, paths, options)]
        else:
            frames.append((_json if found == JSON else _parquet)(spark, paths, options))
    if not frames:
        raise JobFailed(f"{files[0].path} is empty: CSV begins with a line that names the columns")
    return frames


def union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)


def _parquet(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    rows = spark.read.options(**{"mergeSchema": "true", **options}).parquet(*paths)
    return _with_row(rows, f.lit(None).cast("string"))


def _json(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Lines are kept as they are: what is read from them again and written again is another text."""
    lines = spark.read.text(list(paths)).where(f.trim("value") != "")
    inferred = spark.read.options(**options).option("columnNameOfCorruptRecord", CORRUPT).json(list(paths)).schema
    fields = [field for field in inferred.fields if field.name != CORRUPT]
    schema: StructType = StructType([*fields, StructField(CORRUPT, StringType())])
    parsed = f.from_json("value", schema, {**options, "columnNameOfCorruptRecord": CORRUPT})
    corrupt = f.coalesce(f.col(f"_parsed.{CORRUPT}"), f.when(~_is_alone(options), f.col(ROW)))
    return lines.select(f.col("value").alias(ROW), _file().alias(FILE), parsed.alias("_parsed")).select(
        *(f.col(f"_parsed.`{field.name}`") for field in fields), corrupt.alias(CORRUPT), ROW, FILE
    )


def _is_alone(options: Mapping[str, str]) -> Column:
    """Whether a row is one JSON value and nothing else: Spark takes the first, and ignores what follows."""
    # The end of a line ends a comment, too, where options allow them.
    listed = f.concat(f.lit('{"_": ['), ROW, f.lit("\n]}"))
    return f.coalesce(f.size(f.from_json(listed, "`_` array<string>", dict(options))["_"]) == 1, f.lit(False))


def _by_header(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> list[list[str]]:
    """Files with other headers are read apart: Spark would take the first header for all of them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in paths:
        header = tuple(spark.read.options(**{"header": "true", **options}).csv(path).columns)
        # One without a single line has no columns, and no rows either.
        if header:
            groups.setdefault(header, []).append(path)
    return list(groups.values())


def _csv(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    reader = spark.read.options(**{"header": "true", "columnNameOfCorruptRecord": CORRUPT, **options})
    header: StructType = reader.csv(paths[0]).schema
    schema = type(header)([*header.fields, StructField(CORRUPT, StringType())])
    return _with_row(reader.schema(schema).csv(list(paths)), f.col(CORRUPT))


def _with_row(rows: DataFrame, corrupt: Column) -> DataFrame:
    own = [f.col(f"`{name}`") for name in rows.columns if name != CORRUPT]
    return rows.select(*own, f.to_json(f.struct(*own)).alias(ROW), _file().alias(FILE), corrupt.alias(CORRUPT))


def _file() -> Column:
    return f.col("_metadata.file_path")
