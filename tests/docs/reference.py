"""The reference pages that are made from the code.

`python -m tests.docs.reference` writes them; a test fails while one is stale.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path

from penstock.cli.output import ExitCode
from penstock.contract.limits import LIMITS
from penstock.contract.queue_settings import DAY_MS, MINUTE_MS, SECOND_MS, SETTINGS, Row
from penstock.settings import PREFIX, SECTIONS, ServerSettings
from penstock.telemetry import LOG_EVENTS
from tests.docs import metrics_reference as metrics
from tests.docs.commands import commands
from tests.docs.declared import Declared, bounds_of, choices_of, settings_of
from tests.docs.pages import ROOT
from tests.docs.pipeline_reference import OPENING as OPENING_OF_PIPELINE
from tests.docs.pipeline_reference import pipeline_lines
from tests.docs.rest_reference import errors_page, rest_page
from tests.docs.sdk_reference import OPENING as OPENING_OF_SDK
from tests.docs.sdk_reference import sdk_lines
from tests.docs.sdk_settings import SDK_SETTINGS, sdk_settings
from tests.docs.settings_stub import settings_stub
from tests.docs.spark_reference import OPENING, spark_lines
from tests.docs.sqs_reference import sqs_page
from tests.docs.sync_stub import STUB, stub

REFERENCE = ROOT / "docs" / "reference"


def log_events_page() -> str:
    rows = [f"| `{event.name}` | {event.level} | {event.meaning} |" for event in LOG_EVENTS]
    return _page(
        "Log events",
        "src/penstock/telemetry.py",
        "A log event is what a server says of itself: a name and fields. It goes to Python's logging\n"
        "under the name `penstock`, with the event as `record.event` and its fields as `record.fields`. Levels follow\n"
        "what is asked of you: `info` nothing, `warning` a look, `error` an action.",
        ["| event | level | what it tells you |", "|---|---|---|", *rows],
    )


def limits_page() -> str:
    rows = [f"| `{limit.name}` | {limit.value:,} {limit.unit} | {limit.meaning} |" for limit in LIMITS]
    return _page(
        "Limits",
        "src/penstock/contract/limits.py",
        "Everything that can grow has a limit, and every limit is in this table. What a caller asks for beyond one is\n"
        "refused before memory or disk is spent on it, and the error names the limit.",
        ["| limit | value | what it bounds |", "|---|---|---|", *rows],
    )


def queue_settings_page() -> str:
    rows = [
        f"| `{name}` | {f'`{row.setting.said}`' if row.setting.said else ''} | {_value(name, row.default)} "
        f"| {_allowed(row)} | {row.setting.who.value} | {row.setting.help} |"
        for name, row in SETTINGS.items()
    ]
    return _page(
        "Settings of a queue",
        "src/penstock/contract/queue_settings.py",
        "What may be set for one queue: by its name in Python's `QueueSettings` and on disk, and by that in REST, the\n"
        "SDK and the command line, where times are seconds. A list has one number for each tier, CRITICAL first. What\n"
        "is out of bounds is refused with an error that names the setting. Settings change while a queue is in use.",
        [
            "| setting | in REST | default | bounds | set by | meaning |",
            "|---|---|---|---|---|---|",
            *rows,
            *_choices([Declared(name, row.default, "") for name, row in SETTINGS.items()]),
        ],
    )


def cli_page() -> str:
    endings = [f"| {int(each.default)} | {each.meaning} |" for each in choices_of(ExitCode)]
    lines = ["## Exit codes", "", "| code | meaning |", "|---|---|", *endings]
    for command in commands():
        lines += ["", f"## `{command.name}`", "", "```text", command.help_text, "```"]
        if command.parameters:
            lines += ["", "| argument or option | meaning | default |", "|---|---|---|"]
            lines += [f"| `{each.names}` | {each.meaning} | {each.default} |" for each in command.parameters]
    return _page(
        "The command line",
        "src/penstock/cli/__init__.py",
        "Every command says the same with `--help`. Results go to standard output, everything else to standard error.\n"
        "`--json` prints results for programs. `penstock --install-completion` teaches your shell the commands.",
        lines,
    )


def settings_page() -> str:
    lines: list[str] = []
    bounds = bounds_of(ServerSettings)
    for section, kind in SECTIONS.items():
        settings = settings_of(kind)
        lines += [
            "",
            f"## `[{section}]`",
            "",
            "| setting | variable | default | bounds | meaning |",
            "|---|---|---|---|---|",
        ]
        for each in settings:
            default = each.default.value if isinstance(each.default, Enum) else each.default
            default = "empty" if default == "" else f"`{default}`".replace("`False`", "`false`")
            bound = bounds.get(each.name, _bounds(each, {}) if isinstance(each.default, Enum) else "")
            lines.append(f"| `{each.name}` | `{PREFIX}{each.name.upper()}` | {default} | {bound} | {each.meaning} |")
        lines += _choices(settings)
    return _page(
        "Settings",
        "src/penstock/settings.py",
        "What a server and its clients can be told. The first of these that says something counts: an option of the\n"
        "command (`--stop-timeout-s`), a variable of the environment, the file, the default. The file is\n"
        "`penstock.toml` in the working directory, or the one that `--config` or `PENSTOCK_CONFIG` names. A name or a\n"
        "value that is not allowed is an error, never a default. `penstock config` shows every value and\n"
        "where it came from.\n\n"
        '```text\n[server]\nport = 9000\ndata = "/var/lib/penstock"\n\n[client]\nurl = "http://127.0.0.1:9000"\n```',
        lines[1:],
    )


def _value(name: str, default: object) -> str:
    if isinstance(default, Enum):
        return f"`{default.value}`"
    if isinstance(default, tuple):
        return ", ".join(_number(name, each) for each in default)
    return _number(name, default) if type(default) is int else f"`{default!r}`"


def _allowed(row: Row) -> str:
    default, setting = row.default, row.setting
    if isinstance(default, bool | Enum):
        return _bounds(Declared("", default, ""), {})
    if setting.unit == "characters":
        return f"at most {setting.most:,} characters"
    if isinstance(default, str):
        return "the name of a queue"
    each = "each " if isinstance(default, tuple) else ""
    return f"{each}{setting.least:,} to {setting.most:,} {setting.unit}".rstrip()


def _number(name: str, value: int) -> str:
    """The number, and what it comes to if it is a time."""
    for unit, size_ms in (("days", DAY_MS), ("min", MINUTE_MS), ("s", SECOND_MS)):
        if "_ms" in name and value and value % size_ms == 0:
            return f"{value} ({value // size_ms} {unit})"
    return str(value)


def _bounds(setting: Declared, bounds: dict[str, str]) -> str:
    if isinstance(setting.default, Enum):
        return "one of " + ", ".join(f"`{choice.value}`" for choice in type(setting.default))
    if isinstance(setting.default, bool):
        return "`True` or `False`"
    return bounds[setting.name]


def _choices(settings: list[Declared]) -> list[str]:
    """What each word means, of the settings that are one of a few."""
    lines: list[str] = []
    for setting in settings:
        if isinstance(setting.default, Enum):
            lines += ["", f"## `{setting.name}`", "", "| choice | meaning |", "|---|---|"]
            lines += [f"| `{each.default}` | {each.meaning} |" for each in choices_of(type(setting.default))]
    return lines


PAGES: dict[Path, Callable[[], str]] = {
    STUB: stub,
    SDK_SETTINGS: sdk_settings,
    REFERENCE / "sdk.md": lambda: _page(
        "The SDK", "src/penstock/client/__init__.py", OPENING_OF_SDK, list(sdk_lines())
    ),
    REFERENCE / "log-events.md": log_events_page,
    REFERENCE / "metrics.md": lambda: _page(
        "Metrics", "src/penstock/telemetry.py", metrics.OPENING, metrics.metrics_lines()
    ),
    REFERENCE / "limits.md": limits_page,
    REFERENCE / "cli.md": cli_page,
    REFERENCE / "settings.md": settings_page,
    REFERENCE / "queue-settings.md": queue_settings_page,
    REFERENCE / "rest.md": rest_page,
    REFERENCE / "errors.md": errors_page,
    REFERENCE / "sqs.md": lambda: sqs_page(REFERENCE / "sqs.md"),
    ROOT / "src" / "penstock" / "wire" / "queue_settings.pyi": settings_stub,
    REFERENCE / "spark.md": lambda: _page(
        "The source for Spark", "src/penstock/pipeline/options.py", OPENING, spark_lines()
    ),
    REFERENCE / "pipeline-file.md": lambda: _page(
        "The file of the pipeline", "src/penstock/pipeline/service/plan.py", OPENING_OF_PIPELINE, pipeline_lines()
    ),
}


def _page(title: str, source: str, opening: str, table: list[str]) -> str:
    made = (
        f"This page is made from [`{source}`](../../{source}): change that, then run `python -m tests.docs.reference`."
    )
    return "\n".join([f"# {title}", "", opening, "", *table, "", made, ""])


def write() -> None:
    for path, make in PAGES.items():
        path.write_text(make())


if __name__ == "__main__":
    write()
