"""Files that are written: what a path names is replaced as a whole, by rename, when the writer is closed."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import secrets
import stat
import weakref
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal

from bowstring.closing import Closing
from bowstring.errors import MissingFile, NotWritable, UsageError

if TYPE_CHECKING:
    from types import TracebackType

_PURPOSES: Final = {"readable": "reading", "writable": "writing"}
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_BESIDE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40
_LONGEST_NAME: Final = 200
_BESIDE_HINT: Final = (
    "A file is written beside the old one and renamed; a file object that you opened is written as it is."
)


class Target:
    """Where a writer puts its bytes: a new file beside the one that a path names, which gets the name at the end.

    The file that was there is never changed: views of it stay as they are. A file object is the caller's, written
    directly and neither closed nor flushed. What is not a regular file, such as a FIFO, is written as it is too.
    """

    def __init__(self, sink: Any) -> None:
        self._name = ""
        self._end: weakref.finalize[Any, Target] | None = None
        if not isinstance(sink, str | os.PathLike):
            self.file: Any = _binary(sink)
            return
        self._path = file_path(sink)
        self._beside, self.file = "", None
        self._folders: list[int] = []  # the last one is that of the file
        try:
            self._name, before = _replaced(self._path, self._folders)
            if self._name:
                beginning = os.fsdecode(os.fsencode(self._name)[:_LONGEST_NAME])
                self._beside = f".{beginning}.{secrets.token_hex(4)}.part"
                self.file = _created(self._path, self._folders[-1], self._beside, before)
            else:
                self.file = open(self._path, "wb")  # noqa: SIM115  closed at the end
            ending = self.file, self._folders, self._beside, os.getpid()
            # Also for a writer that is collected, or that the program ends with, before it was closed.
            self._end = weakref.finalize(self, _end, *ending)
        except BaseException:
            _end(self.file, self._folders, self._beside, os.getpid())
            raise

    def finish(self) -> None:
        """Let the path name what was written. Does nothing the second time, or after `discard`."""
        if self._end is None or not self._end.alive:
            return
        try:
            self.file.close()
            if self._name:
                folder = self._folders[-1]
                os.replace(self._beside, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error
        finally:
            self._end()

    def discard(self) -> None:
        """Leave what was there before, and nothing else. Does nothing the second time, or after `finish`."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> Any:
        return self.file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()


class FileWriter(Closing):
    """A writer with a sink: a ``with`` block that an error leaves writes nothing more, and replaces no file."""

    @abstractmethod
    def abort(self) -> None:
        """Write nothing more. What a path named before stays; a file object keeps what was written. Idempotent."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def file_path(path: Any) -> str:
    """Return what names a file, which may not be there; refuse what no file can be called."""
    try:
        name = os.fsencode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("this is not a file path", found=ascii(path)[:80]) from error
    if b"\0" in name:
        raise UsageError("a path holds no zero byte", found=ascii(path)[:80])
    return os.fsdecode(name)


def check_file(file: Any, wanted: Literal["readable", "writable"]) -> None:
    """Refuse a file object that is closed, or says that it was opened for something else."""
    if getattr(file, "closed", False) is True:
        raise UsageError("the file is closed", found=repr(file)[:120])
    asked = getattr(file, wanted, None)
    if callable(asked) and asked() is False:
        raise UsageError(f"the file was not opened for {_PURPOSES[wanted]}", found=repr(file)[:120])


def _binary(sink: Any) -> Any:
    if isinstance(sink, io.TextIOBase) or not hasattr(sink, "write"):
        raise UsageError(
            "this cannot be written to",
            expected="a path or a file opened for writing in binary mode",
            found=type(sink).__name__,
        )
    check_file(sink, "writable")
    return sink


def _replaced(path: str, folders: list[int]) -> tuple[str, os.stat_result | None]:
    """Return the name, in its folder, of the file that a path leads to, and what is there now; open the folder.

    The name is empty where there is something that cannot be replaced, and is written as it is.
    """
    try:
        before = os.stat(path)  # by which the kernel refuses links of others in folders that all may write
    except FileNotFoundError:
        before = None
    _open_folder(path, os.path.dirname(path), None, folders)
    name = os.path.basename(path)
    proc = os.stat("/proc").st_dev if os.path.exists("/proc") else None
    for _ in range(_MOST_LINKS):
        folder = folders[-1]
        # A link in /proc is an open descriptor: its other holders must see what is written.
        in_proc = os.fstat(folder).st_dev == proc
        if name in ("", ".", "..") or in_proc or (before and not stat.S_ISREG(before.st_mode)):
            return "", before
        try:
            above, name = os.path.split(os.readlink(name, dir_fd=folder))
        except OSError:  # not a link
            return name, before
        _open_folder(path, above, folder, folders)
        os.close(folders.pop(0))
    return "", before  # open() says that these are too many links


def _open_folder(path: str, folder: str, below: int | None, folders: list[int]) -> None:
    """Add a folder to those that are open, by C code: no interrupt comes between."""
    try:
        folders += map(functools.partial(os.open, dir_fd=below), (folder or ".",), (_FOLDER,))
    except FileNotFoundError as error:
        raise MissingFile("there is no such folder", found=folder, where=path) from error


def _created(path: str, folder: int, beside: str, before: os.stat_result | None) -> Any:
    """Create the file beside the one that a path names, with its rights."""
    if before is not None and not _may_replace(folder, path, before):
        raise NotWritable("this file may not be written", found=path)
    # The new file has mode 0600 until it has the old file's mode.
    mode = 0o666 if before is None else 0o600
    fds: list[int] = []  # noted by C code, and taken from there, so that no interrupt comes between
    try:
        fds += map(functools.partial(os.open, dir_fd=folder), (beside,), (_BESIDE,), (mode,))
        if before is not None:
            _take_rights(fds[0], before)
        (file,) = map(open, map(fds.pop, (0,)), ("wb",))
    except PermissionError as error:
        raise NotWritable("no file can be made in this folder", found=path, hint=_BESIDE_HINT) from error
    finally:
        for fd in fds:
            os.close(fd)
    return file


def _may_replace(folder: int, path: str, before: os.stat_result) -> bool:
    holder, user = os.fstat(folder), os.geteuid()
    if holder.st_mode & stat.S_ISVTX and user not in (0, holder.st_uid, before.st_uid):
        return False
    return os.access(path, os.W_OK, effective_ids=True)


def _take_rights(fd: int, before: os.stat_result) -> None:
    """Give a new file the mode of the one that it replaces, and its owner and group as far as they can be given."""
    mode = before.st_mode & 0o777
    now = os.fstat(fd)
    if now.st_uid != before.st_uid:
        with contextlib.suppress(PermissionError):
            os.fchown(fd, before.st_uid, -1)
    if now.st_gid != before.st_gid:
        try:
            os.fchown(fd, -1, before.st_gid)
        except PermissionError:
            mode &= ~stat.S_IRWXG  # they were another group's
    with contextlib.suppress(PermissionError):  # file systems without modes
        os.fchmod(fd, mode)


def _end(file: Any, folders: list[int], beside: str, process: int) -> None:
    """Close what is open, and remove a file that has not been given its name. Idempotent."""
    is_parents = os.getpid() != process  # in a child that was forked
    if file is not None:
        if is_parents:
            _discard_buffer(file)
        with contextlib.suppress(OSError):
            file.close()
    if beside and folders and not is_parents:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folders[-1])
    while folders:
        os.close(folders.pop())


def _discard_buffer(file: Any) -> None:
    """Let what a file still has in its buffer, and this process alone, be written nowhere."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(null, file.fileno(), inheritable=False)
        finally:
            os.close(null)
