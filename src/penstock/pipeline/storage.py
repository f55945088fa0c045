"""The folder of a manifest of writes, and of the small files of an archive.

A `Folder` keeps small texts under names, and rows for a while. `append` returns when the text is durable and never
changes what is there: a folder adds to a file of this process, an object store makes one more object.

    /shared/manifests     plain files, with fsync
    s3://bucket/manifests whatever pyarrow.fs opens: s3 (s3a too), gs, hdfs, abfs
"""

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

if TYPE_CHECKING:
    pass


class Folder(Protocol):
    def prepare(self) -> None:
        """Raise `OSError` if nothing can be kept here, as far as that is known beforehand."""
        ...

    def append(self, name: str, text: str) -> None:
        """Add to ``name``, of which this process is the only writer; durable when it returns."""
        ...

    def put(self, name: str, text: str) -> None:
        """Make ``name`` this text, at once and whole; durable when it returns."""
        ...

    def get(self, name: str) -> str | None:
        """Return what was put there; None if nothing was."""
        ...

    def open_output(self, name: str) -> pa.NativeFile:
        """Return a new file for bytes, for others to read once it is closed; it need not outlive a power cut."""
        ...

    def open_input(self, name: str) -> pa.NativeFile:
        """Return a file of `open_output`; raises `FileNotFoundError` if there is none."""
        ...

    def names(self, under: str) -> list[str]:
        """Return the names of all files below, in order."""
        ...

    def folders(self, under: str) -> list[str]:
        """Return what the folders directly below are called, without a look into them."""
        ...

    def texts(self, name: str) -> str:
        """Return all that was appended to a name of `names`."""
        ...

    def remove(self, under: str) -> None:
        """Remove everything below; nothing there is no error."""
        ...


def open_folder(where: str) -> Folder:
    scheme = urlsplit(where).scheme
    if scheme in ("", "file"):
        return LocalFolder(Path(unquote(urlsplit(where).path) if scheme else where))
    system, path = fs.FileSystem.from_uri(where.replace("s3a://", "s3://", 1))
    return RemoteFolder(system, path)


class LocalFolder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._root))

    def append(self, name: str, text: str) -> None:
        path = self._root / name
        is_new = not path.exists()
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            self._sync_folders(path.parent)

    def put(self, name: str, text: str) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with draft.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self._sync_folders(path.parent)

    def get(self, name: str) -> str | None:
        try:
            return (self._root / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def open_output(self, name: str) -> pa.NativeFile:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(path), "wb")

    def open_input(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / name), "rb")

    def names(self, under: str) -> list[str]:
        top = self._root / under
        return sorted(
            str(path.relative_to(self._root))
            for path in top.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )

    def folders(self, under: str) -> list[str]:
        try:
            with os.scandir(self._root / under) as found:
                return [each.name for each in found if each.is_dir()]
        except FileNotFoundError:
            return []

    def texts(self, name: str) -> str:
        return (self._root / name).read_bytes().decode(errors="replace")

    def remove(self, under: str) -> None:
        shutil.rmtree(self._root / under, ignore_errors=True)

    def _sync_folders(self, folder: Path) -> None:
        """A file is durable when the folders above it know its name."""
        for above in (folder, *folder.parents):
            _sync(above)
            if above == self._root:
                break


class RemoteFolder:
    """An object is whole once it is closed, and cannot be added to: what is appended becomes objects with numbers."""

    def __init__(self, system: fs.FileSystem, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._count = 0

    def prepare(self) -> None:
        self._system.get_file_info(self._root)

    def append(self, name: str, text: str) -> None:
        self._count += 1
        self.put(f"{name}.{self._count:08}", text)

    def put(self, name: str, text: str) -> None:
        with self.open_output(name) as stream:
            stream.write(text.encode())

    def get(self, name: str) -> str | None:
        try:
            return self.texts(name)
        except FileNotFoundError:
            return None

    def open_output(self, name: str) -> pa.NativeFile:
        path = f"{self._root}/{name}"
        # Object stores need no folders; HDFS does.
        self._system.create_dir(path.rpartition("/")[0], recursive=True)
        return self._system.open_output_stream(path)

    def open_input(self, name: str) -> pa.NativeFile:
        return self._system.open_input_file(f"{self._root}/{name}")

    def names(self, under: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{under}", recursive=True, allow_not_found=True)
        found = [info.path for info in self._system.get_file_info(selector) if info.type == fs.FileType.File]
        return sorted(path[len(self._root) + 1 :] for path in found)

    def folders(self, under: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{under}", allow_not_found=True)
        found = self._system.get_file_info(selector)
        return [info.base_name for info in found if info.type == fs.FileType.Directory]

    def texts(self, name: str) -> str:
        with self._system.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read()).decode(errors="replace")

    def remove(self, under: str) -> None:
        try:
            self._system.delete_dir(f"{self._root}/{under}")
        except (FileNotFoundError, pa.ArrowInvalid):
            pass


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
