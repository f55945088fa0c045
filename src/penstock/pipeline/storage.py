"""The files of the pipeline: the folder of a manifest of writes, and the files of an archive.

A `Folder` keeps small texts under names, and rows for a while. `append` returns when the text is durable and never
changes what is there: a folder adds to a file of this process, an object store makes one more object.

    /shared/manifests     plain files, with fsync
    s3://bucket/manifests whatever pyarrow.fs opens: s3 (s3a too), gs, hdfs, abfs

`Files` are what an archive takes, with paths relative to its root. `LocalFiles` uses the operating system itself: it
can make things durable, and create a file whole or not at all. `HadoopFiles` does the same through Spark's JVM. On
HDFS and its like a rename is one step. On an object store it is a copy, still of whole objects, and `create` is only
as strict as the store is.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


try:
    from py4j.protocol import Py4JJavaError as _JavaError  # type: ignore[import-untyped]
except ImportError:  # It comes with Spark; without Spark no job gets this far.
    _JavaError = RuntimeError


class Files(Protocol):
    def where(self, path: str) -> str:
        """Return a path as Spark takes it."""
        ...

    def exists(self, path: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, sorted; nothing if there is no such folder."""
        ...

    def read(self, path: str) -> bytes: ...

    def make_folder(self, path: str) -> None: ...

    def create(self, path: str, content: bytes) -> bool:
        """Write a new file, whole and durable; false, and nothing is changed, if there is one of this name."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Write a file in the place of another, if there is one: readers see the one or the other."""
        ...

    def move(self, *, source: str, target: str) -> None:
        """Move a file to where none is. If another process has moved it meanwhile, it is done."""
        ...

    def put(self, *, source: str, target: str) -> None:
        """Move a file to the place of another, if there is one: readers see the one or the other."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; what is not there is gone already."""
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Return when files and folders survive a loss of power, as far as it is in our hands."""
        ...


def files_of(spark: "SparkSession", root: str) -> Files:
    """Return the files below ``root``: a path, or a URI such as hdfs://… or s3a://…"""
    said = urlsplit(root)
    if said.scheme == "file":
        return LocalFiles(Path(said.path))
    # Where Spark's own default is not this machine, a bare path is not of this machine either.
    if not said.scheme and _default_scheme(spark) == "file":
        return LocalFiles(Path(root).absolute())
    return HadoopFiles(spark, root)


class LocalFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def where(self, path: str) -> str:
        # Hadoop takes a path as it is: what a URI would escape must not be.
        return f"file:{self._root / path}"

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(each.name for each in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def make_folder(self, path: str) -> None:
        (self._root / path).mkdir(parents=True, exist_ok=True)
        self.sync([path])

    def create(self, path: str, content: bytes) -> bool:
        target = self._root / path
        written = self._written_beside(target, content)
        try:
            # A link is made at once and never over another file, which a rename would be.
            os.link(written, target)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        _sync(target.parent)
        return True

    def replace(self, path: str, content: bytes) -> None:
        target = self._root / path
        self._written_beside(target, content).replace(target)
        _sync(target.parent)

    def move(self, *, source: str, target: str) -> None:
        new = self._root / target
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self._root / source).rename(new)
        except FileNotFoundError:
            if not new.exists():
                raise

    def put(self, *, source: str, target: str) -> None:
        new = self._root / target
        new.parent.mkdir(parents=True, exist_ok=True)
        (self._root / source).replace(new)

    def remove(self, path: str) -> None:
        gone = self._root / path
        if gone.is_dir():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink(missing_ok=True)

    def sync(self, paths: Iterable[str]) -> None:
        # A new file is found again only if every folder above it knows the next.
        folders: set[Path] = set()
        for path in paths:
            full = self._root / path
            _sync(full)
            folders.update(parent for parent in full.parents if parent.is_relative_to(self._root))
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            _sync(folder)

    def _written_beside(self, target: Path, content: bytes) -> Path:
        beside = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return beside


class HadoopFiles:
    def __init__(self, spark: "SparkSession", root: str) -> None:
        self._jvm: Any = spark._jvm
        self._root = root.rstrip("/")
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path("").getFileSystem(configuration)
        self._context = self._file_context(configuration)
        self._gateway: Any = spark.sparkContext._gateway

    def where(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(folder)))

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def make_folder(self, path: str) -> None:
        self._files.mkdirs(self._path(path))

    def create(self, path: str, content: bytes) -> bool:
        written = self._written_beside(path, content)
        try:
            self._rename(written, path, is_over=False)
        except _JavaError as error:
            self.remove(written)
            if _is_called(error, "FileAlreadyExistsException"):
                return False
            raise
        return True

    def replace(self, path: str, content: bytes) -> None:
        self._rename(self._written_beside(path, content), path, is_over=True)

    def move(self, *, source: str, target: str) -> None:
        self._files.mkdirs(self._path(target).getParent())
        try:
            is_moved = self._files.rename(self._path(source), self._path(target))
        except _JavaError as error:
            # Some file systems say false if there is nothing to move, some throw.
            if not _is_called(error, "FileNotFoundException"):
                raise
            is_moved = False
        if not is_moved and not self.exists(target):
            raise FileNotFoundError(f"{self.where(source)} cannot be moved to {self.where(target)}")

    def put(self, *, source: str, target: str) -> None:
        self._files.mkdirs(self._path(target).getParent())
        self._rename(source, target, is_over=True)

    def remove(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: what is written here is as safe when it is closed as the file system makes it."""

    def _file_context(self, configuration: Any) -> Any:
        # It renames without writing over another file, in one step where the file system can.
        return self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._path("").toUri(), configuration)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.where(path))

    def _written_beside(self, path: str, content: bytes) -> str:
        folder, _, name = path.rpartition("/")
        beside = f"{folder}/.{name}.{secrets.token_hex(4)}.tmp" if folder else f".{name}.{secrets.token_hex(4)}.tmp"
        stream = self._files.create(self._path(beside), True)
        try:
            stream.write(content)
        finally:
            stream.close()
        return beside

    def _rename(self, source: str, target: str, *, is_over: bool) -> None:
        kind = self._jvm.org.apache.hadoop.fs.Options.Rename
        kinds = self._gateway.new_array(kind, 1)
        kinds[0] = kind.OVERWRITE if is_over else kind.NONE
        self._context.rename(self._path(source), self._path(target), kinds)


def _is_called(error: Any, name: str) -> bool:
    """Whether this is what Java threw: each file system has a package of its own for it."""
    return bool(error.java_exception.getClass().getSimpleName() == name)


def _default_scheme(spark: "SparkSession") -> str:
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return str(spark._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).getScheme())  # type: ignore[union-attr]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
