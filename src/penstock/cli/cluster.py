"""`penstock cluster`: the servers of a database, its standbys, and what an operator does with them.

It asks the database itself, so that it answers when no server does.
"""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.config import LocalSession
from penstock.cli.migrate import asks_database, databases, run_on
from penstock.cli.output import ExitCode, counted, duration, refuse, table
from penstock.settings import ServerSettings, without_password

if TYPE_CHECKING:
    from penstock.store.postgres.durability import Engine
    from penstock.store.postgres.shared_tables import NodeRow, StandbyRow

app = typer.Typer(no_args_is_help=True, help="See and drain the servers of a PostgreSQL database.")

_LOOK_S = 0.5

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The name of a server: see penstock cluster nodes.")]
Wait = Annotated[float, typer.Option("--wait", min=0, help="For how many seconds to wait until it has stopped.")]


@dataclass(frozen=True)
class ClusterView:
    """What one look at a database shows."""

    patterns: str
    url: str
    nodes: "list[NodeRow]"
    standbys: "list[StandbyRow]"
    engine: "Engine"

    @property
    def live(self) -> "list[NodeRow]":
        return [node for node in self.nodes if node.is_live]

    def faults(self, *, requires_standby: bool) -> list[str]:
        """What an operator should mend."""
        engine, versions = self.engine, {node.version for node in self.live}
        found = [
            f"{node.name} was last heard {duration(node.silent_ms / 1_000)} ago"
            for node in self.nodes
            if _is_lost(node)
        ]
        if not self.live:
            found.append("no server serves: start one with penstock serve --store …")
        elif len(self.live) == 1:
            found.append("one server serves: while it is down, nothing is served")
        if len(versions) > 1:
            found.append(f"servers have different versions: {', '.join(sorted(versions))}")
        if engine.is_standby_missing:
            found.append(f"commits wait for {engine.standbys_needed} synchronous standbys, {engine.standbys} is there")
        if not engine.standbys_needed:
            wanted = "postgres_requires_standby asks for one" if requires_standby else "the database is on one machine"
            found.append(f"commits wait for no synchronous standby, and {wanted}: set synchronous_standby_names")
        if not engine.has_fsync:
            found.append("fsync is off: a crash may destroy the database")
        return found + engine.doubts()

    def to_json(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "database": self.patterns,
            "url": self.url,
            "nodes": [_node_json(node) for node in self.nodes],
            "standbys": [asdict(standby) for standby in self.standbys],
            "durability": "synchronous standby" if engine.standbys_needed else "one machine",
            "standbys_needed": engine.standbys_needed,
            "synchronous_commit": engine.synchronous_commit,
            "synchronous_standby_names": engine.synchronous_standby_names,
            "fsync": engine.has_fsync,
        }


def _is_lost(node: "NodeRow") -> bool:
    return node.condition == "lost"


def _node_json(node: "NodeRow") -> dict[str, Any]:
    return {
        "name": node.name,
        "address": node.address,
        "version": node.version,
        "state": node.condition,
        "started_at_ms": node.started_at_ms,
        "silent_ms": node.silent_ms,
        "drains": node.is_to_drain,
    }


@app.command("status")
@asks_database
def status(session: LocalSession) -> None:
    """Show servers, standbys, and what a commit waits for.

    [bold]Examples:[/]

    penstock cluster status --store 'postgresql://penstock@a,b/shop?target_session_attrs=read-write'
    penstock cluster status --store postgresql://penstock@db.example.com/shop --json
    """
    views = _views(session.settings)
    shown: list[Any] = []
    for view in views:
        engine = view.engine
        waits = f"{counted(engine.standbys_needed, 'synchronous standby')}" if engine.standbys_needed else "no standby"
        fsync = "on" if engine.has_fsync else "off"
        shown += [
            f"Database {view.patterns} at {view.url}",
            f"  a commit waits for {waits}; fsync {fsync}, synchronous_commit {engine.synchronous_commit}",
            nodes_table(view),
            standbys_table(view) if view.standbys else "No standby is connected.",
        ]
    session.show([view.to_json() for view in views], *shown)


@app.command("nodes")
@asks_database
def nodes(session: LocalSession) -> None:
    """List the servers of a database, those that ended within a day among them.

    [bold]Example:[/]

    penstock cluster nodes --store postgresql://penstock@db.example.com/shop
    """
    views = _views(session.settings)
    found = [_node_json(node) for view in views for node in view.nodes]
    session.show(found, *(nodes_table(view) for view in views if view.nodes), empty="No server has been here.")


@app.command("drain")
@asks_database
def drain(session: LocalSession, node: NodeName, *, wait: Wait = 60.0) -> None:
    """Let a server stop in good order, and wait until it has.

    It does what SIGTERM does: it answers what is open, takes nothing new, and ends. Clients with
    several URLs, and those behind a load balancer, go on at another one.

    [bold]Example:[/]

    penstock cluster drain shop-1:8080 --store postgresql://penstock@db.example.com/shop
    """
    settings = next(iter(databases(session.settings).values()))
    if not run_on(settings, _asked_to_drain(settings, node)):
        refuse(f"No server {node!r} is there; penstock cluster nodes lists them.", ExitCode.NOT_FOUND)
    until = time.monotonic() + wait
    while True:
        (row,) = [each for each in run_on(settings, read_view(settings, "*")).nodes if each.name == node]
        if not row.is_live:
            session.show(_node_json(row), f"{node} has stopped.")
            return
        if time.monotonic() >= until:
            refuse(f"{node} is still {row.condition} after {wait:g} s.", ExitCode.TRY_AGAIN)
        time.sleep(_LOOK_S)


@app.command("check")
@asks_database
def check(session: LocalSession) -> None:
    """Say what should be mended, and end with 1 if there is anything: for a monitor, and before an upgrade.

    [bold]Example:[/]

    penstock cluster check --store postgresql://penstock@db.example.com/shop
    """
    requires = session.settings.postgres_requires_standby
    faults = [fault for view in _views(session.settings) for fault in view.faults(requires_standby=requires)]
    session.show({"faults": faults}, *(faults or ["Nothing to mend."]))
    if faults:
        raise typer.Exit(ExitCode.NOTHING)


def _views(settings: ServerSettings) -> list[ClusterView]:
    return [
        run_on(one, read_view(one, patterns), doing=f"{patterns}: ") for patterns, one in databases(settings).items()
    ]


async def read_view(settings: ServerSettings, patterns: str) -> ClusterView:
    from psycopg import AsyncConnection

    from penstock.store.postgres.connection import bounded
    from penstock.store.postgres.durability import read_engine
    from penstock.store.postgres.migrate import check as check_schema
    from penstock.store.postgres.shared_tables import list_nodes, list_standbys

    schema = settings.postgres_schema
    async with await AsyncConnection.connect(
        bounded(settings.store), autocommit=True, prepare_threshold=None
    ) as connection:
        await check_schema(connection, schema)
        return ClusterView(
            patterns=patterns,
            url=without_password(settings.store),
            nodes=await list_nodes(connection, schema),
            standbys=await list_standbys(connection, schema),
            engine=await read_engine(connection, schema),
        )


async def _asked_to_drain(settings: ServerSettings, node: str) -> bool:
    from psycopg import AsyncConnection

    from penstock.store.postgres.connection import bounded
    from penstock.store.postgres.shared_tables import drain_node

    async with await AsyncConnection.connect(
        bounded(settings.store), autocommit=True, prepare_threshold=None
    ) as connection:
        # A standby that is away must not keep an operator from it.
        await connection.execute("SET synchronous_commit = local")
        return await drain_node(connection, settings.postgres_schema, node)


def nodes_table(view: ClusterView) -> Any:
    return table(
        "server", "address", "state", "version", "last heard",
        rows=(
            (node.name, node.address, node.condition, node.version, f"{duration(node.silent_ms / 1_000)} ago")
            for node in view.nodes
        ),
    )  # fmt: skip


def standbys_table(view: ClusterView) -> Any:
    return table(
        "standby", "address", "state", "sync", "behind by",
        rows=(
            (
                each.name or "?", each.address or "local", each.state or "?", each.sync_state or "?",
                "?" if each.behind_bytes is None else counted(each.behind_bytes, "byte"),
            )
            for each in view.standbys
        ),
    )  # fmt: skip
