"""What queues, topics and schemas may be called, and the patterns for names of queues.

    stem     1 to 80 of A-Z a-z 0-9 _ - . and not a dot first, nor "q_"
    name     a stem, or a stem and ".dead"
    pattern  the characters of a name, and `*` for any characters or none

That is what SQS allows, and dots: a name is one segment of an address, needs no
escape there, and cannot be taken for a step up. "q_" begins the id of a queue, so
that one word can be either. An ending of ".dead" is not counted: whatever a queue
is called, its dead letters can be named after it.

A schema of PostgreSQL needs a name that stands without quotes wherever a schema can stand. The store
writes it into statements as it is. So it is no word of SQL or of PL/pgSQL that is more than a name there, and none
that PostgreSQL keeps for itself. It leaves room for the names of what is in the schema.
"""

import re

from penstock.contract.limits import QUEUE_NAME_CHARACTERS_MAX

DEAD = ".dead"
ID_PREFIX = "q_"

# The longest name of a queue, and what it, an id of one, and a topic may look like.
NAME_CHARACTERS_MAX = QUEUE_NAME_CHARACTERS_MAX + len(DEAD)
NAME_PATTERN = rf"^(?!{ID_PREFIX})[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{QUEUE_NAME_CHARACTERS_MAX - 1}}}(\{DEAD})?$"
NAME_OR_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
TOPIC_NAME_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$"

_STEM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class BadName(ValueError):
    """This is not what a queue may be called; the message says why."""


def check_name(name: str, *, field: str = "queue") -> None:
    """Raise `BadName`, which names ``field``, if no queue may be called so."""
    stem = name.removesuffix(DEAD)
    if not 1 <= len(stem) <= QUEUE_NAME_CHARACTERS_MAX:
        bounds = f"it has 1 to QUEUE_NAME_CHARACTERS_MAX ({QUEUE_NAME_CHARACTERS_MAX}), a last {DEAD!r} not counted"
        raise BadName(f"{field} is a name of {len(stem)} characters; {bounds}")
    if not _STEM.fullmatch(stem):
        raise BadName(f"{field} is {name!r}; a name has A-Z a-z 0-9 _ - and dots, and no dot first")
    if stem.startswith(ID_PREFIX):
        raise BadName(f"{field} is {name!r}; names that begin with {ID_PREFIX!r} are those of ids")


def is_name(name: str) -> bool:
    """Whether a queue may be called so."""
    try:
        check_name(name)
    except BadName:
        return False
    return True


def dead_letters_of(queue: str) -> str:
    """What the dead letters of a queue are called, if its settings do not say."""
    return queue + DEAD


def is_dead_letters(name: str) -> bool:
    """Whether a queue is for dead letters by its name alone."""
    return name.endswith(DEAD)


PATTERN_CHARACTERS_MAX = 100

_PATTERN = re.compile(r"[A-Za-z0-9_.*-]+", re.ASCII)


class BadPattern(ValueError):
    """This is no pattern for the names of queues."""


def check_pattern(pattern: str) -> None:
    if len(pattern) > PATTERN_CHARACTERS_MAX or not _PATTERN.fullmatch(pattern):
        allowed = f"1 to {PATTERN_CHARACTERS_MAX} of A-Z a-z 0-9 _ - . and *"
        raise BadPattern(f"{pattern!r} is no pattern for names of queues; it has {allowed}")


def fits(pattern: str, name: str) -> bool:
    """Whether a name fits. It takes time in proportion to the lengths, whatever the pattern.

    >>> [fits("orders.*", name) for name in ("orders.new", "orders.", "orders", "old.orders.new")]
    [True, True, False, False]
    """
    if pattern == "*":
        return True
    first, *parts = pattern.split("*")
    if not parts:
        return name == first
    *parts, last = parts
    end = len(name) - len(last)
    if not (name.startswith(first) and name.endswith(last) and end >= len(first)):
        return False
    place = len(first)
    for part in parts:
        place = name.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return True


_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_SYSTEM = "information_schema"
# All that `pg_get_keywords()` has, up to PostgreSQL 18, but for the unreserved; and the reserved ones of PL/pgSQL.
_WORDS = """
all analyse analyze and any array as asc asymmetric authorization begin between bigint binary bit boolean both by case
cast char character check coalesce collate collation column concurrently constraint create cross current_catalog
current_date current_role current_schema current_time current_timestamp current_user dec decimal declare default
deferrable desc distinct do else end except execute exists extract false fetch float for foreach foreign freeze from
full grant greatest group grouping having if ilike in initially inner inout int integer intersect interval into is
isnull join json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize
json_table json_value lateral leading least left like limit localtime localtimestamp loop merge_action national
natural nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay
placing position precision primary real references returning right row select session_user setof similar smallint some
strict substring symmetric system_user table tablesample then time timestamp to trailing treat trim true union unique
user using values varchar variadic verbose when where while window with xmlattributes xmlconcat xmlelement xmlexists
xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
_RESERVED = frozenset(_WORDS.split())


class BadSchema(ValueError):
    """This is not what a schema of ours may be called; the message says why."""


def check_schema(name: str, *, field: str = "schema") -> None:
    """Raise `BadSchema`, which names ``field``, if no schema may be called so."""
    if not _NAME.fullmatch(name):
        raise BadSchema(f"{field} is {name!r}; it has a-z 0-9 _ and at most 41 of them, and no digit first")
    if name in _RESERVED:
        raise BadSchema(f"{field} is {name!r}; that is a word of SQL: take another name, such as {name + '_queues'!r}")
    if name.startswith("pg_") or name == _SYSTEM:
        raise BadSchema(f"{field} is {name!r}; PostgreSQL keeps {_SYSTEM!r}, and names with 'pg_' first, for itself")
