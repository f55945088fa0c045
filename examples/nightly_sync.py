"""A script without asyncio that may be started twice and does its work once.

Each night the changed rows of a table are to reach another system. The script names each
change by its row and version; a second start within the day adds nothing.

It prints:

    first start: 3 to do
    second start: 3 to do
    synced: row 1 version 7, row 2 version 3, row 3 version 1
    third start: 0 to do
"""

import penstock
from penstock import Draft
from penstock.client import SyncQueue

TABLE = [(1, 7, "anna"), (2, 3, "ben"), (3, 1, "carl")]
DAY_S = 86_400


def collect(changes: SyncQueue) -> int:
    """Queue every change, and return how many are to do."""
    drafts = [
        Draft(data={"row": row, "version": version, "name": name}, dedup_id=f"{row}/{version}")
        for row, version, name in TABLE
    ]
    changes.send_many(drafts)
    return changes.describe().current_message_count


def carry_out(changes: SyncQueue, target: dict[int, int]) -> None:
    """Do what is to do. To write a row twice is harmless, so it does not matter if a message comes again."""
    while batch := changes.receive(limit=100):
        for message in batch:
            change = message.json()
            target[change["row"]] = change["version"]
        batch.ack()


def main() -> None:
    with penstock.connect() as client:
        client.create_queue("sync-changes", dedup_window_s=DAY_S)
        changes = client.queue("sync-changes")
        target: dict[int, int] = {}

        print("first start:", collect(changes), "to do")
        print("second start:", collect(changes), "to do")
        carry_out(changes, target)
        print("synced:", ", ".join(f"row {row} version {version}" for row, version in sorted(target.items())))
        # The names are remembered although the messages are done.
        print("third start:", collect(changes), "to do")
        changes.delete()


if __name__ == "__main__":
    main()
