"""The reports: plots, pages and the folder they are written to."""

import re
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.job import JobFailed
from penstock.pipeline.reports.folder import results
from penstock.pipeline.reports.html import Figure, Section, folded, grid, headline, listing, note, page, span, table
from penstock.pipeline.reports.plots import Bar, Series, areas, bars, lines, scale_for
from tests.pipeline.rows import NOON

SVG = "{http://www.w3.org/2000/svg}"
values = st.lists(
    st.none() | st.floats(min_value=0, max_value=1e15) | st.floats(min_value=0, max_value=1), min_size=1, max_size=12
)


def _times(count: int) -> list[datetime]:
    return [NOON + timedelta(minutes=at) for at in range(count)]


def _points(svg: str) -> list[tuple[float, float]]:
    """Every point of every path and the corners of every rectangle."""
    root = ElementTree.fromstring(svg)
    found = []
    for path in root.iter(f"{SVG}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
        found += list(zip(numbers[::2], numbers[1::2], strict=True))
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.attrib["x"]), float(rect.attrib["y"])
        found += [(x, y), (x + float(rect.attrib["width"]), y + float(rect.attrib["height"]))]
    return found


def _is_within(svg: str) -> bool:
    box = [float(number) for number in ElementTree.fromstring(svg).attrib["viewBox"].split()]
    return all(0 <= x <= box[2] + 0.5 and 0 <= y <= box[3] + 0.5 for x, y in _points(svg))


@given(values, st.text(max_size=40), st.booleans())
def test_a_plot_of_any_figures_stays_within_its_box(given: list[float | None], name: str, is_log: bool) -> None:
    series = [Series(name, given), Series("other", list(reversed(given)))]

    assert _is_within(lines(name, _times(len(given)), series, is_log=is_log))
    assert _is_within(lines(name, _times(len(given)), series, is_log=is_log, form=span))
    assert _is_within(areas(name, _times(len(given)), series))
    assert _is_within(bars(name, [Bar(name, value or 0.0) for value in given]))


def test_a_higher_value_stands_higher_and_a_later_one_further_right() -> None:
    plot = lines("Depth", _times(3), [Series("live", [0.0, 5.0, 10.0])])
    path = next(ElementTree.fromstring(plot).iter(f"{SVG}path")).attrib["d"]
    points = [tuple(map(float, point.split())) for point in re.split("[ML]", path) if point]

    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    assert points[1][1] == (points[0][1] + points[2][1]) / 2


def test_a_gap_in_the_figures_is_a_gap_in_the_line() -> None:
    plot = lines("Wait", _times(5), [Series("p50", [1.0, 2.0, None, 4.0, 5.0])])

    assert next(ElementTree.fromstring(plot).iter(f"{SVG}path")).attrib["d"].count("M") == 2


def test_what_the_pointer_tells_is_the_greatest_of_its_stretch() -> None:
    plot = lines("Depth", _times(960), [Series("live", [float(at) for at in range(960)])])
    titles = [title.text or "" for title in ElementTree.fromstring(plot).iter(f"{SVG}title")]

    assert len(titles) == 96
    assert titles[0] == "2026-03-01 12:00:00 · live: 9"


def test_scales_end_at_round_numbers() -> None:
    assert (scale_for([7.0, None, 93.0]).high, scale_for([]).high) == (100.0, 1.0)
    logarithmic = scale_for([0.0, 3.0, 4_000.0], is_log=True)
    assert (logarithmic.low, logarithmic.high, logarithmic.height(0.0)) == (1.0, 10_000.0, 0.0)


def test_scales_of_spans_are_marked_as_a_clock_is() -> None:
    def marks(*values_ms: float, is_log: bool = False) -> list[str]:
        return [span(tick) for tick in scale_for(values_ms, is_log=is_log, is_span=True).ticks]

    assert marks(190.0) == ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms"]
    assert marks(400_000.0) == ["0 ms", "2 min", "4 min", "6 min", "8 min"]
    assert marks(5 * 86_400_000.0) == ["0 ms", "2 d", "4 d", "6 d"]
    assert marks(4_000.0, 95_000.0, is_log=True) == ["1 s", "10 s", "1 min", "10 min"]


@given(st.text(max_size=60))
def test_a_page_with_hostile_names_is_well_formed_and_shows_them_as_text(name: str) -> None:
    parts = [
        headline([Figure(name, name, name, is_bad=True)]),
        grid([lines(name, _times(2), [Series(name, [1.0, None])])]),
        table([name, "count"], [[name, 1], [None, 2.5]]),
        folded(name, [note(name), listing(name)]),
    ]
    text = page(name, lead=name, sections=[Section(name, parts, lead=name)], foot=name)

    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert {element.tag.removeprefix(SVG) for element in root.iter()}.isdisjoint({"script", "img", "link", "iframe"})
    assert len(list(root.iter("h1"))) == 1


def test_markup_in_a_name_stays_text() -> None:
    text = page("<script>alert(1)</script>", lead='"><b>', sections=[])

    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<b>" not in text


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    text = page("Signals", lead="", sections=[Section("a", [grid([bars("b", [Bar("c", 1.0)])])])])
    without_names_of_formats = text.replace("http://www.w3.org/2000/svg", "")

    assert "http:" not in without_names_of_formats
    assert "https:" not in without_names_of_formats
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text


def test_results_replace_those_of_the_run_before_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "report"
    for words in (["a", "b"], ["c"]):
        with results(str(out)) as folder:
            for word in words:
                (folder / word).write_text(word)

    assert sorted(path.name for path in out.iterdir()) == [".penstock-results", "c"]
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_run_that_fails_leaves_the_results_before_it(tmp_path: Path) -> None:
    out = tmp_path / "report"
    with results(str(out)) as folder:
        (folder / "first").write_text("")
    with pytest.raises(FileNotFoundError), results(str(out)) as folder:
        (folder / "no such folder" / "second").write_text("")

    assert (out / "first").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_results_that_a_killed_run_had_put_aside_come_back(tmp_path: Path) -> None:
    out = tmp_path / "report"
    with results(str(out)) as folder:
        (folder / "first").write_text("")
    out.rename(tmp_path / ".report.before")
    (tmp_path / ".report.partial-4194999").mkdir()
    with pytest.raises(ZeroDivisionError), results(str(out)):
        1 / 0  # noqa: B018 - the failure.

    assert (out / "first").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_copy_of_results_that_a_user_keeps_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "report"
    with results(str(out)) as folder:
        (folder / "first").write_text("")
    shutil.copytree(out, tmp_path / "report.before")
    with results(str(out)) as folder:
        (folder / "second").write_text("")

    assert (tmp_path / "report.before" / "first").exists()


def test_a_folder_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("")

    with pytest.raises(JobFailed, match="no job has written"), results(str(tmp_path)):
        pass
    assert (tmp_path / "photo.jpg").exists()
