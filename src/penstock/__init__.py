"""Penstock: a durable message queue for Python teams.

Importing this package imports nothing else: what it offers is fetched when it is first asked for.
"""

from importlib import import_module

from penstock.version import __version__ as __version__

# As `typing` has it, which would be most of the price of this import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock.client import Batch as Batch
    from penstock.client import Client as Client
    from penstock.client import Draft as Draft
    from penstock.client import Message as Message
    from penstock.client import PenstockError as PenstockError
    from penstock.client import QueueFull as QueueFull
    from penstock.client import QueueNotFound as QueueNotFound
    from penstock.client import StaleReceipt as StaleReceipt
    from penstock.client import SyncClient as SyncClient
    from penstock.client.worker import Reject as Reject
    from penstock.client.worker import Retry as Retry
    from penstock.client.worker import RetryIn as RetryIn
    from penstock.client.worker import Worker as Worker
    from penstock.connect import connect as connect

_CLIENT = "penstock.client"
_WORKER = "penstock.client.worker"
_HOMES = {
    "connect": "penstock.connect",
    "Worker": _WORKER,
    "Reject": _WORKER,
    "Retry": _WORKER,
    "RetryIn": _WORKER,
    "Batch": _CLIENT,
    "Client": _CLIENT,
    "Draft": _CLIENT,
    "Message": _CLIENT,
    "PenstockError": _CLIENT,
    "QueueFull": _CLIENT,
    "QueueNotFound": _CLIENT,
    "StaleReceipt": _CLIENT,
    "SyncClient": _CLIENT,
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
