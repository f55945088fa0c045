"""``python -m tests.pipeline.archive.killed DATA ROOT KILLS SEED``: archivers of a data folder, each killed with -9.

Each is a process of its own that does what the driver and its tasks do, without a Spark that would take ten seconds to
start. Before it goes on it looks at what the last one has left, as any reader does: every row before the positions,
once, and no other. The last one is let be.
"""

import os
import random
import signal
import sys
import time

from penstock.pipeline.archive.files import ARCHIVED, write_slice
from penstock.pipeline.archive.position import next_batch, position_name, positions_of
from penstock.pipeline.options import ReadOptions, read_options
from penstock.pipeline.source.ranges import Slice, Wanted
from penstock.pipeline.source.reader import open_histories
from penstock.pipeline.tables import DAY, Table

# Rows of a batch, and of a task.
LIMITS = (200, 100)
# A run that is let be takes some seconds: most die on the way.
LIFE_S_MAX = 1.5
WRONG = 3


def archive_all(data: str, root: str) -> None:
    read = read_options({"path": data})
    with open_histories(read) as histories:
        table = Table.begin(root, ARCHIVED, described={}, partition_by=[DAY])
        check(table, read)
        while True:
            batch = next_batch(table, histories, None, LIMITS, may_have_gaps=False)
            if not batch.parts:
                return
            files = [file for part in batch.parts for file in write_slice(part, read, root).files]
            table.commit(files, positions={position_name(shard): end for shard, end in batch.ends.items()})


def check(table: Table, read: ReadOptions) -> None:
    """End with a code of its own if the table is not the rows of the history before its positions."""
    found = table.delta.to_pyarrow_dataset().to_table(columns=["offset"])["offset"].to_pylist()
    ends = positions_of(table)
    wanted: list[int] = []
    with open_histories(read) as histories:
        for shard, kept in histories.kept().items():
            columns = Wanted(tuple(each for each in read.columns if each.name == "offset"), frozenset(), None, None)
            for batch in histories.read(Slice(kept._replace(end=ends.get(shard, 0)), goes_on=False), columns):
                wanted += batch.column("offset").to_pylist()
    if sorted(found) != sorted(wanted):
        os._exit(WRONG)


def main(data: str, root: str, kills: str, seed: str) -> None:
    dice = random.Random(seed)
    for left in range(int(kills), -1, -1):
        child = os.fork()
        if not child:
            archive_all(data, root)
            os._exit(0)
        if left:
            time.sleep(dice.uniform(0, LIFE_S_MAX))  # Real time: the moment is what is drawn.
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) not in {0, -signal.SIGKILL}:
            sys.exit(f"with {left} kills left, an archiver ended with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
