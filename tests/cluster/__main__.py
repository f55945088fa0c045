"""`make cluster`: a primary with a synchronous standby and three servers, until Ctrl-C, and a table of how they are."""

import asyncio
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live

from penstock.cli.cluster import ClusterView, nodes_table, read_view, standbys_table
from penstock.settings import ServerSettings
from tests.cluster.pair import Pair
from tests.cluster.site import Site

console = Console(highlight=False)


def main() -> None:
    console.print("Starting PostgreSQL, its synchronous standby and three servers …")
    with Pair(options={"autovacuum": "on"}) as pair, Site(pair, "--no-kafka") as site:
        try:
            console.print(*_introduction(site), sep="\n", soft_wrap=True)
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(_drawn(site), refresh=True)
                    time.sleep(1)  # Real time: a look each second, as `penstock top` has it.
        except KeyboardInterrupt:
            console.print("Stopping …")


def _introduction(site: Site) -> Iterator[str]:
    yield "\nTry, in another terminal:\n"
    yield f"  export PENSTOCK_URL={site.url}"
    yield "  penstock queue create orders; penstock send orders teapot; penstock receive orders"
    yield f"  penstock cluster status --store '{site.store}'"
    pids = {name: server.pid for name, server in site.servers.items() if server is not None}
    yield "\nand kill what you like; with a killed primary, promote the standby:\n"
    yield "  " + "  ".join(f"kill -9 {pid}  # {name}" for name, pid in pids.items())
    yield f"  kill -9 {site.pair.primary.pid}  # the primary"
    yield f"  psql -h {site.pair.standby.folder} -U postgres -c 'SELECT pg_promote()'\n"


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
