"""`penstock serve`."""

from penstock.cli.exits import Ending, refuse


def serve() -> None:
    """Run the server (not in this version yet).

    [bold]Example:[/]

    penstock serve
    """
    refuse(
        "The server is not in this version yet: it holds the queues that the server will serve.\n"
        "What works today is in the README: queues from Python, penstock backup, penstock repair.",
        Ending.UNREACHABLE,
    )
