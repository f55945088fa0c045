"""The rules of the embedded store, broken one at a time: a test of `store_life.py` and `store_crashes.py`."""

from tests.simulation.mutants import Mutant

SHARD = "penstock.store.embedded.shard"
STORE = "penstock.store.embedded.store"
MEMORY = "penstock.store.embedded.shard_state"
BODIES = "penstock.store.embedded.body_index"
CODEC = "penstock.store.embedded.event_codec"
MOVES = "penstock.store.embedded.cross_shard_moves"
TIMEKEEPING = "penstock.store.embedded.shard_set"
SHARDS = "penstock.store.embedded.shard_set"
CHANGES = "penstock.core.queue.apply"
SNAPSHOT = "penstock.store.embedded.snapshot_file"
BUILDING = "penstock.store.embedded.snapshot_builder"
UPKEEP = "penstock.store.embedded.compaction"
LIVING = "penstock.core.queue.listing"
SETTLING = "penstock.core.queue.settlements"
HISTORY = "penstock.store.embedded.history_writer"
HISTORY_CUTS = "penstock.store.embedded.history_writer"

WAITS_ALWAYS = """        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.wait_durable(self._log.end_offset)
"""
WAITS_IF_WRITTEN = """        type(self).tail = self._log.end_offset

    async def __aexit__(self, *_: object) -> None:
        if self._log.end_offset != self.tail:
            await self._log.wait_durable(self._log.end_offset)
"""

STORE_MUTANTS: tuple[Mutant, ...] = (
    # Answering.
    Mutant(
        "store-answers-before-it-is-durable",
        SHARD,
        "        await self._log.wait_durable(self._log.end_offset)\n",
        "        pass\n",
    ),
    Mutant("store-an-answer-without-events-does-not-wait", SHARD, WAITS_ALWAYS, WAITS_IF_WRITTEN),
    # Becoming what the journal says.
    Mutant(
        "store-leases-do-not-begin-anew",
        MEMORY,
        "        for queue in self.queues.values():\n            queue.apply(event)\n",
        "        pass\n",
    ),
    Mutant(
        "store-a-burial-only-takes-away",
        MEMORY,
        "        self.queues[event.into].apply(event)\n",
        "",
    ),
    Mutant(
        "store-a-burial-only-adds",
        MEMORY,
        "        self.queues[event.queue].apply(event)\n        self.queues[event.into].apply(event)\n",
        "        self.queues[event.into].apply(event)\n",
    ),
    Mutant("store-time-goes-back", TIMEKEEPING, "max(0, known_ms - now_ms)", "0"),
    # Bodies.
    Mutant("store-a-row-of-mixed-tiers-is-off-by-one", BODIES, "if other == tier])", "if other == tier][1:] or [0])"),
    Mutant(
        "store-a-moved-message-is-the-first-of-its-send",
        BODIES,
        "target.arrived(tier, lane.span(run.first, run.first + 1), ",
        "target.arrived(tier, lane.span(run.first, run.first + 1)._replace(nth=0), ",
    ),
    Mutant(
        "store-bodies-of-repeats-are-kept",
        STORE,
        "    if len(accepted.event.tiers) != len(drafts):\n",
        "    if False:\n",
    ),
    # What is written down.
    Mutant("store-senders-are-not-written-down", CODEC, "if flags & _HAS_SENDER:", "if False:"),
    Mutant(
        "store-dedup-ids-are-not-written-down",
        CODEC,
        'fields["dedup_ids"] = tuple(map(bytes, next(rest)))',
        "next(rest)",
    ),
    Mutant("store-repeats-are-not-written-down", CODEC, "zip(numbers, numbers, strict=True)", "()"),
    # Moves between shards.
    Mutant("moves-settled-before-they-have-arrived-for-good", MOVES, "        await target.settled()\n", ""),
    Mutant(
        "moves-that-arrived-are-forgotten",
        CHANGES,
        "    state.moves.arrived[event.source] = event.sequence\n",
        "",
    ),
    Mutant(
        "moves-never-end",
        MOVES,
        "            shard.write(space, [JournalEntry(event)])\n        await shard.settled()\n",
        "",
    ),
    Mutant(
        "moves-mix-the-bodies-up",
        MOVES,
        "[cargo.bodies[each] for each in move.messages]",
        "[cargo.bodies[each] for each in move.messages[::-1]]",
    ),
    Mutant(
        "moves-each-shard-has-a-time-of-its-own",
        SHARDS,
        "each.take_over(ahead_ms,",
        "each.take_over(max(0, each.shard.memory.newest_ms - runtime.clock.now_ms()),",
    ),
    # Snapshots.
    Mutant("store-a-snapshot-is-not-synced", SNAPSHOT, "        file.sync()\n", ""),
    Mutant(
        "store-the-name-of-a-snapshot-is-not-synced", SNAPSHOT, "    disk.sync_folder(folder)\n    return", "    return"
    ),
    Mutant(
        "store-a-snapshot-is-one-event-too-far",
        BUILDING,
        "    offset = order.segments[-1].next_offset\n",
        "    offset = order.segments[-1].next_offset + 1\n",
    ),
    # Copying forward.
    Mutant("store-the-leased-are-not-live", LIVING, "if held and leases.until_ms[slot] >= 0:", "if False:"),
    Mutant("store-rows-are-not-live", LIVING, "        if place != FREE:", "        if place == FREE:"),
    Mutant(
        "store-pruned-one-too-far",
        BODIES,
        "bisect_right(self.firsts, lowest) - 1 if",
        "bisect_right(self.firsts, lowest) if",
    ),
    Mutant("store-a-copy-is-off-by-one", BODIES, "nth + at - first << 3", "nth + at - first + 1 << 3"),
    Mutant(
        "store-what-lies-between-copies-is-forgotten",
        BODIES,
        "rows.append(span.nth << 3 | span.tier)\n                sizes",
        "rows.append(nth << 3 | span.tier)\n                sizes",
    ),
    Mutant(
        "store-a-copy-has-no-attributes",
        UPKEEP,
        "if self._has_attributes else None",
        "if False else None",
    ),
    Mutant("store-what-moved-is-not-copied", UPKEEP, "self._shard.memory.moves, start=1", "(), start=1"),
    Mutant("store-moves-are-forgotten-too-early", UPKEEP, "if move.offset >= plan.offset]", "if False]"),
    # Dropping.
    Mutant(
        "store-dropped-beyond-the-snapshot-before",
        BUILDING,
        "if segment.next_offset <= order.needed_from]",
        "]",
    ),
    Mutant("store-dropped-without-a-copy", UPKEEP, "            await self._copy(plan)\n", ""),
    Mutant("moves-that-end-are-not-told", SETTLING, "    Moved: _of_ended_move,\n", ""),
    # The history.
    Mutant(
        "history-covers-one-event-too-many",
        HISTORY_CUTS,
        "None, events[-1].offset + 1, 0)",
        "None, events[-1].offset + 2, 0)",
    ),
    Mutant(
        "history-passes-over-one-event",
        HISTORY,
        "if offset < self._resume_offset:",
        "if offset <= self._resume_offset:",
    ),
    Mutant(
        "history-tells-again-after-a-start",
        HISTORY,
        "        self._resume_offset, self._resume_within = last.covered, last.within\n",
        "",
    ),
    Mutant(
        "history-does-not-hear-of-what-is-replayed",
        SHARD,
        "                    self._apply(event, at, size_bytes)\n",
        "                    self.memory.apply(event, at, size_bytes)\n",
    ),
    Mutant(
        "history-is-not-waited-for-by-snapshots",
        UPKEEP,
        "        told = self._shard.told_offset()\n",
        "        told = self._log.durable_offset\n",
    ),
    Mutant(
        "history-is-not-waited-for-by-deletions",
        UPKEEP,
        "            if not await self._shard.tell_history():",
        "            if False:",
    ),
)
