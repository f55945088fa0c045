"""Dead letters by the words of their errors: how many of each, since when, and one to look at; and a group sent back.

The words of an error without what changes from one message to the next are its signature (`contract`). Messages of
one signature most likely have one cause, and are mended together.

A look goes through a dead-letter queue page by page, up to `LOOKED_AT_MAX` messages, and is kept for a moment:
consoles that are open together share it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused
from penstock.api.rest.operators import begin_redrive_of, target_of
from penstock.api.rest.request import Answer, Decoder, Request, instant
from penstock.broker.access import Role
from penstock.broker.redrives import RedriveRequest
from penstock.contract.error_signatures import signature
from penstock.contract.limits import PAGE_MAX
from penstock.store.interface import EVERY_MESSAGE, Message
from penstock.store.placement import Placement
from penstock.wire.names import NameOrId

LOOKED_AT_MAX = 20_000
KEPT_MS = 3_000
LOOKS_KEPT = 20
GROUPS_MAX = 200
BUCKETS = 30
# Messages that are looked at before others have their turn: an error is cut into words once, and looked up after.
_TURN = 50
_PAGE = 200
_signature = lru_cache(maxsize=5_000)(signature)


@dataclass(slots=True)
class Cause:
    """Dead letters of one signature."""

    signature: str
    sample: Message
    count: int = 0
    first_ms: int = 2**62
    last_ms: int = 0
    ids: list[str] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    origins: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return blake2b(self.signature.encode("utf-8", "replace"), digest_size=8).hexdigest()

    def add(self, message: Message) -> None:
        self.count += 1
        self.ids.append(message.id)
        self.times_ms.append(message.sent_at_ms)
        self.first_ms = min(self.first_ms, message.sent_at_ms)
        if message.sent_at_ms >= self.last_ms:
            self.last_ms, self.sample = message.sent_at_ms, message
        origin = message.past.queue if message.past is not None else None
        if origin is not None:
            self.origins[origin] = self.origins.get(origin, 0) + 1


@dataclass(slots=True)
class Causes:
    at_ms: int
    looked_at: int = 0
    is_all: bool = True
    by_id: dict[str, Cause] = field(default_factory=dict)


class DeadLetters:
    def __init__(self, placement: Placement, now_ms: Callable[[], int]) -> None:
        self._placement = placement
        self._now_ms = now_ms
        self._kept: OrderedDict[str, Causes] = OrderedDict()
        self._looking = asyncio.Lock()

    async def causes(self, queue: str, *, is_new: bool = False) -> Causes:
        async with self._looking:
            kept = self._kept.get(queue)
            if kept is not None and not is_new and self._now_ms() - kept.at_ms < KEPT_MS:
                return kept
            found = await self._look(queue)
            self._kept[queue] = found
            self._kept.move_to_end(queue)
            while len(self._kept) > LOOKS_KEPT:
                self._kept.popitem(last=False)
            return found

    async def _look(self, queue: str) -> Causes:
        found, after = Causes(self._now_ms()), ""
        by_words: dict[str, Cause] = {}
        while True:
            page = await self._placement.of(queue).peek(queue, EVERY_MESSAGE, most=min(_PAGE, PAGE_MAX), after=after)
            for place, message in enumerate(page.messages):
                words = _signature(message.error)
                cause = by_words.get(words)
                if cause is None:
                    # Cutting a new error into words may take a while.
                    await asyncio.sleep(0)
                    cause = by_words[words] = Cause(words, message)
                cause.add(message)
                if place % _TURN == 0:
                    await asyncio.sleep(0)
            found.looked_at += len(page.messages)
            after = page.next
            if not after or found.looked_at >= LOOKED_AT_MAX:
                break
        found.is_all = not after
        found.by_id = {cause.id: cause for cause in by_words.values()}
        return found

    async def groups(self, request: Request) -> Answer:
        """Return the groups of dead letters, the largest first."""
        queue = await request.queue(Role.READ)
        found = await self.causes(queue)
        causes = sorted(found.by_id.values(), key=lambda each: -each.count)
        first_ms = min((each.first_ms for each in causes), default=0)
        width_ms = max(1_000, -(-(found.at_ms + 1 - first_ms) // BUCKETS))
        groups = []
        for cause in causes[:GROUPS_MAX]:
            groups.append(_shown(cause, first_ms, width_ms))
            await asyncio.sleep(0)
        value = {
            "groups": groups,
            "omitted": max(0, len(causes) - GROUPS_MAX),
            "looked_at": found.looked_at,
            "is_all": found.is_all,
            "bucket_s": width_ms / 1_000,
            "from": instant(first_ms) if causes else None,
        }
        return Answer(value)

    async def redrive(self, request: Request) -> Answer:
        """Send a group of dead letters back, as `begin_redrive` does for a filter."""
        queue = await request.queue(Role.ADMIN)
        request.queues.check_running()
        asked: RedriveGroup = await request.body(_read_redrive)
        cause = (await self.causes(queue, is_new=not asked.dry_run)).by_id.get(asked.group)
        if cause is None:
            raise Refused("message_not_found", "there are no dead letters of this group any more", field="group")
        order = RedriveRequest(
            into=await target_of(request, queue, asked.target_queue),
            ids=tuple(cause.ids),
            most=None if isinstance(asked.limit, UnsetType) else asked.limit,
            rate_per_s=None if isinstance(asked.rate_per_s, UnsetType) else asked.rate_per_s,
            is_dry_run=asked.dry_run,
        )
        return await begin_redrive_of(request, queue, order)


class RedriveGroup(Struct, forbid_unknown_fields=True, kw_only=True):
    group: Annotated[str, Meta(min_length=1, max_length=64)]
    target_queue: NameOrId | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    rate_per_s: Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType = UNSET
    dry_run: bool = False


_read_redrive = Decoder(RedriveGroup)


def _shown(cause: Cause, first_ms: int, width_ms: int) -> dict[str, object]:
    trend = [0] * BUCKETS
    for at_ms in cause.times_ms:
        trend[min(BUCKETS - 1, max(0, at_ms - first_ms) // width_ms)] += 1
    sample = cause.sample
    return {
        "id": cause.id,
        "signature": cause.signature,
        "error": sample.error,
        "count": cause.count,
        "first_at": instant(cause.first_ms),
        "last_at": instant(cause.last_ms),
        "trend": trend,
        "sample_id": sample.id,
        "preview": bytes(sample.body[:400]).decode(errors="replace"),
        "origins": cause.origins,
        # The longest stretch of the error that is no placeholder: what the command line can be told to look for.
        "literal": literal_of(cause.signature, sample.error),
    }


def literal_of(words: str, error: str) -> str:
    """Return a text that the errors of a signature have in common, as far as it shows; "" if there is none.

    >>> literal_of("ConnectionError: <host> refused order <n>", "ConnectionError: 10.0.3.17:5432 refused order 8812")
    'ConnectionError:'
    """
    plain = words.partition(" | ")[0]
    parts = [part.strip() for each in plain.split("<") for part in each.split(">")[-1:]]
    return max((part for part in parts if part and part in error), key=len, default="")
