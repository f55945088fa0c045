"""The table of the settings of a queue: each has bounds and a meaning, and one name in REST."""

from typing import Any

import pytest

from penstock.api.rest.errors import problem_of
from penstock.cli.key_value_options import settings_said
from penstock.contract.queue_settings import (
    SAID,
    SETTINGS,
    BadSettings,
    DedupScope,
    History,
    QueueSettings,
    Row,
    Who,
    as_said,
    from_said,
)
from penstock.wire.queue_settings import SETTING_NAMES

OTHER = QueueSettings(
    size_max=7,
    lease_ms=1_500,
    deliveries_max=2,
    back_after_deliveries=3,
    dead_letters="graves",
    retention_ms=60_000,
    delay_ms=250,
    is_fifo=True,
    dedup_scope=DedupScope.CONTENT,
    dedup_window_ms=1,
    is_strict=True,
    weights=(5, 4, 3, 2, 1),
    aging_ms=(0, 1, 2, 3, 4_500),
    reserve_percent=(0, 2, 5, 10, 99),
    backoff_ms_base=0,
    backoff_ms_max=1_500,
    has_jitter=False,
    noisy_percent=20,
    noisy_leased_min=5,
    noisy_time_percent=40,
    body_bytes_max=100,
    alert_dead_letters=50,
    history=History.FULL,
    is_paused=True,
)


def having(name: str, value: Any) -> QueueSettings:
    given: dict[str, Any] = {name: value}
    return QueueSettings(**given)


every_setting = pytest.mark.parametrize(("name", "row"), SETTINGS.items(), ids=SETTINGS)
every_said = pytest.mark.parametrize("said", SAID)


def test_settings_come_back_the_same_from_the_words_of_rest() -> None:
    assert all(getattr(OTHER, name) != SETTINGS[name].default for name in SAID.values())
    assert QueueSettings(**from_said(as_said(OTHER))) == OTHER
    assert from_said({}) == {}


@every_setting
def test_every_setting_has_a_meaning_and_every_number_its_bounds(name: str, row: Row) -> None:
    assert row.setting.help.endswith(".")
    has_bounds = row.setting.most > 0
    assert has_bounds == (type(row.default) in {int, tuple} or name == "labels")
    if has_bounds and type(row.default) is int:
        having(name, row.setting.least)
        having(name, row.setting.most)
        for beyond in (row.setting.least - 1, row.setting.most + 1):
            with pytest.raises(BadSettings, match=f"^{name} is {beyond}; allowed are {row.setting.least:,} to"):
                having(name, beyond)


@every_setting
def test_what_has_no_name_in_rest_is_for_front_ends_alone(name: str, row: Row) -> None:
    assert (row.setting.said == "") == (row.setting.who is Who.FRONT_END), name


@every_said
def test_an_error_names_every_setting_as_rest_does(said: str) -> None:
    found = problem_of(BadSettings(f"{SAID[said]} is wrong"))
    assert found is not None
    assert (found.code, found.field, found.detail) == ("bad_field", said, f"{said} is wrong")


@every_said
def test_every_setting_can_be_given_on_the_command_line(said: str) -> None:
    part, _, within = said.rpartition(".")
    value = as_said(OTHER)[part][within] if part else as_said(OTHER)[said]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value).lower()
    expected: dict[str, Any] = {part: {within: value}} if part else {said: value}
    assert settings_said([f"{said}={text}"]) == expected
    assert said in SETTING_NAMES
