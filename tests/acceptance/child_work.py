"""Work for a child process: what may go well or wrong in one. `python -m tests.acceptance.child_work` is a parent."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from penstock.runtime.child_process import ChildProcess
from penstock.runtime.interface import Disk

Work: TypeAlias = Callable[[Disk, bytes], bytes]


def echo(disk: Disk, request: bytes) -> bytes:
    return request


def reverse(disk: Disk, request: bytes) -> bytes:
    return request[::-1]


def niceness(disk: Disk, request: bytes) -> bytes:
    return b"%d" % os.nice(0)


def names(disk: Disk, request: bytes) -> bytes:
    return ",".join(disk.names(request.decode())).encode()


def write(disk: Disk, request: bytes) -> bytes:
    """Write a million bytes to a file."""
    file = disk.open(request.decode())
    try:
        file.write(bytes(1_000_000), 0)
        file.sync()
    finally:
        file.close()
    return b"written"


def go_wrong(disk: Disk, request: bytes) -> bytes:
    raise ValueError(request.decode())


def be_killed(disk: Disk, request: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b"never"


def meet_a_bad_block(disk: Disk, request: bytes) -> bytes:
    """Read where the kernel answers EIO, as it does for a disk that is broken."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        return memory.read(1)


def go_on_for_ever(disk: Disk, request: bytes) -> bytes:
    """Say one's number into a pipe, which is open as long as this process lives."""
    pipe = os.open(request, os.O_WRONLY)
    os.write(pipe, b"%d\n" % os.getpid())
    threading.Event().wait()
    return b"never"


async def main(pipe: str) -> None:
    await ChildProcess(Path.cwd()).run(go_on_for_ever, pipe.encode())


if __name__ == "__main__":
    # Not `__main__`: the child imports the work by the name of its module.
    go_on_for_ever.__module__ = "tests.acceptance.child_work"
    asyncio.run(main(sys.argv[1]))
