"""API keys over the network: seen, made, rotated and revoked by those who may administer everything.

Such a key can do all that another one could, so it gives no one more rights than they have. The text of a key is in one
answer and nowhere else. Where keys are kept is decided elsewhere (`KeyBook`): in a file, or in the database.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.request import Answer, Decoder, Request, instant
from penstock.broker import api_keys
from penstock.broker.access import GRANTED, BadGrant, Grant, Role, as_shown, sqs_access_key_id
from penstock.broker.api_keys import Change, KeyNotFound, Keyring, NewKey, TooManyKeys

YEAR_S = 366 * 24 * 60 * 60


class KeyBook(Protocol):
    """Where the keys of a server are."""

    async def read(self) -> Keyring | None: ...

    async def change(self, change: Callable[[Keyring | None], Change]) -> Change:
        """Replace the keys by what ``change`` makes of them. Durable on return, and good at this server."""
        ...


class GrantSaid(Struct, forbid_unknown_fields=True):
    role: Literal["metrics", "send", "receive", "read", "write", "admin"]
    queue: Annotated[str, Meta(min_length=1, max_length=255)] = "*"


class CreateKey(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    grants: Annotated[list[GrantSaid], Meta(min_length=1, max_length=100)]
    queues_max: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    expires_in_s: Annotated[int, Meta(ge=60, le=100 * YEAR_S)] | UnsetType = UNSET
    requests_per_s: Annotated[int, Meta(ge=1, lt=2**53)] | UnsetType = UNSET
    bytes_per_s: Annotated[int, Meta(ge=1, lt=2**53)] | UnsetType = UNSET
    sqs: bool = False


class RotateKey(Struct, forbid_unknown_fields=True):
    keep_old_for_s: Annotated[int, Meta(ge=0, le=YEAR_S)] = 3_600


_read_create = Decoder(CreateKey)
_read_rotate = Decoder(RotateKey)


@dataclass(frozen=True, slots=True)
class KeyOperations:
    book: KeyBook

    async def show(self, request: Request) -> Answer:
        request.caller.check_everywhere(Role.ADMIN)
        keyring = await self.book.read()
        return Answer({"keys": [as_shown(key, instant) for key in (() if keyring is None else keyring.keys)]})

    async def create(self, request: Request) -> Answer:
        request.caller.check_everywhere(Role.ADMIN)
        asked: CreateKey = await request.body(_read_create)
        now_ms = request.queues.now_ms()
        try:
            wanted = NewKey(
                name=asked.name,
                grants=tuple(Grant(GRANTED[each.role], each.queue) for each in asked.grants),
                queues_max=None if isinstance(asked.queues_max, UnsetType) else asked.queues_max,
                expires_at_ms=None
                if isinstance(asked.expires_in_s, UnsetType)
                else now_ms + asked.expires_in_s * 1_000,
                has_sqs=asked.sqs,
                requests_per_s=None if isinstance(asked.requests_per_s, UnsetType) else asked.requests_per_s,
                bytes_per_s=None if isinstance(asked.bytes_per_s, UnsetType) else asked.bytes_per_s,
            )
        except BadGrant as error:
            raise bad_field(str(error), "grants") from None
        except ValueError as error:
            raise bad_field(str(error), "name") from None
        created_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return await self._changed(
            request, lambda keyring: api_keys.create(keyring, wanted, created_at=created_at), status=201
        )

    async def rotate(self, request: Request) -> Answer:
        request.caller.check_everywhere(Role.ADMIN)
        asked: RotateKey = await request.body(_read_rotate, may_be_empty=True)
        key_id, now_ms = request.parameter("key_id"), request.queues.now_ms()
        keep_ms = asked.keep_old_for_s * 1_000
        return await self._changed(
            request, lambda keyring: api_keys.rotate(keyring, key_id, keep_ms=keep_ms, now_ms=now_ms)
        )

    async def revoke(self, request: Request) -> Answer:
        request.caller.check_everywhere(Role.ADMIN)
        key_id = request.parameter("key_id")
        return await self._changed(request, lambda keyring: api_keys.revoke(keyring, key_id))

    async def _changed(
        self, request: Request, change: Callable[[Keyring | None], Change], *, status: int = 200
    ) -> Answer:
        try:
            done = await self.book.change(change)
        except KeyNotFound as error:
            raise Refused("key_not_found", str(error)) from None
        except TooManyKeys as error:
            raise bad_field(str(error), "name") from None
        await request.did(f"key.{done.action}", done.key.name, detail=done.key.id)
        shown = as_shown(done.key, instant)
        if done.text:
            shown["key"] = done.text
            if done.key.sqs_secret:
                shown["aws_access_key_id"] = sqs_access_key_id(done.key.id)
                shown["aws_secret_access_key"] = done.key.sqs_secret
        return Answer(shown, status=status, headers=((b"cache-control", b"no-store"),))
