"""What is where below the root of an archive. Paths here are relative to it.

messages/queue=<name>/day=<YYYY-MM-DD>/<batch>-<number>.parquet    rows: committed ones, nothing else
manifest/<batch>.json                                              one for each committed batch
queues.json                                                        the settings of each queue, as last seen
dead_letters/dead_letters.parquet                                  the dead letters, as last seen
staging/<batch>-<run>/                                             a batch on its way
checkpoint/<run>/                                                  Spark's notes of a run; of no use after it
lock.json                                                          who is at work

A batch has twenty digits, so that names sort as numbers do. The name of a queue has no
character that a folder would have to escape.
"""

from penstock.pipeline.locations import MANIFEST, MESSAGES

STAGING = "staging"
CHECKPOINT = "checkpoint"
QUEUES = "queues.json"
LOCK = "lock.json"

_DIGITS = 20


def entry_path(batch: int) -> str:
    return f"{MANIFEST}/{batch:0{_DIGITS}}.json"


def batch_of(name: str) -> int | None:
    """Return the batch of an entry of the manifest; none for other files, such as one that is being written.

    >>> batch_of("00000000000000000012.json"), batch_of(".00000000000000000012.json.tmp")
    (12, None)
    """
    digits, _, ending = name.partition(".")
    return int(digits) if ending == "json" and len(digits) == _DIGITS and digits.isdecimal() else None


def staging_path(batch: int, run: str) -> str:
    return f"{STAGING}/{batch:0{_DIGITS}}-{run}"


def message_path(staged: str, *, batch: int, number: int) -> str:
    """Return where a staged file of a batch comes to stand: in the same folders, under a name of its own.

    >>> message_path("queue=orders/day=2026-03-01/part-00000.c000.zstd.parquet", batch=7, number=2)
    'messages/queue=orders/day=2026-03-01/00000000000000000007-00002.parquet'
    """
    folders = staged.rpartition("/")[0]
    return f"{MESSAGES}/{folders}/{batch:0{_DIGITS}}-{number:05}.parquet"


def queue_of(path: str) -> str:
    """Return the queue whose rows are in a file.

    >>> queue_of("messages/queue=orders.dead/day=2026-03-01/00000000000000000007-00002.parquet")
    'orders.dead'
    """
    return next(part.removeprefix("queue=") for part in path.split("/") if part.startswith("queue="))
