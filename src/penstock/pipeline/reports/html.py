"""A report as one HTML file: it asks for nothing else, runs no script, and follows the reader's light or dark.

A page is made of sections, a section of parts, and a part is a string of markup made by a function of this file or of
`plots.py`. Plain text goes through `note` or a cell and is escaped there. The page is well-formed XML too, so that a
test can read it, and its policy forbids it to load anything.

Numbers are shown as a person reads them: three digits, a unit, and nothing more exact than it is useful.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

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


def excerpt(body: Column, characters: int) -> Column:
    """The beginning of a body as text, or of what is no text as hexadecimal digits; null if there is none."""
    text = f.try_validate_utf8(body.cast("string"))
    digits = f.concat(f.lit("0x"), f.lower(f.hex(f.substring(body, 1, characters // 8))))
    shown = f.coalesce(f.substring(text, 1, characters), digits)
    return f.when(body.isNotNull(), shown)


Cell = str | int | float | None


class Figure(NamedTuple):
    """A headline number: what it is, the number as text, and a few words below it."""

    label: str
    value: str
    note: str = ""
    # A number that needs attention.
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    # Markup, by the functions below and by plots.
    parts: Sequence[str]
    lead: str = ""


def page(title: str, *, lead: str, sections: Sequence[Section], foot: str = "") -> str:
    """Return the whole file."""
    contents = "".join(f'<li><a href="#s{at}">{clean(section.title)}</a></li>' for at, section in enumerate(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
        f"<title>{clean(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"<header><h1>{clean(title)}</h1><p>{clean(lead)}</p><nav><ul>{contents}</ul></nav></header>"
        f"{''.join(_section(at, section) for at, section in enumerate(sections))}"
        f"<footer>{clean(foot)}</footer></main></body></html>\n"
    )


def headline(figures: Sequence[Figure]) -> str:
    """Large numbers in a row."""
    cells = "".join(
        f'<div class="{"figure bad" if figure.is_bad else "figure"}"><dt>{clean(figure.label)}</dt>'
        f"<dd>{clean(figure.value)}</dd><small>{clean(figure.note)}</small></div>"
        for figure in figures
    )
    return f'<dl class="headline">{cells}</dl>'


def grid(plots: Sequence[str]) -> str:
    """Plots beside each other, as many as there is room for."""
    return f'<div class="grid">{"".join(f"<figure>{plot}</figure>" for plot in plots)}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Numbers stand to the right; nothing is said by a dash."""
    is_number = [
        any(isinstance(row[at], int | float) for row in rows)
        and all(row[at] is None or isinstance(row[at], int | float) for row in rows)
        for at in range(len(columns))
    ]
    head = "".join(
        f'<th class="number">{clean(name)}</th>' if right else f"<th>{clean(name)}</th>"
        for name, right in zip(columns, is_number, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, is_number)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def note(text: str) -> str:
    return f"<p>{clean(text)}</p>"


def listing(text: str) -> str:
    """Text as it is, its lines and tabs kept: an error, a traceback, the beginning of a body."""
    return f"<pre>{chr(10).join(clean(line.expandtabs()) for line in text.splitlines())}</pre>"


def folded(title: str, parts: Sequence[str]) -> str:
    """Parts that open on a click."""
    return f"<details><summary>{clean(title)}</summary>{''.join(parts)}</details>"


def _section(at: int, section: Section) -> str:
    lead = note(section.lead) if section.lead else ""
    return f'<section id="s{at}"><h2>{clean(section.title)}</h2>{lead}{"".join(section.parts)}</section>'


def _cells(row: Sequence[Cell], is_number: Sequence[bool]) -> str:
    return "".join(
        f'<td class="number">{_cell(value)}</td>' if right else f"<td>{_cell(value)}</td>"
        for value, right in zip(row, is_number, strict=True)
    )


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return clean(value)
    return f"{value:,}" if isinstance(value, int) else escape(f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}")


# Eight colours that can be told apart in either light, also by most who do not see red and green.
_LIGHT = ("#3564c4", "#d9822b", "#2a9d74", "#c23b4b", "#7b56b3", "#8a6d3b", "#3a9fbf", "#7f8794")
_DARK = ("#7ea6ff", "#f0a659", "#5fcf9f", "#f2788a", "#b595ef", "#cfae74", "#74cbe6", "#a3abb8")


def _palette(colours: Sequence[str]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(colours))


_STYLE = (
    ":root{color-scheme:light dark;--ground:#fcfcfb;--raised:#fff;--ink:#1d2129;--faint:#69707d;--rule:#e3e5e9;"
    f"--bad:#b3261e;{_palette(_LIGHT)}}}"
    "@media (prefers-color-scheme:dark){:root{--ground:#14171c;--raised:#1b1f26;--ink:#e6e8ec;--faint:#98a0ae;"
    f"--rule:#2d333d;--bad:#ff8a80;{_palette(_DARK)}}}}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--ground);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif}"
    "main{max-width:1360px;margin:0 auto;padding:40px 24px 80px}"
    "h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 6px}"
    "h2{font-size:20px;letter-spacing:-.01em;margin:0 0 4px;overflow-wrap:anywhere}"
    "p{max-width:78ch;margin:0 0 12px;color:var(--faint);overflow-wrap:anywhere}"
    "section{margin-top:44px;padding-top:20px;border-top:1px solid var(--rule)}"
    "nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:0;padding:0}"
    "a{color:var(--c0);text-decoration:none}a:hover{text-decoration:underline}"
    ".headline{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:16px 0 20px}"
    ".figure{background:var(--raised);border:1px solid var(--rule);border-radius:10px;padding:12px 14px}"
    ".figure dt{font-size:12px;color:var(--faint)}"
    ".figure dd{margin:0;font-size:24px;font-weight:600;letter-spacing:-.02em;font-variant-numeric:tabular-nums}"
    ".figure small{color:var(--faint)}.figure.bad dd{color:var(--bad)}"
    ".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(340px,1fr));gap:16px;margin:12px 0 20px}"
    "figure{margin:0;background:var(--raised);border:1px solid var(--rule);border-radius:10px;padding:14px}"
    "svg{display:block;width:100%;height:auto}"
    "svg text{fill:var(--faint);font-size:10px;font-variant-numeric:tabular-nums}"
    "svg .title{fill:var(--ink);font-size:13px;font-weight:600}svg .value{fill:var(--ink)}"
    "svg .grid{stroke:var(--rule);stroke-width:1}"
    "svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    "svg .area{stroke:none;fill-opacity:.78}svg .hover{fill:transparent}"
    "svg .hover:hover{fill:var(--ink);fill-opacity:.07}"
    + "".join(
        f"svg .line.c{at}{{stroke:var(--c{at})}}svg .area.c{at},svg .bar.c{at}{{fill:var(--c{at})}}"
        for at in range(len(_LIGHT))
    )
    + ".wide{overflow-x:auto;margin:12px 0 20px}"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}"
    "td{overflow-wrap:break-word;max-width:52ch}"
    "th{font-weight:600;color:var(--faint);white-space:nowrap}"
    ".number{text-align:right}td.number{white-space:nowrap}"
    "pre{background:var(--raised);border:1px solid var(--rule);border-radius:8px;padding:12px;overflow-x:auto;"
    "font:12px/1.5 ui-monospace,Menlo,Consolas,monospace}"
    "details{margin:8px 0 16px}summary{cursor:pointer;color:var(--c0)}"
    "footer{margin-top:48px;color:var(--faint);font-size:13px}"
)


def clean(text: str) -> str:
    """Return text of strangers as it may stand in a page: escaped, and without what no page may contain."""
    return escape("".join(letter if letter.isprintable() else "�" for letter in text))
