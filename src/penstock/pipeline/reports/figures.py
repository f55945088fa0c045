"""Numbers as a person reads them: three digits, a unit, and nothing more exact than it is useful."""

import math

_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def short(value: float | None) -> str:
    """Return a number in a few characters.

    >>> [short(value) for value in (None, 0, 7, 0.1234, 12.34, 999, 1_234, 45_600_000)]
    ['–', '0', '7', '0.123', '12.3', '999', '1.23k', '45.6M']
    """
    if value is None or not math.isfinite(value):
        return "–"
    for size, unit in _SIZES:
        if abs(value) >= size * 0.9995:
            return _digits(value / size) + unit
    return _digits(value)


def span(milliseconds: float | None) -> str:
    """Return a span of time.

    >>> [span(value) for value in (None, 0, 3.21, 950, 1_500, 90_000, 7_200_000, 200_000_000)]
    ['–', '0 ms', '3.21 ms', '950 ms', '1.5 s', '1.5 min', '2 h', '2.31 d']
    """
    if milliseconds is None or not math.isfinite(milliseconds):
        return "–"
    if abs(milliseconds) < 999.5:
        return f"{_digits(milliseconds)} ms"
    seconds = milliseconds / 1_000
    for size, unit in _SPANS:
        if abs(seconds) >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def share(value: float | None) -> str:
    """Return a part of one as percent.

    >>> [share(value) for value in (None, 0, 0.00012, 0.031, 0.5, 1)]
    ['–', '0 %', '0.012 %', '3.1 %', '50 %', '100 %']
    """
    return "–" if value is None or not math.isfinite(value) else f"{_digits(value * 100)} %"


def count(value: float | None) -> str:
    """Return a whole number with all its digits.

    >>> count(1234567)
    '1,234,567'
    """
    return "–" if value is None else f"{value:,.0f}"


def _digits(value: float) -> str:
    """Three digits that count, without zeros at the end."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    text = f"{value:.{min(places, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
