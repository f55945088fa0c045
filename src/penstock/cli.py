"""The `penstock` command."""

import click


@click.group()
def main() -> None:
    """Penstock: a durable message queue for Python teams."""
