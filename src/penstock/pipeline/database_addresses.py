"""Addresses of PostgreSQL, as options and jobs are given them, and as they may be shown."""

import re

SCHEMA = "penstock"
_SCHEMA_IS = "schema="


class DatabaseRefused(Exception):
    """A database has not answered, or not with what was asked for; the message has its words."""


def is_database(where: str) -> bool:
    return where.startswith(("postgresql://", "postgres://"))


def schema_in(where: str) -> tuple[str, str]:
    """Take the schema out of an address: it is for us, and PostgreSQL refuses a parameter that it does not know.

    >>> schema_in("postgresql://penstock@db/shop?schema=queues&sslmode=require")
    ('postgresql://penstock@db/shop?sslmode=require', 'queues')
    >>> schema_in("postgresql://penstock@db/shop")
    ('postgresql://penstock@db/shop', '')
    """
    plain, _, query = where.partition("?")
    said = query.split("&") if query else []
    schemas = [each.removeprefix(_SCHEMA_IS) for each in said if each.startswith(_SCHEMA_IS)]
    rest = "&".join(each for each in said if not each.startswith(_SCHEMA_IS))
    return (f"{plain}?{rest}" if rest else plain), (schemas[-1] if schemas else "")


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
