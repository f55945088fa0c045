"""What the schema of a store in PostgreSQL may be called: what needs no quotes wherever a schema can stand.

Names go into statements as they are. So none is a word of SQL or of PL/pgSQL that is more than a name there, and none
is one that PostgreSQL keeps for itself. They leave room for the names of what is in the schema.
"""

import re

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
