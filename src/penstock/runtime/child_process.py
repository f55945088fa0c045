"""A process of its own for long work: how it is started, and what it does when it is.

    parent                                  child: python -m penstock.runtime.child_process
    ──────                                  ─────
    request ───────────── stdin ──────────▶ module:function(disk, request)
    answer  ◀──────────── stdout ────────── its bytes, then exit 0
            (stdin stays open meanwhile: when it closes, the parent is gone, and the child ends)

A child is a fresh interpreter, not a fork: a fork would copy the threads' locks
and, page by page, the parent's memory. It runs at a lower priority.
"""

import asyncio
import errno
import importlib
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import EXIT_STORAGE_FAILED, NO_SPACE, BackgroundProcessFailed, Disk

EXIT_REFUSED = 73
EXIT_NO_SPACE = 75
NICENESS = 10

# The system refuses a file, and nothing is wrong with the disk.
_REFUSALS = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ELOOP})
_LENGTH = struct.Struct("<Q")
_ERRORS_BYTES_MAX = 4_000


class ChildProcess:
    """Satisfies `runtime.interface.BackgroundProcess`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def run(self, work: Callable[[Disk, bytes], bytes], request: bytes) -> bytes:
        name = f"{work.__module__}:{work.__qualname__}"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, name, str(self._root), stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(_LENGTH.pack(len(request)) + request)
            answer, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            code = await process.wait()
        except BaseException:
            # The caller is gone: its work ends too.
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise
        finally:
            process.stdin.close()
        if code != 0:
            reason = errors[-_ERRORS_BYTES_MAX:].decode(errors="replace").strip()
            raise BackgroundProcessFailed(
                f"{name} ended with {code}: {reason}", is_disk_failure=code == EXIT_STORAGE_FAILED
            )
        return answer


def main() -> None:
    """Do what the parent asks."""
    name, root = sys.argv[1:]
    os.nice(NICENESS)
    source = sys.stdin.buffer
    (length,) = _LENGTH.unpack(source.read(_LENGTH.size))
    request = source.read(length)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, _, function = name.partition(":")
    try:
        answer = getattr(importlib.import_module(module), function)(SystemDisk(Path(root)), request)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_exit_code(error))
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _exit_code(error: OSError) -> int:
    if error.errno in NO_SPACE:
        return EXIT_NO_SPACE
    return EXIT_REFUSED if error.errno in _REFUSALS else EXIT_STORAGE_FAILED


def _end_with_parent() -> None:
    # Not `sys.stdin`: an interpreter that ends while a thread holds its lock aborts.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
