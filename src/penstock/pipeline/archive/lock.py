"""One archiver at a time for one archive. It is a courtesy: the second one reports the first, and ends.

That no row is ever doubled does not rest on the lock (see `commit`). So it may be simple: a file that names
the archiver at work, written again every 30 seconds. Another run takes it over if its owner is dead for certain, which
can be seen on one machine only, if its owner has not written for ten minutes, or if the user says so.
"""

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.pipeline.archive.manifest import LOCK
from penstock.pipeline.job import JobFailed
from penstock.pipeline.storage import Files

STALE_MS = 600_000
REFRESH_MS = 30_000


class ArchiveTaken(JobFailed):
    """Another archiver is at work in this archive, or was a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    run: str
    host: str
    pid: int
    # Tells a process from every other that had or will have its number; empty where that cannot be known.
    life: str
    seen_at_ms: int


class Lock:
    """The lock of an archive, held from `take` to `release`."""

    def __init__(self, files: Files, owner: Owner) -> None:
        self._files = files
        self._owner = owner

    @property
    def run(self) -> str:
        return self._owner.run

    @classmethod
    def take(cls, files: Files, *, now_ms: int, is_forced: bool = False) -> "Lock":
        mine = Owner(
            run=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=os.getpid(),
            life=_life_of(os.getpid()),
            seen_at_ms=now_ms,
        )
        if not files.create(LOCK, _content(mine)):
            other = _owner(files)
            if other is not None and not is_forced and not is_abandoned(other, now_ms=now_ms):
                raise ArchiveTaken(
                    f"another archiver is at work in {files.where('')}: process {other.pid} on {other.host}. "
                    "If it is not, wait ten minutes, or say --break-lock"
                )
            files.replace(LOCK, _content(mine))
        return cls(files, mine)

    def refresh(self, *, now_ms: int) -> None:
        """Say that we are still at work, if that has not been said for a while."""
        if now_ms - self._owner.seen_at_ms < REFRESH_MS:
            return
        self._check()
        self._owner = replace(self._owner, seen_at_ms=now_ms)
        self._files.replace(LOCK, _content(self._owner))

    def release(self) -> None:
        other = _owner(self._files)
        if other is not None and other.run == self.run:
            self._files.remove(LOCK)

    def _check(self) -> None:
        other = _owner(self._files)
        if other is not None and other.run != self.run:
            raise ArchiveTaken(
                f"{self._files.where('')} was taken over by process {other.pid} on {other.host}; this run ends"
            )


def is_abandoned(owner: Owner, *, now_ms: int) -> bool:
    """Whether this lock is not held any more, as far as can be seen from here."""
    if now_ms - owner.seen_at_ms > STALE_MS:
        return True
    here, _, _ = _life_of(os.getpid()).rpartition(" ")
    # Of a process of another machine, or of another container, nothing can be seen.
    if not here or owner.life.rpartition(" ")[0] != here:
        return False
    return _life_of(owner.pid) != owner.life


def _life_of(pid: int) -> str:
    """Return what tells this life of a process: the boot, the namespace of its number, and when it began."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    try:
        # The name of the program, in brackets, may have spaces; what follows it has none.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{boot} {namespace} gone"
    # A zombie has ended, though its parent has not asked for its code yet.
    return f"{boot} {namespace} {'gone' if fields[0] in 'ZX' else fields[19]}"


def _content(owner: Owner) -> bytes:
    return json.dumps(asdict(owner)).encode() + b"\n"


def _owner(files: Files) -> Owner | None:
    """Return the owner of the lock; None if it is not held, or if what is there is no lock."""
    try:
        return Owner(**json.loads(files.read(LOCK)))
    except (ValueError, TypeError):
        return None
    except Exception:
        # A lock may go while it is read, and each file system says so in its own way.
        if files.exists(LOCK):
            raise
        return None
