"""Cursors of lists: where a page ended, as a word that means nothing to a client.

A cursor holds the last name of the page before, which its caller has been shown. A
forged one is harmless: it says where to begin, and what follows is what the caller may
see.
"""

from base64 import b64decode, urlsafe_b64encode

from penstock.api.rest.errors import bad_field

# A name has up to 255 bytes.
CURSOR_CHARACTERS_MAX = 340


def cursor_after(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the name that a page begins after; "" for the first page.

    >>> read_cursor(cursor_after("orders"))
    'orders'
    """
    try:
        return b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise bad_field("this is no cursor; give back `next` of the page before", "cursor") from None
