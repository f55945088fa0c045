"""`penstock key`: makes, lists, rotates and revokes API keys, in the server's folder or in its database.

Who may make keys here is who may write the folder, or the database; over the network, in the console, who has a
key with the role admin on all queues. Every change goes through `_change`.

`penstock activity` shows the audit log: who did what with which key, and who was not let in.
"""

import getpass
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.broker import api_keys
from penstock.broker.access import KEY_TEXT, BadGrant, Grant, Key, Role, as_shown, sqs_access_key_id
from penstock.broker.api_keys import (
    Change,
    KeyExists,
    KeyNotFound,
    Keyring,
    KeysDamaged,
    NewKey,
    TooManyKeys,
    change_file,
    read_keyring,
    reset_file,
)
from penstock.cli.config import Config, Json, LocalSession, Session, asks_server, loaded, with_options
from penstock.cli.migrate import run_on
from penstock.cli.output import ExitCode, print_json, refuse, remark, say, show, table
from penstock.settings import ServerSettings, without_password

app = typer.Typer(no_args_is_help=True, help="Make, list, rotate and revoke API keys.")

Data = Annotated[
    Path | None, typer.Option("--data", help="The folder of the server.", file_okay=False, rich_help_panel="Settings")
]
Store = Annotated[
    str | None,
    typer.Option(
        help="postgresql://… for the keys of a database, which all its servers share.", rich_help_panel="Settings"
    ),
]
Schema = Annotated[str | None, typer.Option("--postgres-schema", help="Its schema.", rich_help_panel="Settings")]
Patterns = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="The queues it holds for; * stands for any characters. Default: all."),
]
QueuesMax = Annotated[
    int | None, typer.Option(min=0, help="Create no queue or topic once so many are there that it may administer.")
]
ExpiresIn = Annotated[
    str | None, typer.Option(help="For how long it is good, such as 90d, 12h or 30m. Default: for ever.")
]
RequestsPerS = Annotated[
    int | None, typer.Option(min=1, help="How many requests it may make in a second, at each server.")
]
BytesPerS = Annotated[
    int | None, typer.Option(min=1, help="How many bytes it may send and be sent in a second, at each server.")
]
Sqs = Annotated[bool, typer.Option("--sqs", help="Make a pair for SQS, too, bound to the rights of the key.")]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        envvar="PENSTOCK_NEW_KEY",
        help="Enter this key, from `penstock key generate`, and do nothing if it is there; see generate.",
    ),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id of the key, as `penstock key list` shows it.")]


@contextmanager
def asking_keys(
    *,
    data: Data = None,
    store: Store = None,
    postgres_schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> Iterator[LocalSession]:
    options = {"data": data, "store": store, "postgres_schema": postgres_schema}
    yield LocalSession(loaded(ServerSettings, options, config).settings, as_json)


asks_keys = with_options(asking_keys)

_SPAN = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class RoleName(Enum):
    metrics = "metrics"
    send = "send"
    receive = "receive"
    read = "read"
    write = "write"
    admin = "admin"


@app.command("create")
@asks_keys
def create(
    session: LocalSession,
    *,
    name: Annotated[str, typer.Option(help="Whose key it is; only people read this.")],
    role: Annotated[RoleName, typer.Option(help="What its holder may do.")],
    queue: Patterns = None,
    queues_max: QueuesMax = None,
    expires_in: ExpiresIn = None,
    requests_per_s: RequestsPerS = None,
    bytes_per_s: BytesPerS = None,
    sqs: Sqs = False,
    text: Text = None,
) -> None:
    """Make a key and print it, this one time.

    The server keeps only a hash of it, and takes it up within a second or two, also
    while it runs. With the first key, every client needs one.

    metrics   read /metrics, and nothing else; on all queues
    send      send; list and describe
    receive   receive, ack, release, extend; list and describe
    read      peek, explain, history, metrics; list and describe
    write     all of the above
    admin     and create, change, purge, delete, escalate, redrive

    [bold]Examples:[/]

    penstock key create --name ops --role admin
    penstock key create --name shop --role write --queue 'orders*' --queue mails
    penstock key create --name batch --role send --expires-in 90d --sqs
    penstock key create --name ops --role admin --store postgresql://db.example.com/shop
    export PENSTOCK_KEY=$(penstock key create --name me --role admin)
    PENSTOCK_NEW_KEY=$(cat secrets/admin_key) penstock key create --name ops --role admin
    """
    now = datetime.now(UTC)
    limits = {"queues_max": queues_max, "requests_per_s": requests_per_s, "bytes_per_s": bytes_per_s}
    ends_at_ms = None if expires_in is None else _ms(now) + span_ms("--expires-in", expires_in)
    wanted = _wanted(name, role, queue or ["*"], expires_at_ms=ends_at_ms, has_sqs=sqs, **limits)
    if text is not None and KEY_TEXT.fullmatch(text) is None:
        refuse("--text is no key; it must be what `penstock key generate` prints")
    try:
        done = _change(
            session.settings,
            lambda keyring: api_keys.create(keyring, wanted, created_at=_instant(now), text=text or ""),
        )
    except KeyExists as error:
        if not error.is_same:
            refuse(str(error), ExitCode.CONFLICT)
        say(f"{error}; nothing was changed")
    else:
        _show_new(session, done, is_drawn=text is None)


@app.command("generate")
def generate(*, as_json: Json = False) -> None:
    """Draw a key and print it; no server knows it yet.

    Keep it where your deployment keeps its secrets. `penstock key create --text`, or the
    variable PENSTOCK_NEW_KEY, enters it, as often as the deployment likes.

    [bold]Example:[/]

    penstock key generate > secrets/admin_key
    """
    text = api_keys.new_text(secrets.token_hex(6))
    show({"key": text}, text, as_json=as_json)


@app.command("list")
@asks_keys
def list_keys(
    session: LocalSession,
) -> None:
    """List the keys, without their secrets.

    [bold]Examples:[/]

    penstock key list
    penstock key list --data /var/lib/penstock --json
    penstock key list --store postgresql://db.example.com/shop
    """
    keys, now_ms, rows = _read(session.settings), _ms(datetime.now(UTC)), []
    for key in keys:
        grants = ", ".join(f"{grant.role.name.lower()} {grant.pattern}" for grant in key.grants)
        ends_at = None if key.expires_at_ms is None else _instant_of(key.expires_at_ms)
        ends_at = "expired" if key.expires_at_ms is not None and key.expires_at_ms <= now_ms else ends_at
        rows.append((key.id, key.name, grants, key.queues_max, key.created_at, ends_at, f"…{key.ending}"))
    columns = ("id", "name", "may", "queues max", "created", "expires", "ends with")
    session.show(
        [as_shown(key, _instant_of) for key in keys],
        table(*columns, numbers=["queues max"], rows=rows),
        empty=f"There are no keys in {_place(session.settings)}. Make one with: penstock key create --name admin "
        "--role admin",
    )


@app.command("rotate")
@asks_keys
def rotate(
    session: LocalSession,
    key_id: KeyId,
    *,
    keep_old_for: Annotated[
        str, typer.Option(help="For how long the old secret stays good beside the new one; 0s ends it at once.")
    ] = "1h",
) -> None:
    """Give a key another secret, and print the key, this one time.

    Its id, name and rights stay. Both secrets are good for a while, so that clients can
    be changed one after the other; a second rotation ends the older of the two.

    [bold]Examples:[/]

    penstock key rotate 1f2e3d4c5b6a
    penstock key rotate 1f2e3d4c5b6a --keep-old-for 7d
    """
    keep_ms = span_ms("--keep-old-for", keep_old_for)
    now_ms = _ms(datetime.now(UTC))
    done = _change(session.settings, lambda keyring: api_keys.rotate(keyring, key_id, keep_ms=keep_ms, now_ms=now_ms))
    _show_new(session, done)


@app.command("revoke")
@asks_keys
def revoke(
    session: LocalSession,
    key_id: KeyId,
) -> None:
    """Take a key away. Running servers refuse it within a second or two, also those who wait with it.

    After the last key no client is admitted: make another one first.

    [bold]Example:[/]

    penstock key revoke 1f2e3d4c5b6a
    """
    key = _change(session.settings, lambda keyring: api_keys.revoke(keyring, key_id)).key
    session.show(as_shown(key, _instant_of), f"Revoked the key {key.id} of {key.name}.")


@app.command("reset")
@asks_keys
def reset(
    session: LocalSession,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Forget all keys, and that there ever were any.

    A server that has had a key needs keys for ever, whatever becomes of them. This is
    the way back: the next start is as if there had been none. Servers that run
    refuse every request until they are restarted.

    [bold]Example:[/]

    penstock key reset --yes
    """
    settings = session.settings
    if not yes:
        refuse(f"This forgets all keys in {_place(settings)}, for good. If that is meant, say --yes.")
    try:
        if settings.is_on_postgres:
            from penstock.store_factory import reset_shared_keys

            had_keys = run_on(settings, reset_shared_keys(settings, actor=_actor()))
        else:
            had_keys = reset_file(settings.keys_path)
            _write_down(settings, None)
    except OSError as error:
        refuse(str(error), ExitCode.STORAGE_FAILED)
    said = f"There are no keys in {_place(settings)} any more." if had_keys else "There have been no keys."
    session.show({"had_keys": had_keys}, said)


def _wanted(name: str, role: RoleName, patterns: list[str], **limits: Any) -> NewKey:
    try:
        grants = tuple(Grant(Role[role.name.upper()], pattern) for pattern in patterns)
        return NewKey(name=name, grants=grants, **limits)
    except (BadGrant, ValueError) as error:
        refuse(str(error))


def _change(settings: ServerSettings, change: Callable[[Keyring | None], Change]) -> Change:
    """Change the keys where they are kept, or say why that did not work and end the command."""
    try:
        if settings.is_on_postgres:
            from penstock.store_factory import change_shared_keys

            done: Change = run_on(settings, change_shared_keys(settings, change, actor=_actor()))
        else:
            done = change_file(settings.keys_path, change)
            _write_down(settings, done)
        return done
    except KeyNotFound as error:
        refuse(f"{error} in {_place(settings)}", ExitCode.NOT_FOUND)
    except TooManyKeys as error:
        refuse(str(error), ExitCode.CONFLICT)
    except (KeysDamaged, OSError) as error:
        refuse(str(error), ExitCode.STORAGE_FAILED)


def _write_down(settings: ServerSettings, change: Change | None) -> None:
    """Add a change to the audit log; it stays done if that does not work."""
    from penstock.store_factory import audit_log_of, entry_of

    log = audit_log_of(settings)
    if log is None:
        return
    try:
        log.append_now([entry_of(change, actor=_actor())])
    except OSError as error:
        remark(f"This is not in the audit log: {error}")


def _actor() -> str:
    """Who types: there is no key for what makes keys."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _read(settings: ServerSettings) -> tuple[Key, ...]:
    try:
        if settings.is_on_postgres:
            from penstock.store_factory import read_shared_keys

            keyring: Keyring | None = run_on(settings, read_shared_keys(settings))
        else:
            keyring = read_keyring(settings.keys_path)
    except KeysDamaged as error:
        refuse(str(error), ExitCode.STORAGE_FAILED)
    return () if keyring is None else keyring.keys


def _place(settings: ServerSettings) -> str:
    return without_password(settings.routes[0].url) if settings.is_on_postgres else str(settings.data)


def _show_new(session: LocalSession, done: Change, *, is_drawn: bool = True) -> None:
    if session.is_json:
        pair = {"aws_access_key_id": sqs_access_key_id(done.key.id), "aws_secret_access_key": done.key.sqs_secret}
        print_json(
            {
                **as_shown(done.key, _instant_of),
                **({"key": done.text} if is_drawn else {}),
                **(pair if done.key.sqs_secret else {}),
            }
        )
        return
    # Not a secret that its owner has already: this may end in a log.
    say(done.text if is_drawn else f"Entered the key {done.key.id}.")
    if done.key.sqs_secret:
        say(f"AWS_ACCESS_KEY_ID={sqs_access_key_id(done.key.id)}")
        say(f"AWS_SECRET_ACCESS_KEY={done.key.sqs_secret}")
    if is_drawn:
        remark("Keep it: it is not shown again. Clients take it from PENSTOCK_KEY, or from --key.")
    if done.key.former is not None:
        remark(f"The old secret is good until {_instant_of(done.key.former.ends_at_ms)}.")


def span_ms(option: str, text: str) -> int:
    """Return a span of time such as 90d, 12h, 30m or 10s; end the command if it is none."""
    found = _SPAN.fullmatch(text)
    if found is None:
        refuse(f"{option} is {text!r}; it must be a number with a unit, such as 90d, 12h, 30m or 10s")
    return int(found[1]) * _SECONDS[found[2]] * 1_000


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)


def _instant_of(at_ms: int) -> str:
    return _instant(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms))


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@asks_server
def activity(
    session: Session,
    target: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A queue, topic, group or key.")] = None,
    *,
    actor: Annotated[str | None, typer.Option(help="Only what was done with the key of this name.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action: queue.purge, or queue, topic, login.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from then on: RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before then: RFC 3339.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> None:
    """Show who did what, the newest first: changes, deletions, purges, redrives, keys, and logins that failed.

    It needs the role admin: on the queue that is named, or on all for everything.

    [bold]Examples:[/]

    penstock activity
    penstock activity orders --action queue.purge
    penstock activity --action login --since 2027-01-31T00:00:00Z
    """
    found = session.client.activity(target=target, actor=actor, action=action, since=since, until=until)
    entries = [entry for entry, _ in zip(found, range(limit), strict=False)]
    rows = []
    for each in entries:
        actor_shown = f"{each.actor} ({each.label})" if each.label else each.actor
        where = f"{each.via} {each.source}".strip()
        rows.append((each.at, actor_shown, each.action, each.target, each.count, where, each.detail))
    shown = table("at", "actor", "action", "target", "times", "via", "detail", numbers=["times"], rows=rows)
    session.show(entries, shown, empty="Nothing that fits is in the audit log.")
