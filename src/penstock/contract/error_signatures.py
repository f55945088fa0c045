"""The words of an error without what changes from one message to the next, so that equal causes look equal.

    ConnectionError: 10.0.3.17:5432 refused order 8812   ──▶   ConnectionError: <host> refused order <n>

`signature` makes them with Python, for a server; the triage job makes the same with functions of Spark, from the same
patterns: they are valid in Python and in Java. A group of the matches is `$1` in a replacement, as in Java. What each
part means is said in `pipeline/triage/signatures.py`.
"""

import re

from penstock.contract.limits import ERROR_CHARACTERS_MAX

WORDS_MAX = 300
FRAMES_MAX = 3
NO_ERROR = "(no error text)"

# The formats of a stack of calls, and each of its frames as file:function.
# Python's own traceback, innermost last; what follows the last frame is the error.
PYTHON_FRAME = r'(?m)^ *File "[^"\n]*", line \d+, in [^\n]+'
UP_TO_PYTHON_ERROR = r'(?s)^.*\n *File "[^\n]*(?:\n {4}[^\n]*+)*+(?:\n|$)'
# What a worker of ours keeps (`describe`), innermost last; "…" where outer frames were cut off.
WORKER_FRAME = r"(?m)^  \S[^\n]*?:\d+ in [^\n:]+:"
FROM_WORKER_FRAMES = r"(?s)\n(?:…|  \S[^\n]*?:\d+ in [^\n:]+:).*$"
# Java and JavaScript, innermost first.
OTHER_FRAME = r"(?m)^[ \t]++at [^\n]+"
FROM_OTHER_FRAMES = r"(?s)\n[ \t]++at .*$"

_IDENTIFIER = r"[A-Za-z_][A-Za-z_.]{0,60}"
_SOURCE_FILE = r"py|java|js|ts|go|rb|rs|c|cpp|cs|kt|scala|php"

# In this order: each sees what those before it have left.
PLACEHOLDERS = (
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
# A frame as file:function, or function alone.
PYTHON_FRAME_PARTS = r'^ *File "(?:[^"]*[/\\])?([^"/\\]*)", line \d+, in (.*)$'
WORKER_FRAME_PARTS = r"^  (?:.*[/\\])?([^/\\]*):\d+ in (.*):$"
OTHER_FRAME_PARTS = r"^\s+at (?:async )?([\w.$<>\[\] ]+?)[ ]?(?:\(.*)?$"
FRAME_REPLACEMENT = "$1:$2"

_REMOVED = tuple(re.compile(each) for each in (UP_TO_PYTHON_ERROR, FROM_WORKER_FRAMES, FROM_OTHER_FRAMES))
_REPLACED = tuple((re.compile(each), re.sub(r"\$(\d)", r"\\\1", by)) for each, by in PLACEHOLDERS)
_FRAMES = tuple(
    (re.compile(each), re.compile(parts), by)
    for each, parts, by in (
        (PYTHON_FRAME, PYTHON_FRAME_PARTS, r"\1:\2"),
        (WORKER_FRAME, WORKER_FRAME_PARTS, r"\1:\2"),
        (OTHER_FRAME, OTHER_FRAME_PARTS, r"\1"),
    )
)
_BLANKS = re.compile(r"[ \t]{2,}")


def signature(error: str) -> str:
    """Return the words and frames of an error.

    >>> signature("ConnectionError: 10.0.3.17:5432 refused order 8812")
    'ConnectionError: <host> refused order <n>'
    >>> signature("")
    '(no error text)'
    """
    text = re.sub(r"\r\n?", "\n", error[:ERROR_CHARACTERS_MAX])
    words = text
    for pattern in _REMOVED:
        words = pattern.sub("", words)
    # Long runs of blanks would make the patterns slow.
    words = _BLANKS.sub(" ", words)
    for pattern, by in _REPLACED:
        words = pattern.sub(by, words)
    frames = " > ".join(_frames(text))
    return " | ".join(filter(None, [words.replace("#", "").strip()[:WORDS_MAX] or NO_ERROR, frames]))


def _frames(text: str) -> list[str]:
    for place, (pattern, parts, by) in enumerate(_FRAMES):
        found = [parts.sub(by, frame) for frame in pattern.findall(text)]
        if found:
            return found[-FRAMES_MAX:] if place < 2 else found[:FRAMES_MAX]
    return []
