"""Who did what: every change that a caller asks for, and every login that failed, in the audit log.

    queue.create  queue.change  queue.delete  queue.purge
    queue.escalate  queue.requeue  queue.redrive  queue.stop_redrive
    topic.create  topic.change  topic.delete  topic.trim
    group.delete  group.forget  group.reset_offsets
    history.trim      key.create  key.rotate  key.revoke      login.fail

Laws of this file
-----------------
1. The actor is the name of the key. What a client says of itself is a label beside it.
2. An action is written down when it is done and before it is answered. A crash in between
   leaves an action without an entry, and never one without an answer.
3. What is done stays done if the entry cannot be written: the entry goes into the server's log then.
4. Strangers cannot fill the log: so many failed logins are written in an hour, and the
   others are counted into one entry when the next hour begins.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from penstock.broker.access import Caller, NotAllowed, Role
from penstock.contract.limits import (
    AUDIT_SCANNED_MAX,
    AUDIT_TEXT_CHARACTERS_MAX,
    FAILED_LOGINS_HELD_MAX,
    FAILED_LOGINS_PER_HOUR,
    PAGE_MAX,
)
from penstock.runtime.interface import LogEventWriter, beside
from penstock.store.audit_log import AuditLog, Entry, MemoryAuditLog
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.telemetry import AUDIT_UNWRITTEN

TRIM_S = 600.0
_LOGINS_S = 1.0
_HOUR_MS = 60 * 60 * 1_000
_STRANGER = "nobody"
_LOGIN = "login.fail"
_OTHERS = ("", "others", "")
# What is about these is about the whole server.
_OF_SERVER = ("key.", "login.", "history.")
_TROUBLE = (OSError, StoreUnreachable, StoreForbids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which entries are meant; None says nothing."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    def fits(self, entry: Entry) -> bool:
        return (
            self.target in {None, entry.target}
            and self.actor in {None, entry.actor}
            and (self.action is None or f"{entry.action}.".startswith(f"{self.action}."))
            and (self.from_ms is None or entry.at_ms >= self.from_ms)
            and (self.until_ms is None or entry.at_ms < self.until_ms)
        )


class Activity:
    def __init__(self, log: AuditLog, now_ms: Callable[[], int], log_event: LogEventWriter) -> None:
        self._log = log
        self._now_ms = now_ms
        self._log_event = log_event
        # Failed logins that are not written yet: how they were tried, who they said they were, and from where.
        self._logins: Counter[tuple[str, str, str]] = Counter()
        # How many there were since the start, by how they were tried.
        self.failed_logins: Counter[str] = Counter()
        self._hour = 0
        self._written = 0

    @classmethod
    def in_memory(cls, now_ms: Callable[[], int]) -> "Activity":
        return cls(MemoryAuditLog(), now_ms, lambda *_, **__: None)

    async def record(
        self, caller: Caller, action: str, *targets: str, via: str, label: str = "", detail: str = ""
    ) -> None:
        """Write down what a caller has done; durable on return, or in the server's log if this one takes nothing."""
        now_ms, label, detail = self._now_ms(), _text(label), _text(detail)
        await self._append(
            *(
                Entry(
                    at_ms=now_ms,
                    actor=caller.name,
                    action=action,
                    target=_text(target),
                    label=label,
                    detail=detail,
                    via=via,
                )
                for target in targets
            )
        )

    def failed_login(self, *, via: str, said: str, source: str) -> None:
        """Count a login that failed; it is written down within a second, or with others."""
        self.failed_logins[via] += 1
        which = (via, _text(said)[:64], source[:64])
        if which not in self._logins and len(self._logins) >= FAILED_LOGINS_HELD_MAX:
            which = _OTHERS
        self._logins[which] += 1

    async def write_logins(self, *, is_last: bool = False) -> None:
        """Write down failed logins, as many entries as an hour may have; ``is_last`` sums up the rest in one."""
        now_ms = self._now_ms()
        if now_ms // _HOUR_MS != self._hour:
            self._hour, self._written = now_ms // _HOUR_MS, 0
        while self._logins and self._written < FAILED_LOGINS_PER_HOUR:
            self._written += 1
            which, count = self._logins.popitem()
            await self._append(_failed(now_ms, which, count))
        if is_last and self._logins:
            await self._append(_failed(now_ms, _OTHERS, self._logins.total()))
            self._logins.clear()

    async def read(
        self, caller: Caller, wanted: Wanted, *, before: int | None, most: int
    ) -> tuple[list[Entry], int | None]:
        """Return entries that fit and that the caller may see, the newest first, and where to go on; None at the end.

        A caller sees what is about queues, topics and groups that it may administer, and the rest if it may administer
        all of them. A page may be short, even empty, and not be the last.
        """
        _check_may_read(caller, wanted)
        found: list[Entry] = []
        scanned = 0
        while scanned < AUDIT_SCANNED_MAX:
            page = await self._log.newest(before=before, most=PAGE_MAX)
            for position, entry in page:
                before = position
                if wanted.fits(entry) and _may_see(caller, entry):
                    found.append(entry)
                    if len(found) == most:
                        return found, before
            if len(page) < PAGE_MAX:
                return found, None
            scanned += len(page)
        return found, before

    async def _append(self, *entries: Entry) -> None:
        if not entries:
            return
        try:
            await self._log.append(entries)
        except _TROUBLE as error:
            for each in entries:
                self._log_event(
                    AUDIT_UNWRITTEN, reason=str(error), actor=each.actor, action=each.action, target=each.target
                )

    async def _run(self) -> None:
        while True:
            for _ in range(int(TRIM_S / _LOGINS_S)):
                await self.write_logins()
                await asyncio.sleep(_LOGINS_S)
            await self.trim()

    async def trim(self) -> None:
        try:
            await self._log.trim(self._now_ms())
        except _TROUBLE as error:
            self._log_event(AUDIT_UNWRITTEN, reason=str(error), actor="", action="trim", target="")


@asynccontextmanager
async def keeping_activity(activity: Activity) -> AsyncIterator[Activity]:
    """Write down failed logins, and trim the log, for as long as this is entered."""
    await activity.trim()
    try:
        async with beside(activity._run()):
            yield activity
    finally:
        await activity.write_logins(is_last=True)


def _check_may_read(caller: Caller, wanted: Wanted) -> None:
    patterns = caller.patterns(Role.ADMIN)
    if patterns == ():
        raise NotAllowed(f"the key {caller.name!r} does not have the role admin on anything")
    if patterns is not None and wanted.target is not None:
        caller.check(Role.ADMIN, wanted.target)


def _may_see(caller: Caller, entry: Entry) -> bool:
    if entry.action.startswith(_OF_SERVER):
        return caller.patterns(Role.ADMIN) is None
    return caller.has(Role.ADMIN, entry.target)


def _failed(at_ms: int, which: tuple[str, str, str], count: int) -> Entry:
    via, said, source = which
    return Entry(at_ms=at_ms, actor=_STRANGER, action=_LOGIN, target=said, via=via, source=source, count=count)


def _text(text: str) -> str:
    """Return a text of bounded length that every store and every terminal takes."""
    return "".join(
        each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:AUDIT_TEXT_CHARACTERS_MAX]
    )
