"""Bodies as they are shown to people: a body is bytes, and need not be text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def excerpt(body: "Column", characters: int) -> "Column":
    """The beginning of a body as text, or of what is no text as hexadecimal digits; null if there is none."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    text = f.try_validate_utf8(body.cast("string"))
    digits = f.concat(f.lit("0x"), f.lower(f.hex(f.substring(body, 1, characters // 8))))
    shown = f.coalesce(f.substring(text, 1, characters), digits)
    return f.when(body.isNotNull(), shown)
