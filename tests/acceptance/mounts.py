"""File systems of our own: small ones to fill, and ones that lose power. Takes root; undone on the way out."""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CAP_SYS_ADMIN = 1 << 21
_FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_GOING_DOWN_WITHOUT_FLUSHING_THE_JOURNAL = 2


def _may_mount() -> bool:
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    capabilities = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(capabilities, 16) & _CAP_SYS_ADMIN)


def _has_loop_devices() -> bool:
    return Path("/dev/loop-control").exists() and all(map(shutil.which, ("losetup", "mkfs.ext4")))


needs_to_mount = pytest.mark.skipif(not _may_mount(), reason="mounts a file system: needs root (CAP_SYS_ADMIN)")
needs_a_loop_device = pytest.mark.skipif(
    not (_may_mount() and _has_loop_devices()),
    reason="mounts ext4 in a file: needs root (CAP_SYS_ADMIN), /dev/loop-control, losetup and mkfs.ext4",
)


@contextmanager
def tmpfs(folder: Path, size_bytes: int, *, files: int = 0) -> Iterator[Path]:
    """Mount an empty file system of this size in memory; for so many files at most, if a number is given."""
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},nr_inodes={files}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        # Lazy: a test that failed may have left a file open, and still goes away altogether.
        _run("umount", "--lazy", str(folder))


def resize_tmpfs(folder: Path, size_bytes: int) -> None:
    _run("mount", "-o", f"remount,size={size_bytes}", str(folder))


class Ext4:
    """An ext4 file system in a sparse file, mounted at ``folder`` until its power is cut."""

    def __init__(self, device: str, folder: Path) -> None:
        self._device = device
        self.folder = folder

    def cut_power(self) -> int:
        """Forget everything that was not synced, as the machine would, and return when, by the monotonic clock.

        From then on nothing can be written, and nothing said about it is to be believed.
        """
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flags = struct.pack("I", _GOING_DOWN_WITHOUT_FLUSHING_THE_JOURNAL)
            at_ns = time.monotonic_ns()
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, flags)
            return at_ns
        finally:
            os.close(descriptor)

    def mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.folder))

    def unmount(self) -> None:
        _run("umount", str(self.folder))

    def sync(self) -> None:
        _run("sync", "--file-system", str(self.folder))

    def restore_power(self) -> None:
        """Mount again what was on the disk. No process may have a file open."""
        self.unmount()
        self.mount()


@contextmanager
def ext4(image: Path, folder: Path, size_bytes: int) -> Iterator[Ext4]:
    """Make an ext4 file system in the file ``image`` and mount it at ``folder``."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0", str(image))
    folder.mkdir()
    device = _run("losetup", "--find", "--show", str(image))
    try:
        with _honest(device):
            disk = Ext4(device, folder)
            disk.mount()
            try:
                yield disk
            finally:
                if folder.is_mount():
                    _run("umount", "--lazy", str(folder))
    finally:
        _run("losetup", "--detach", device)
        image.unlink()


@contextmanager
def _honest(device: str) -> Iterator[None]:
    """Let a loop device carry out one block at a time.

    It takes a write that its file cut short for a success: of two blocks, the one
    for which there was no room would be lost in silence. Of one block it cannot be.
    """
    limit = Path("/sys/block") / Path(device).name / "queue" / "max_sectors_kb"
    before = limit.read_text()
    limit.write_text("4")
    try:
        yield
    finally:
        limit.write_text(before)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()
