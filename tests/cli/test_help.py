"""What every command has in common: help that teaches, and results for programs."""

import pytest
import typer
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli import app
from penstock.cli.output import ExitCode, duration, plain, refuse
from tests.docs.commands import Command, commands

# They run until they are stopped, and what they say meanwhile is for a log.
RUNNING = {"penstock demo", "penstock serve", "penstock work"}


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_the_help_of_every_command_shows_an_example(command: Command) -> None:
    assert f"\n{command.name} " in command.help_text or f"\n{command.name}\n" in f"{command.help_text}\n"


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_parameter_says_what_it_means(command: Command) -> None:
    assert [each.names for each in command.parameters if not each.meaning] == []


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_command_that_ends_can_print_for_programs(command: Command) -> None:
    has_json = any("--json" in each.names for each in command.parameters)

    assert has_json or command.name in RUNNING


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_a_queue_that_messages_are_looked_for_in_has_one_short_name_everywhere(command: Command) -> None:
    queues = [each.names.split(", ") for each in command.parameters if "--queue" in each.names.split(", ")]

    assert all("-q" in names for names in queues)


def test_the_version_is_printed() -> None:
    assert __version__ in CliRunner().invoke(app, ["--version"]).output


def test_a_shell_can_learn_the_commands() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_every_exit_code_fits_into_a_byte_and_stands_once() -> None:
    assert all(0 <= ending <= 255 for ending in ExitCode)
    assert len({int(ending) for ending in ExitCode}) == len(ExitCode.__members__)


def test_a_refusal_prints_what_it_was_given_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        refuse("[red]not markup[/]", ExitCode.NOT_FOUND)

    assert caught.value.exit_code == 66
    assert capsys.readouterr().err == "[red]not markup[/]\n"


def test_text_of_strangers_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2Jb\r\nc[bold]").plain == "a�[2Jb��c[bold]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (0.25, "0.2 s"), (59.9, "59 s"), (60, "1 min"), (3_661, "1 h 1 min"), (86_400, "1 d")],
)
def test_a_span_of_time_is_said_as_people_say_it(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
