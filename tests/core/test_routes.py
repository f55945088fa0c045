"""Which of several databases a queue is in, and how that is written."""

from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.contract.names import dead_letters_of
from penstock.core.routes import BadRoutes, Route, Routes, is_map, parse
from penstock.settings import BadSetting, ServerSettings, without_password

A, B = "postgresql://a/shop", "postgresql://b/shop"

patterns = st.text("ab.*-", min_size=1, max_size=8)
names = st.from_regex(r"[ab-][ab.-]{0,8}", fullmatch=True)
# Everything that a URL may have in it, commas and equals signs among them; of the database's name only what it may.
urls = st.builds(
    lambda user, hosts, name, query: f"postgresql://{user}{','.join(hosts)}/{name}{query}",
    st.sampled_from(["", "me@", "me:p,a=ss@", "me:x,*=y@"]),
    st.lists(st.sampled_from(["a", "b:5432", "[::1]", ""]), min_size=1, max_size=3),
    st.sampled_from(["", "shop", "a=b"]),
    st.sampled_from(["", "?host=/tmp/a,/tmp/b", "?options=-c%20a%3Db,c", "?a=b&c=d,e&f=g", "?x=postgresql://c"]),
)


@given(st.lists(st.tuples(patterns, urls), min_size=1, max_size=5, unique_by=lambda entry: entry[0]), st.booleans())
def test_a_map_is_read_as_it_was_written(entries: list[tuple[str, str]], has_blanks: bool) -> None:
    text = (" , " if has_blanks else ",").join(f"{pattern}={url}" for pattern, url in entries)
    assert is_map(text)
    assert parse(text) == tuple(Route(*entry) for entry in entries)


@given(urls)
def test_a_single_database_is_no_map(url: str) -> None:
    assert not is_map(url)


@given(st.lists(patterns, min_size=1, max_size=5), names)
@example(["a*a"], "a")
def test_the_first_pattern_that_fits_says_where_a_queue_is(entries: list[str], name: str) -> None:
    routes = Routes(entries, range(len(entries)))
    fitting = [place for place, pattern in enumerate(entries) if fnmatchcase(name, pattern)]
    place = routes.place_of(name)
    assert place == (fitting[0] if fitting else None)
    # Whatever the patterns are, dead letters are beside their queue.
    assert routes.place_of(dead_letters_of(name)) == place
    assert routes.place_of(dead_letters_of(dead_letters_of(name))) == place


@given(st.text(max_size=60))
def test_any_text_is_a_map_or_is_refused(text: str) -> None:
    with suppress(BadRoutes):
        assert parse(f"*={A},{text}")[0].pattern == "*"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"={A}", "entry 1 (without a pattern)"),
        (f"*={A},ord€rs={B}", "entry 2 (ord€rs): 'ord€rs' is no pattern"),
        (f"a={A},*=memory:", "entry 2 (*) leads to memory:"),
        (f"a={A},*=http://b", "entry 2 (*) leads to http://"),
        (f"a={A},*=file:x", "entry 2 (*) leads to file:"),
        (f"a={A},b", "entry 1 (a) has a comma in the name of its database"),
        (f"a={A},", "entry 1 (a) has a comma"),
        (f"a={A},*={B},a={B}", "entry 3 (a) has the pattern of entry 1"),
        (",".join(f"q{number}={A}" for number in range(101)), "101 entries"),
    ],
)
def test_what_is_wrong_with_a_map_is_named(text: str, said: str) -> None:
    with pytest.raises(BadSetting, match="store is a map") as refused:
        ServerSettings(store=text)
    assert said in str(refused.value)


def test_no_password_of_a_map_is_shown() -> None:
    secret = "orders.*=postgresql://me:secret@a/shop,*=postgresql://b/shop?password=secret&sslmode=require"
    settings = ServerSettings(store=secret)
    assert settings.is_on_postgres
    assert [pattern for pattern, _ in settings.routes] == ["orders.*", "*"]
    assert without_password(secret) == (
        "orders.*=postgresql://me:…@a/shop,*=postgresql://b/shop?password=…&sslmode=require"
    )
    for wrong in ("*=mysql://me:secret@b/shop", "o r=postgresql://me:secret@b/shop", "o=postgresql:/me:secret@b/shop"):
        with pytest.raises(BadSetting) as refused:
            ServerSettings(store=f"{wrong},orders.*=postgresql://me:secret@a/shop")
        assert "secret" not in str(refused.value)


def test_a_place_is_named_by_its_patterns() -> None:
    routes = Routes(["orders.*", "*", "mail"], [0, 1, 0])
    assert [routes.name_of(place) for place in (0, 1, None)] == [
        "database 1 (orders.*,mail)",
        "database 2 (*)",
        "no database",
    ]
