"""Clients of a replicated log, and what they remember of it.

Writers send values that occur only once and note how each ended: *ok*, *failed*
(it must never appear), or *unknown*. Readers follow the log and judge each answer:

- nothing is read that was not acknowledged, and nothing twice in two ways (I4, I6);
- an end once seen is never denied (I6);
- "nothing more yet" is not said by a leader that was replaced: what was
  acknowledged to anyone before the question is in the answer (I7).
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Literal, NoReturn

from penstock.log.record import header, records
from tests.simulation.cluster import Cluster, Consume, Consumed, OutOfRange, Produce, Produced, Refused
from tests.simulation.invariants import Entry, Violation

FIRST_CLIENT = 100


@dataclass(slots=True)
class Sent:
    values: tuple[bytes, ...]
    outcome: Literal["ok", "failed", "unknown"] = "unknown"
    offset: int = -1


class Clients:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.sent: list[Sent] = []
        self.reads = 0
        # Whether the network has doubled requests: then "refused" may be true of one copy only.
        self.was_doubled = False
        # Everything below was acknowledged to some writer.
        self.acknowledged_offset = 0
        # How often each client was answered as it wished.
        self.successes: dict[int, int] = {}
        self._cluster = cluster
        self._dice = random.Random(f"clients/{seed}")

    async def write(self, client: int) -> NoReturn:
        node = self._any_node()
        self.successes[client] = 0
        for number in range(1_000_000):
            await asyncio.sleep(self._dice.random() * 0.03)
            size = self._dice.choice((1, 1, 1, 2, 5))
            sent = Sent(tuple(f"{client}/{number}/{part}".encode() for part in range(size)))
            self.sent.append(sent)
            answer = await self._cluster.call(client, node, Produce(sent.values))
            self.was_doubled = self.was_doubled or self._cluster.network.duplication > 0
            if isinstance(answer, Produced):
                sent.outcome, sent.offset = "ok", answer.offset
                self.acknowledged_offset = max(self.acknowledged_offset, answer.offset + size)
                self.successes[client] += 1
                continue
            if isinstance(answer, Refused):
                sent.outcome = "failed"
            node = self._any_node()
        raise AssertionError("a simulation is shorter than that")

    async def read(self, client: int) -> NoReturn:
        node, offset = self._any_node(), 0
        self.successes[client] = 0
        while True:
            await asyncio.sleep(self._dice.random() * 0.04)
            acknowledged = self.acknowledged_offset
            answer = await self._cluster.call(client, node, Consume(offset))
            match answer:
                case Consumed(batches=()):
                    if offset < acknowledged:
                        raise Violation(
                            f"I7: node {node} says that {offset} is the end; {acknowledged} was acknowledged"
                        )
                case Consumed():
                    offset = self._check_batches(node, offset, answer.batches)
                case OutOfRange():
                    raise Violation(f"I6: node {node} denies offset {offset}, which was the end before")
                case _:
                    node = self._any_node()
                    continue
            self.reads += 1
            self.successes[client] += 1

    def _check_batches(self, node: int, offset: int, batches: tuple[bytes, ...]) -> int:
        for batch in batches:
            found = header(batch)
            if found.base_offset != offset:
                raise Violation(f"I6: node {node} gave {found.base_offset} when {offset} came next")
            entry = Entry(offset, found.next_offset, found.epoch, found.crc)
            if self._cluster.witness.committed_at.get(offset) != entry:
                raise Violation(f"I6: node {node} gave {entry}, which was never acknowledged")
            offset = found.next_offset
        return offset

    def check(self, log: list[bytes]) -> None:
        """Compare what was promised with the batches of the log at the end."""
        values: dict[int, bytes] = {}
        for batch in log:
            base = header(batch).base_offset
            values.update((base + i, bytes(record.value or b"")) for i, record in enumerate(records(batch)))
        if sorted(values) != list(range(len(values))):
            raise Violation("I1: the log has gaps")
        present = set(values.values())
        for sent in self.sent:
            at = tuple(values.get(sent.offset + i) for i in range(len(sent.values)))
            if sent.outcome == "ok" and at != sent.values:
                raise Violation(f"I1: {sent} was acknowledged and is not there")
            if sent.outcome == "failed" and not self.was_doubled and present.intersection(sent.values):
                raise Violation(f"I18: {sent} was refused and is there")

    def _any_node(self) -> int:
        """Return the leader, if the client has good luck: then it stays there, also when that is no leader any more."""
        record = self._cluster.meta.record
        if record.leader is not None and self._dice.random() < 0.7:
            return record.leader
        return self._dice.choice(record.replicas)
