"""The servers of a database as Kafka's clients see them: brokers with numbers and addresses."""

from crc32c import crc32c

from penstock.store.postgres.shared_tables import Identity, NodeTable
from penstock.streams.interface import Broker

_NUMBERS = 2**31 - 1


class PostgresBrokers:
    """Satisfies `streams.interface.Brokers`."""

    def __init__(self, nodes: NodeTable, identity: Identity) -> None:
        self._nodes = nodes
        self._identity = identity

    @property
    def own_number(self) -> int:
        return self.number_of(self._identity.name)

    def number_of(self, node: str) -> int:
        """Return the number of a server by its name, which it keeps when it is started again."""
        return crc32c(node.encode()) & _NUMBERS

    async def others(self) -> list[Broker]:
        found = []
        for name, address in await self._nodes.brokers():
            host, _, port = address.rpartition(":")
            if name != self._identity.name:
                found.append(Broker(self.number_of(name), host.strip("[]"), int(port)))
        return found
