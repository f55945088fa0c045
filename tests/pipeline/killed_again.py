"""``python -m tests.pipeline.killed_again OPTIONS COLUMN``: runs of one write, each killed a step later than the last.

A step is whatever others can see: a file that is written, made or removed, a request that is sent. It ends when a run
does, and prints for each kill whether a task or the driver was at work.
"""

import json
import os
import signal
import sys
from itertools import count
from typing import Any

from penstock.pipeline.options import WriteOptions, write_options
from penstock.pipeline.sink.partition import write_partition
from penstock.pipeline.sink.topic_chunks import plan_write
from penstock.pipeline.sink.writer import commit_write
from tests.pipeline.interrupting import PARTITION_ROWS, PARTITIONS, batches, texts

STEPS = {"open", "http.client.send", "os.rename", "os.mkdir", "os.remove", "os.rmdir"}
WRITING = {"wb", "ab"}


def main(said: str, column: str) -> None:
    options = write_options(json.loads(said))
    for steps in count(1):
        child = os.fork()
        if not child:
            run(options, column, steps)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        assert os.WTERMSIG(status) == signal.SIGKILL


def run(options: WriteOptions, column: str, steps: int) -> None:
    left, worker = steps, "task"

    def die_at_last(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in STEPS or (event == "open" and arguments[1] not in WRITING):
            return
        left -= 1
        if not left:
            os.write(sys.stdout.fileno(), f"{worker}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    name = f"run{steps}"
    plan = plan_write(options, is_stream=False) if options.topic else None
    sys.addaudithook(die_at_last)
    written = []
    for partition in range(PARTITIONS):
        first = partition * PARTITION_ROWS
        rows = batches(column, texts(range(first, first + PARTITION_ROWS)))
        written.append(write_partition(rows, options, partition=partition, batch=None, run=name, plan=plan))
    worker = "driver"
    commit_write(options, written, batch=None, run=name, plan=plan)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
