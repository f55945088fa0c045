"""Who may do what: callers, their roles, and the queues those hold for."""

from enum import IntEnum
from typing import Self


class Role(IntEnum):
    """What a caller may do; each includes those below it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


class KeyNeeded(Exception):
    """The server has keys, and the request has none."""


class KeyUnknown(Exception):
    """The key of the request is not one of the server's."""


class NotAllowed(Exception):
    """The key does not have this role on this queue."""


class TooManyQueuesMade(Exception):
    """The key has made as many queues as it may."""


class Caller:
    def check(self, role: Role, queue: str) -> None:
        pass

    def may_list(self, queue: str) -> bool:
        return True

    def check_may_create(self, queue: str) -> None:
        pass

    def created(self, queue: str) -> None:
        pass

    def deleted(self, queue: str) -> None:
        pass


class Access:
    def authenticate(self, header: str | None) -> Caller:
        return Caller()

    @classmethod
    def open(cls) -> Self:
        return cls()
