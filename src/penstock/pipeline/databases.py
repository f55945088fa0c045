"""Addresses of PostgreSQL, as options and jobs are given them, and as they may be shown."""

import re

SCHEMA = "penstock"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


class DatabaseRefused(Exception):
    """A database has not answered, or not with what was asked for; the message has its words."""


def is_database(where: str) -> bool:
    return where.startswith(("postgresql://", "postgres://"))


def is_schema(name: str) -> bool:
    """Whether a schema of a store can have this name: it goes into statements without quotes."""
    return _NAME.fullmatch(name) is not None


def without_password(where: str) -> str:
    """Return an address as it may be shown and written down.

    >>> without_password("postgresql://penstock:secret@db/shop?password=secret&sslmode=require")
    'postgresql://penstock:…@db/shop?password=…&sslmode=require'
    """
    shown = re.sub(r"^(\w+://[^:/@]*):[^/]*@", r"\1:…@", where)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1…", shown)


def passwords_in(where: str) -> list[str]:
    """Return what must not be in a message, the longest first.

    >>> passwords_in("postgresql://penstock:secret@db/shop?password=sesame")
    ['secret', 'sesame']
    """
    found = re.findall(r"^\w+://[^:/@]*:([^/]*)@|[?&](?:ssl)?password=([^&]*)", where)
    return sorted({one or other for one, other in found if one or other}, key=lambda each: (-len(each), each))
