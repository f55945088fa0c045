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

from penstock.contract.limits import ERROR_CHARACTERS_MAX

SIGNATURE = "signature"
SIGNATURE_ID = "signature_id"
ERROR_SIGNATURE = "error_signature"

_WORDS_MAX = 300
_FRAMES_MAX = 3
_KEYS_MAX = 30
_KEY_CHARACTERS_MAX = 40
_ERROR_DIGITS = 12
_SHAPE_DIGITS = 6
_KIB = 1024

# The formats of a stack of calls, and each of its frames as file:function.
# Python's own traceback, innermost last; what follows the last frame is the error.
_PYTHON_FRAME = r'(?m)^ *File "[^"\n]*", line \d+, in [^\n]+'
_UP_TO_PYTHON_ERROR = r'(?s)^.*\n *File "[^\n]*(?:\n {4}[^\n]*+)*+(?:\n|$)'
# What a worker of ours keeps (`describe`), innermost last; "…" where outer frames were cut off.
_WORKER_FRAME = r"(?m)^  \S[^\n]*?:\d+ in [^\n:]+:"
_FROM_WORKER_FRAMES = r"(?s)\n(?:…|  \S[^\n]*?:\d+ in [^\n:]+:).*$"
# Java and JavaScript, innermost first.
_OTHER_FRAME = r"(?m)^[ \t]++at [^\n]+"
_FROM_OTHER_FRAMES = r"(?s)\n[ \t]++at .*$"

_IDENTIFIER = r"[A-Za-z_][A-Za-z_.]{0,60}"
_SOURCE_FILE = r"py|java|js|ts|go|rb|rs|c|cpp|cs|kt|scala|php"

# In this order: each sees what those before it have left.
_PLACEHOLDERS = (
    # The type of the error, without the modules it is in.
    (r"^\s*(?:[A-Za-z_]\w{0,60}\.){1,10}([A-Z]\w{0,80})(?=:|\s*$)", "$1"),
    # Codes that tell errors apart: a number after # is no number below.
    (
        (
            r"(?i)\b(http(?:/[\d.]{1,3})?|status(?: code)?|errno|sqlstate|exit (?:code|status)|error code|code)"
            r"([ :=\[(]{1,3})(\d{1,5})\b"
        ),
        "$1$2#$3",
    ),
    (r"(?<![\w#.])([45]\d\d)(?= (?:Client|Server) Error)", "#$1"),
    # Names of code between quotes, where the words around them say that they are such.
    (
        (
            r"\b(KeyError: |attribute |named |module |column |relation |constraint |"
            r"argument:? |arguments?: |field |table |name )"
            rf"""['"`]({_IDENTIFIER})['"`]"""
        ),
        "$1‹$2›",
    ),
    (rf"""(?<!\w)['"`]({_IDENTIFIER})['"`](?= object)""", "‹$1›"),
    # Whatever else is between quotes; the last may have lost its end.
    (r'(?<!\w)[bru]{0,2}"(?:[^"\\\n]|\\.){0,1024}+"', "<text>"),
    (r"(?<!\w)[bru]{0,2}'(?:[^'\\\n]|\\.){0,1024}+'(?!\w)", "<text>"),
    (r"(?<!\w)`[^`\n]*+`", "<text>"),
    (r"""(?<!\w)["'][^"'\n]*+$""", "<text>"),
    # Times.
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?: ?(?:Z\b|UTC\b|[+-]\d\d:?\d\d\b))?)?", "<time>"),
    (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:\d{1,2} )?[A-Z][a-z]{2} [\d: ]{4,20}(?:GMT|UTC)?", "<time>"),
    (r"\b\d{1,2}[/ ][A-Z][a-z]{2}[/ ]\d{4}[: ]\d\d:\d\d:\d\d(?: [+-]\d{4})?", "<time>"),
    (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?\b", "<time>"),
    # Addresses: of pages, people, machines and memory.
    (r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>()\[\]{},;]*[^\s\"'<>()\[\]{},;.:]", "<url>"),
    (r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}", "<email>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
    (r"\b0x[0-9a-fA-F]+\b", "<address>"),
    (rf"(?<![\w.-])((?:[\w-]{{1,80}}\.){{1,5}}(?:{_SOURCE_FILE})):\d+(?::\d+)?", "$1:<line>"),
    (r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5}|/\d{1,2})?(?![\w.]*\d)", "<host>"),
    (
        r"(?<![\w:])\[?(?=[0-9a-fA-F:]{0,45}\d)(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:%\w+)?(?:\]:\d{1,5}|\])?(?![\w:])",
        "<host>",
    ),
    (r"(?<![\w.-])(?:localhost|(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,20}|[A-Za-z][\w-]{0,62}):\d{2,5}\b", "<host>"),
    # Paths of at least two parts, or from a drive on.
    (r"(?<![\w<.>])(?:~|\.{1,2})?(?:/[\w.@%+=~-]++){2,}+/?", "<path>"),
    (r"(?<!\w)(?:[A-Za-z]:|\\)\\[^\s\"'<>,;]+", "<path>"),
    # Ids: hexadecimal, with a prefix, or long with letters and digits.
    (r"\b(?=[A-Fa-f]{0,64}\d)(?=\d{0,64}[A-Fa-f])[0-9a-fA-F]{7,}\b", "<id>"),
    (r"(?<![\w#])[A-Za-z]{2,10}[_-](?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{6,}\b", "<id>"),
    (r"(?<![\w#])(?=[A-Za-z_-]{0,64}\d)(?=[\d_-]{0,64}[A-Za-z])[\w-]{16,}", "<id>"),
    # Numbers, with their unit.
    (
        (
            r"(?<![\d#])[-+]?\d[\d_,.]*+"
            r"(?:(?:[eE][-+]?\d+)?(?: ?(?:ms|us|µs|ns|s|min|h|[KMG]i?B|kB|bytes|seconds)\b|%)?)"
        ),
        "<n>",
    ),
    # A list of such is as good as one of them.
    (r"(<[a-z]+>)(?:(?:, ?| |; ?|\|)\1)++", "$1"),
    (r"\s+", " "),
)


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
    words = f.when(f.length("_words") > 0, f.col("_words")).otherwise(f.lit("(no error text)"))
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
    words = f.regexp_replace(text, _UP_TO_PYTHON_ERROR, "")
    # A traceback that was cut off before its end leaves no words at all.
    for pattern in (_FROM_WORKER_FRAMES, _FROM_OTHER_FRAMES):
        words = f.regexp_replace(words, pattern, "")
    for pattern, placeholder in _PLACEHOLDERS:
        words = f.regexp_replace(words, pattern, placeholder)
    return f.substring(f.trim(f.translate(words, "#", "")), 1, _WORDS_MAX)


def _frames(text: Column) -> Column:
    python = _each(_all(text, _PYTHON_FRAME), r'^ *File "(?:[^"]*[/\\])?([^"/\\]*)", line \d+, in (.*)$', "$1:$2")
    worker = _each(_all(text, _WORKER_FRAME), r"^  (?:.*[/\\])?([^/\\]*):\d+ in (.*):$", "$1:$2")
    other = _each(_all(text, _OTHER_FRAME), r"^\s+at (?:async )?([\w.$<>\[\] ]+?)[ ]?(?:\(.*)?$", "$1")
    return (
        f.when(f.size(python) > 0, _last(python))
        .when(f.size(worker) > 0, _last(worker))
        .otherwise(f.slice(other, 1, _FRAMES_MAX))
    )


def _all(text: Column, pattern: str) -> Column:
    return f.regexp_extract_all(text, f.lit(pattern), f.lit(0))


def _each(frames: Column, pattern: str, replacement: str) -> Column:
    return f.transform(frames, lambda frame: f.regexp_replace(frame, pattern, replacement))


def _last(frames: Column) -> Column:
    # A slice that begins before the first one would be empty.
    return f.reverse(f.slice(f.reverse(frames), 1, _FRAMES_MAX))


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
