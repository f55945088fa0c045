"""`make cluster`: a primary with a synchronous standby and three servers, until Ctrl-C, and a table of how they are."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live

from penstock.cli.cluster import ClusterView, nodes_table, read_view, standbys_table
from penstock.settings import ServerSettings
from tests.cluster.pair import Pair
from tests.cluster.site import Site

console = Console(highlight=False)
# Where a second terminal finds what runs here.
ENVIRONMENT = Path("cluster.env")


def main() -> None:
    # All ends together, however this process is told to end; a shell's background jobs do not hear of Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    console.print("Starting PostgreSQL, its synchronous standby and three servers …")
    with Pair(options={"autovacuum": "on"}) as pair, Site(pair, kafka=True) as site:
        try:
            ENVIRONMENT.write_text(site.environment())
            console.print(*_introduction(), sep="\n", soft_wrap=True)
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(_drawn(site), refresh=True)
                    time.sleep(1)  # Real time: a look each second, as `penstock top` has it.
        except KeyboardInterrupt:
            console.print("Stopping …")
        finally:
            ENVIRONMENT.unlink(missing_ok=True)


def _introduction() -> Iterator[str]:
    yield f"\nIn another terminal, in this folder, {ENVIRONMENT} says where everything is:\n"
    yield f"  source .venv/bin/activate; source {ENVIRONMENT}"
    yield "  penstock queue create orders; penstock send orders teapot"
    yield "  penstock topic create clicks --partitions 3; penstock topic produce clicks teapot"
    yield "  kill -9 $ONE; penstock receive orders; penstock cluster check"
    yield "  kill -9 $PRIMARY; promote; penstock cluster status\n"
    yield "Kafka's clients find the servers at $BOOTSTRAP.\n"
    yield "docs/tutorial/three-servers.md tells more. Ctrl-C ends all.\n"


def _drawn(site: Site) -> RenderableType:
    try:
        view: ClusterView = asyncio.run(read_view(ServerSettings(store=site.store), "*"))
    except Exception as error:
        # Whatever a person who kills things has brought about.
        return f"The database does not answer: {error}"
    standbys = standbys_table(view) if view.standbys else "No standby is connected."
    return Group(nodes_table(view), "", standbys)


if __name__ == "__main__":
    main()
