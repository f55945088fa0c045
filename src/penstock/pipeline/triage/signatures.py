"""The signature of an error: what is left when all that changes from one message to the next is taken out.

    ConnectionError: 10.0.3.17:5432 refused order 8812        ConnectionError: <host> refused order <n>
      /srv/app/shop/orders.py:88 in save: db.insert(row)  ──▶   | orders.py:save
    {"id": 8812, "customer": "ada"}                             | {customer: string, id: number}

A signature is words, frames and the shape of the body, as far as they are there:

    words    what the error says: its type without modules, and its message with placeholders
    frames   file and function of the three innermost calls, without folders and lines
    shape    of a JSON object the names at its top, each with the kind of its value; else text or binary, and a size

It is known again by an id: 12 digits for words and frames and, if there is a body, 6 for its shape.

Laws of the file
----------------
1. Everything is built-in functions of Spark: no message passes through Python.
2. Nothing beyond the first `ERROR_CHARACTERS_MAX` characters is looked at, and no pattern is worse than quadratic in
   them: a hostile error costs about as much as any other.
3. The same text has the same id in every run and version. A changed pattern changes ids: groups that are known
   look new in the next triage, and files for `replay` must be made again.

What stays, though it looks like a value: codes (`HTTP 503`, `Errno 111`, `SQLSTATE 23505`), and names of code between
quotes where the words before them say so (`no attribute 'price'`, `KeyError: 'sku'`). They tell errors apart that
have nothing to do with each other.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.contract.error_signatures import (
    FRAME_REPLACEMENT,
    FRAMES_MAX,
    FROM_OTHER_FRAMES,
    FROM_WORKER_FRAMES,
    NO_ERROR,
    OTHER_FRAME,
    OTHER_FRAME_PARTS,
    PLACEHOLDERS,
    PYTHON_FRAME,
    PYTHON_FRAME_PARTS,
    UP_TO_PYTHON_ERROR,
    WORDS_MAX,
    WORKER_FRAME,
    WORKER_FRAME_PARTS,
)
from penstock.contract.limits import ERROR_CHARACTERS_MAX

SIGNATURE = "signature"
SIGNATURE_ID = "signature_id"
ERROR_SIGNATURE = "error_signature"

_KEYS_MAX = 30
_KEY_CHARACTERS_MAX = 40
_ERROR_DIGITS = 12
_SHAPE_DIGITS = 6
_KIB = 1024


def with_signature(rows: DataFrame) -> DataFrame:
    """Add `signature` and `signature_id`, from `error` and, if there is such a column, `data`."""
    shape = body_shape(f.col("data")) if "data" in rows.columns else f.lit(None).cast("string")
    parts = with_error_signature(rows).withColumn("_shape", shape)
    named = {
        SIGNATURE: signature_of(f.col(ERROR_SIGNATURE), f.col("_shape")),
        SIGNATURE_ID: signature_id_of(f.col(ERROR_SIGNATURE), f.col("_shape")),
    }
    return parts.withColumns(named).drop(ERROR_SIGNATURE, "_shape")


def with_error_signature(rows: DataFrame) -> DataFrame:
    """Add `error_signature`: the words and frames of `error`, or a remark that there are none."""
    text = f.substring(f.coalesce(f.col("error"), f.lit("")), 1, ERROR_CHARACTERS_MAX)
    words = f.when(f.length("_words") > 0, f.col("_words")).otherwise(f.lit(NO_ERROR))
    # What is used twice is a column of its own for a moment, or Spark would work out every pattern twice.
    for step in (
        {"_text": f.regexp_replace(text, r"\r\n?", "\n")},
        {"_words": _words(f.col("_text")), "_frames": f.array_join(_frames(f.col("_text")), " > ")},
        {ERROR_SIGNATURE: f.concat_ws(" | ", words, f.when(f.length("_frames") > 0, f.col("_frames")))},
    ):
        rows = rows.withColumns(step)
    return rows.drop("_text", "_words", "_frames")


def signature_of(error: Column, shape: Column) -> Column:
    return f.concat_ws(" | ", error, shape)


def signature_id_of(error: Column, shape: Column) -> Column:
    return f.concat_ws("-", _digits(error, _ERROR_DIGITS), _digits(shape, _SHAPE_DIGITS))


def body_shape(data: Column) -> Column:
    """Return the shape of a body; null if there is none."""
    text = f.try_validate_utf8(data.cast("string"))
    value = f.try_parse_json(text)
    names = f.try_variant_get(value, "$", "map<string, variant>")
    kind = f.schema_of_variant(value)
    return (
        f.when(data.isNull(), f.lit(None).cast("string"))
        .when(f.octet_length(data) == 0, f.lit("empty"))
        .when(text.isNull() | text.contains("\0"), f.concat(f.lit("binary, "), _size(data)))
        .when(value.isNull(), f.concat(f.lit("text, "), _size(data)))
        .when(names.isNotNull(), _object_shape(names))
        .otherwise(f.concat(f.lit("JSON "), _kind(kind)))
    )


def _words(text: Column) -> Column:
    words = f.regexp_replace(text, UP_TO_PYTHON_ERROR, "")
    # A traceback that was cut off before its end leaves no words at all.
    for pattern in (FROM_WORKER_FRAMES, FROM_OTHER_FRAMES):
        words = f.regexp_replace(words, pattern, "")
    for pattern, placeholder in PLACEHOLDERS:
        words = f.regexp_replace(words, pattern, placeholder)
    return f.substring(f.trim(f.translate(words, "#", "")), 1, WORDS_MAX)


def _frames(text: Column) -> Column:
    python = _each(_all(text, PYTHON_FRAME), PYTHON_FRAME_PARTS, FRAME_REPLACEMENT)
    worker = _each(_all(text, WORKER_FRAME), WORKER_FRAME_PARTS, FRAME_REPLACEMENT)
    other = _each(_all(text, OTHER_FRAME), OTHER_FRAME_PARTS, "$1")
    return (
        f.when(f.size(python) > 0, _last(python))
        .when(f.size(worker) > 0, _last(worker))
        .otherwise(f.slice(other, 1, FRAMES_MAX))
    )


def _all(text: Column, pattern: str) -> Column:
    return f.regexp_extract_all(text, f.lit(pattern), f.lit(0))


def _each(frames: Column, pattern: str, replacement: str) -> Column:
    return f.transform(frames, lambda frame: f.regexp_replace(frame, pattern, replacement))


def _last(frames: Column) -> Column:
    # A slice that begins before the first one would be empty.
    return f.reverse(f.slice(f.reverse(frames), 1, FRAMES_MAX))


def _object_shape(names: Column) -> Column:
    """Each name with its kind, in order; numbers in names are left out, since some objects are keyed by an id."""

    def told(entry: Column) -> Column:
        name = f.regexp_replace(f.substring(entry["key"], 1, _KEY_CHARACTERS_MAX), r"\d+", "<n>")
        return f.concat(name, f.lit(": "), _kind(f.schema_of_variant(entry["value"])))

    told_all = f.sort_array(f.array_distinct(f.transform(f.map_entries(names), told)))
    more = f.when(f.size(told_all) > _KEYS_MAX, f.lit(", …")).otherwise(f.lit(""))
    return f.concat(f.lit("{"), f.array_join(f.slice(told_all, 1, _KEYS_MAX), ", "), more, f.lit("}"))


def _kind(schema: Column) -> Column:
    """What JSON calls it: whether a number was short or had a point is no difference in shape."""
    return (
        f.when(schema.startswith("OBJECT"), f.lit("object"))
        .when(schema.startswith("ARRAY"), f.lit("array"))
        .when(schema == "STRING", f.lit("string"))
        .when(schema == "BOOLEAN", f.lit("boolean"))
        .when(schema == "VOID", f.lit("null"))
        .otherwise(f.lit("number"))
    )


def _size(data: Column) -> Column:
    size = f.octet_length(data)
    return (
        f.when(size < _KIB, f.lit("below 1 KiB"))
        .when(size < 64 * _KIB, f.lit("1 to 64 KiB"))
        .otherwise(f.lit("64 KiB and more"))
    )


def _digits(text: Column, count: int) -> Column:
    return f.substring(f.sha2(text, 256), 1, count)
