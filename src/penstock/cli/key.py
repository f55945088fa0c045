"""`penstock key`: makes, lists and revokes API keys, on the machine where the server's folder is.

There is no way to do this over the network: who may make keys is who may write
the folder.
"""

from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.broker.access import BadGrant, Grant, Key, Role
from penstock.broker.keys import KeyNotFound, KeysDamaged, TooManyKeys, create_key, read_keys, revoke_key
from penstock.cli.configuration import Config, Json, loaded
from penstock.cli.exits import Ending, refuse
from penstock.cli.printing import console, plain, print_json, remark, say, table
from penstock.settings import ServerSettings

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")

Data = Annotated[
    Path | None, typer.Option("--data", help="The folder of the server.", file_okay=False, rich_help_panel="Settings")
]


class RoleName(Enum):
    metrics = "metrics"
    send = "send"
    receive = "receive"
    read = "read"
    write = "write"
    admin = "admin"


@app.command("create")
def create(
    *,
    name: Annotated[str, typer.Option(help="Whose key it is; only people read this.")],
    role: Annotated[RoleName, typer.Option(help="What its holder may do.")],
    queue: Annotated[
        list[str] | None, typer.Option(help="The queues it holds for; * stands for any characters. Default: all.")
    ] = None,
    queues_max: Annotated[
        int | None, typer.Option(min=0, help="Create no queue once so many are there that it may administer.")
    ] = None,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it, this one time.

    The server keeps only a hash of it, and takes it up within a second or two, also
    while it runs. With the first key, everybody needs one.

    metrics   read /metrics, and nothing else; on all queues
    send      send; list and describe
    receive   receive, ack, release, extend; list and describe
    read      peek, explain, history, metrics; list and describe
    write     all of the above
    admin     and create, change, purge, delete, escalate, redrive

    [bold]Examples:[/]

    penstock key create --name ops --role admin
    penstock key create --name shop --role write --queue 'orders*' --queue mails
    export PENSTOCK_KEY=$(penstock key create --name me --role admin)
    """
    path = loaded(ServerSettings, {"data": data}, config).settings.keys_path
    try:
        grants = [Grant(Role[role.name.upper()], pattern) for pattern in queue or ["*"]]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        key, text = create_key(path, name, grants, queues_max=queues_max, created_at=now)
    except (BadGrant, ValueError) as error:
        refuse(str(error))
    except TooManyKeys as error:
        refuse(str(error), Ending.CONFLICT)
    except (KeysDamaged, OSError) as error:
        refuse(str(error), Ending.STORAGE_FAILED)
    if as_json:
        print_json({**_shown(key), "key": text})
    else:
        say(text)
        remark("Keep it: it is not shown again. Clients take it from PENSTOCK_KEY, or from --key.")


@app.command("list")
def list_keys(*, data: Data = None, config: Config = None, as_json: Json = False) -> None:
    """List the keys, without their secrets.

    [bold]Examples:[/]

    penstock key list
    penstock key list --data /var/lib/penstock --json
    """
    path = loaded(ServerSettings, {"data": data}, config).settings.keys_path
    try:
        keys = read_keys(path)
    except KeysDamaged as error:
        refuse(str(error), Ending.STORAGE_FAILED)
    if as_json:
        print_json([_shown(key) for key in keys])
        return
    rows = table("id", "name", "may", "queues max", "created", "ends with", numbers=["queues max"])
    for key in keys:
        grants = ", ".join(f"{grant.role.name.lower()} {grant.pattern}" for grant in key.grants)
        limit = "-" if key.queues_max is None else f"{key.queues_max:,}"
        rows.add_row(key.id, plain(key.name), grants, limit, key.created_at, f"…{key.ending}")
    console.print(rows)
    if not keys:
        remark(f"There are no keys in {path.parent}. Make one with: penstock key create --name admin --role admin")


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, as `penstock key list` shows it.")],
    *,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take a key away. Running servers refuse it within a second or two.

    After the last key nobody is let in: make another one first.

    [bold]Example:[/]

    penstock key revoke 1f2e3d4c5b6a
    """
    path = loaded(ServerSettings, {"data": data}, config).settings.keys_path
    try:
        key = revoke_key(path, key_id)
    except KeyNotFound as error:
        refuse(str(error), Ending.NOT_FOUND)
    except (KeysDamaged, OSError) as error:
        refuse(str(error), Ending.STORAGE_FAILED)
    print_json(_shown(key)) if as_json else say(f"Revoked the key {key.id} of {key.name}.")


def _shown(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "grants": [{"role": grant.role.name.lower(), "queue": grant.pattern} for grant in key.grants],
        "queues_max": key.queues_max,
        "created_at": key.created_at,
        "ending": key.ending,
    }
