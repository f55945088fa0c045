"""Plots as inline SVG, drawn by hand: lines, stacked areas and bars.

A plot is a string: one `<svg>` element, well-formed by itself, of a fixed viewBox that scales
with the page. Colours are classes (`c0` … `c7`) that `html.py` gives a light and a dark value;
texts are `text` elements; a `title` describes what is under the pointer, which every
browser shows without a script.

Laws: every point lies within the viewBox. A value of None is a gap, never a zero. Two plots of
the same figures are the same bytes.

    lines(title, times, series)          a line for each series; `is_log` for spans over decades
    areas(title, times, series)          stacked: parts of a whole over time
    bars(title, bars)                    one bar each, sideways, the largest first if you sort them so
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.pipeline.reports.html import clean, short, span

WIDTH, HEIGHT = 420, 190
COLOURS = 8

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 42, 22
_INNER_WIDTH = WIDTH - _LEFT - _RIGHT
_INNER_HEIGHT = HEIGHT - _TOP - _BOTTOM
# So many places under the pointer tell their figures; more would only make the page heavy.
_HOVERS_MAX = 96
_BAR_HEIGHT, _BAR_GAP = 16, 6

_SECOND_MS, _DAY_MS = 1_000.0, 86_400_000.0
# Steps of a clock, in seconds, up to a day.
_CLOCK_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
# What a scale by powers is marked with; of spans: up to ten seconds so, then one and ten minutes, hours, days and on.
_POWERS = tuple(10.0**power for power in range(-12, 19))
_MARKS_MS = (
    *(10.0**power for power in range(-3, 5)),
    *(60_000.0, 600_000.0, 3_600_000.0, 36_000_000.0),
    *(_DAY_MS * 10.0**power for power in range(10)),
)

Format = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Series:
    """A figure over time; ``colour`` is its place in the palette, by default its place among its neighbours."""

    name: str
    values: Sequence[float | None]
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    # What the pointer tells; the label and the value if there is nothing more to say.
    hint: str = ""
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """From a value to its height in the plot."""

    low: float
    high: float
    # What has a line and a label.
    ticks: Sequence[float]
    is_log: bool = False

    def height(self, value: float) -> float:
        """How far up, from 0 to 1."""
        if self.is_log:
            low, high = math.log10(self.low), math.log10(self.high)
            part = (math.log10(max(value, self.low)) - low) / (high - low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)


def lines(
    title: str, times: Sequence[datetime], series: Sequence[Series], *, form: Format = short, is_log: bool = False
) -> str:
    """A line for each series. With ``is_log`` each step up is ten times more, and zero stands at the foot."""
    scale = scale_for([value for each in series for value in each.values], is_log=is_log, is_span=form is span)
    drawn = [
        f'<path class="line c{_colour(each, at)}" d="{_path(each.values, scale)}"/>' for at, each in enumerate(series)
    ]
    dots = [_lonely(each, at, scale) for at, each in enumerate(series)]
    return _plot(title, times, series, scale, [*drawn, *dots], form)


def areas(title: str, times: Sequence[datetime], series: Sequence[Series], *, form: Format = short) -> str:
    """Parts of a whole over time, the first at the foot. A gap counts as nothing."""
    floors = [0.0] * len(times)
    drawn = []
    tops: list[list[float]] = []
    for each in series:
        floors = [floor + (value or 0.0) for floor, value in zip(floors, each.values, strict=True)]
        tops.append(floors)
    scale = scale_for(floors)
    below = [0.0] * len(times)
    for at, (each, top) in enumerate(zip(series, tops, strict=True)):
        drawn.append(f'<path class="area c{_colour(each, at)}" d="{_band(below, top, scale)}"/>')
        below = top
    return _plot(title, times, series, scale, drawn, form)


def bars(title: str, given: Sequence[Bar], *, form: Format = short) -> str:
    """One bar each, sideways, from the top down."""
    height = _TOP - 12 + max(1, len(given)) * (_BAR_HEIGHT + _BAR_GAP)
    left = 130
    width = WIDTH - left - 60
    greatest = max((bar.value for bar in given), default=0.0) or 1.0
    parts = [_title(title)]
    for at, bar in enumerate(given):
        top = _TOP - 14 + at * (_BAR_HEIGHT + _BAR_GAP)
        long = max(0.0, bar.value / greatest) * width
        hint = bar.hint or f"{bar.label}: {form(bar.value)}"
        parts.append(
            f'<g><title>{clean(hint)}</title><text class="label" x="{left - 8}" y="{top + 12}" text-anchor="end">'
            f'{clean(cut(bar.label, 20))}</text><rect class="bar c{bar.colour % COLOURS}" x="{left}" y="{top}" '
            f'width="{_number(max(long, 1.0))}" height="{_BAR_HEIGHT}" rx="2"/>'
            f'<text class="value" x="{_number(left + max(long, 1.0) + 6)}" y="{top + 12}">{clean(form(bar.value))}'
            "</text></g>"
        )
    return _svg(title, height, parts)


def scale_for(values: Iterable[float | None], *, is_log: bool = False, is_span: bool = False) -> Scale:
    """A scale from zero (or a power of ten) to a round number that nothing exceeds; of spans, one that a clock has."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if is_log:
        return _log_scale([value for value in known if value > 0], _MARKS_MS if is_span else _POWERS)
    high = max(known, default=0.0)
    if high <= 0:
        high = 1.0
    step = _span_step(high / 4) if is_span else _step(high / 4)
    count = math.ceil(high / step - 1e-9)
    return Scale(0.0, count * step, [step * at for at in range(count + 1)])


def _log_scale(values: Sequence[float], marks: Sequence[float]) -> Scale:
    low, high = min(values, default=1.0), max(values, default=10.0)
    first = max((at for at, mark in enumerate(marks[:-1]) if mark <= low), default=0)
    last = min((at for at, mark in enumerate(marks) if mark >= high * (1 - 1e-9)), default=len(marks) - 1)
    last = max(last, first + 1)
    every = math.ceil((last - first) / 4)
    return Scale(marks[first], marks[last], marks[first : last + 1 : every], is_log=True)


def cut(text: str, length: int) -> str:
    """
    >>> cut("customer-of-many-words", 9)
    'customer…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def _plot(
    title: str,
    times: Sequence[datetime],
    series: Sequence[Series],
    scale: Scale,
    drawn: Sequence[str],
    form: Format,
) -> str:
    assert all(len(each.values) == len(times) for each in series)
    parts = [_title(title), *_legend(series), *_grid(scale, form), *_clock(times), *drawn]
    return _svg(title, HEIGHT, [*parts, *_hovers(times, series, form)])


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{clean(title)}">{"".join(parts)}</svg>'
    )


def _title(title: str) -> str:
    return f'<text class="title" x="0" y="13">{clean(cut(title, 60))}</text>'


def _legend(series: Sequence[Series]) -> list[str]:
    parts, x = [], 0.0
    for at, each in enumerate(series):
        name = cut(each.name, 16)
        if x + 14 + 6 * len(name) > WIDTH:
            break
        parts.append(
            f'<rect class="bar c{_colour(each, at)}" x="{_number(x)}" y="22" width="9" height="9" rx="2"/>'
            f'<text class="label" x="{_number(x + 13)}" y="30">{clean(name)}</text>'
        )
        x += 24 + 6 * len(name)
    return parts


def _grid(scale: Scale, form: Format) -> list[str]:
    parts = []
    for tick in scale.ticks:
        y = _number(_y(scale, tick))
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text class="label" x="{_LEFT - 6}" y="{_number(_y(scale, tick) + 3.5)}" text-anchor="end">'
            f"{clean(form(tick))}</text>"
        )
    return parts


def _clock(times: Sequence[datetime]) -> list[str]:
    """The first, the last and one time between, as short as they can be told apart."""
    if not times:
        return []
    seconds = (times[-1] - times[0]).total_seconds()
    pattern = "%H:%M:%S" if seconds < 600 else "%H:%M" if seconds < 86_400 else "%d %b %H:%M"
    if seconds >= 14 * 86_400:
        pattern = "%d %b %Y"
    places = {0: "start", len(times) // 2: "middle", len(times) - 1: "end"} if len(times) > 2 else {0: "start"}
    return [
        f'<text class="label" x="{_number(_x(at, len(times)))}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
        f"{times[at].strftime(pattern)}</text>"
        for at, anchor in places.items()
    ]


def _hovers(times: Sequence[datetime], series: Sequence[Series], form: Format) -> list[str]:
    """Invisible strips; the pointer over one shows the greatest figures of its stretch of time."""
    count = len(times)
    if not count:
        return []
    size = math.ceil(count / _HOVERS_MAX)
    width = _INNER_WIDTH / math.ceil(count / size)
    parts = []
    for strip, first in enumerate(range(0, count, size)):
        told = [f"{times[first]:%Y-%m-%d %H:%M:%S}"]
        for each in series:
            known = [value for value in each.values[first : first + size] if value is not None]
            told.append(f"{each.name}: {form(max(known, default=None))}")
        parts.append(
            f'<rect class="hover" x="{_number(_LEFT + strip * width)}" y="{_TOP}" width="{_number(width)}" '
            f'height="{_INNER_HEIGHT}"><title>{clean(" · ".join(told))}</title></rect>'
        )
    return parts


def _path(values: Sequence[float | None], scale: Scale) -> str:
    parts, is_down = [], False
    for at, value in enumerate(values):
        if value is None or not math.isfinite(value):
            is_down = False
            continue
        parts.append(f"{'L' if is_down else 'M'}{_number(_x(at, len(values)))} {_number(_y(scale, value))}")
        is_down = True
    return " ".join(parts) or "M0 0"


def _lonely(each: Series, at: int, scale: Scale) -> str:
    """A point between two gaps has no line to be seen by."""
    values = [None, *each.values, None]
    dots = []
    for place in range(1, len(values) - 1):
        value = values[place]
        if value is not None and values[place - 1] is None and values[place + 1] is None:
            x, y = _number(_x(place - 1, len(each.values))), _number(_y(scale, value))
            dots.append(f'<circle class="bar c{_colour(each, at)}" cx="{x}" cy="{y}" r="1.8"/>')
    return "".join(dots)


def _band(below: Sequence[float], top: Sequence[float], scale: Scale) -> str:
    count = len(top)
    if not count:
        return "M0 0"
    # One moment alone has no width: it is drawn over the whole plot.
    places = range(count) if count > 1 else (0, 0)
    xs = [_x(at, count) for at in range(count)] if count > 1 else [float(_LEFT), float(WIDTH - _RIGHT)]
    there = [f"{_number(x)} {_number(_y(scale, top[at]))}" for x, at in zip(xs, places, strict=True)]
    back = [f"{_number(x)} {_number(_y(scale, below[at]))}" for x, at in zip(xs, places, strict=True)]
    return f"M{' L'.join([*there, *reversed(back)])} Z"


def _x(at: int, count: int) -> float:
    return _LEFT + (_INNER_WIDTH * at / (count - 1) if count > 1 else _INNER_WIDTH / 2)


def _y(scale: Scale, value: float) -> float:
    return _TOP + _INNER_HEIGHT * (1 - scale.height(value))


def _step(rough: float) -> float:
    """The round number at or above: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def _span_step(rough_ms: float) -> float:
    """The step at or above that a clock has: from a second on, parts of a minute, an hour and a day."""
    if rough_ms <= _SECOND_MS / 2:
        return _step(rough_ms)
    if rough_ms > _DAY_MS:
        return _DAY_MS * _step(rough_ms / _DAY_MS)
    return next(step * _SECOND_MS for step in _CLOCK_S if step * _SECOND_MS >= rough_ms)


def _number(value: float) -> str:
    """
    >>> _number(1.0), _number(2.345)
    ('1', '2.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def _colour(each: Series, at: int) -> int:
    return (at if each.colour is None else each.colour) % COLOURS
