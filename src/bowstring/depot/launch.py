"""Find the depot of this user and host, or start one: its folder, its locks, and the process itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import secrets
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from bowstring import errors
from bowstring.depot.client import Depot
from bowstring.depot.options import Options, check_remote, differing
from bowstring.depot.protocol import VERSION, DepotConnection
from bowstring.memory.slab import Descriptor, opened
from bowstring.private_folders import lock, private_folder
from bowstring.transport import encrypts
from bowstring.transport.socket_file import address_of, runtime_folder

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    from bowstring.transport.certificates import TlsConfig

_DATA: Final = re.compile(rf"depot-{VERSION}-[0-9a-f]{{12}}\.sock")


class Paths:
    """The files of the depots of one user, in a folder that nobody else can enter."""

    def __init__(self, folder: str | None = None) -> None:
        named = folder or os.environ.get("BOWSTRING_DEPOT") or None
        if named is None:
            self.folder = runtime_folder()
        else:
            hint = "Name another folder, or remove it."
            self.folder = private_folder(os.path.abspath(named), "the folder of a depot", hint)
        path = os.path.join(self.folder, f"depot-{VERSION}")
        self.control = address_of(f"{path}.sock")  # where clients find the depot
        self.start_lock = f"{path}.start"  # who starts a depot, or ends one, holds this
        self.life_lock = f"{path}.life"  # a depot holds this as long as it lives
        self.log = f"{path}.log"  # what a depot has to say when nobody listens

    def new_data(self) -> str:
        """Return an address for readers that no depot had before: who looks for an earlier one finds nobody.

        What earlier ones left is removed: only the holder of `life_lock` may call this.
        """
        for name in os.listdir(self.folder):
            if _DATA.fullmatch(name):
                os.unlink(os.path.join(self.folder, name))
        return address_of(os.path.join(self.folder, f"depot-{VERSION}-{secrets.token_hex(6)}.sock"))


def try_lock(path: str, seconds: float = 0.0) -> Descriptor | None:
    """Return a descriptor that holds the lock of a file until it is closed.

    ``None`` where another process held it for all of `seconds`.
    """
    fd = opened(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return fd if lock(fd, seconds) else None


@contextlib.contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Hold the lock of a file for the time of a ``with`` block."""
    fd = try_lock(path, seconds)
    if fd is None:
        raise errors.DeadlineExceeded(
            f"another process starts a depot, for more than {seconds:g} s", where=path
        )
    try:
        yield
    finally:
        # Not by closing it alone: a child of a fork in another thread has it open, too.
        fcntl.flock(fd, fcntl.LOCK_UN)
        fd.close()


READY: Final = b"ready"
_MOST_SAID: Final = 4096
_END_SECONDS: Final = 1.0
# All that a depot needs of its starter's environment, which may hold secrets.
_KEPT: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "LD_LIBRARY_PATH",
        "VIRTUAL_ENV",
    }
)
_KEPT_PREFIXES: Final = ("LC_", "BOWSTRING_", "PYTHONHOME", "COVERAGE_")
_NEVER_KEPT: Final = "BOWSTRING_TOKEN"


def found_or_started(
    paths: Paths,
    options: Options,
    find: Callable[[float], DepotConnection],
    seconds: float,
    tcp: str | None = None,
) -> DepotConnection:
    """Return what `find` finds, after starting a depot where there is none (`find` raises `BrokenError`).

    A depot is not started if it may not listen at `tcp`.
    """
    end = time.monotonic() + seconds

    def left() -> float:
        return max(0.0, end - time.monotonic())

    with contextlib.suppress(errors.BrokenError):
        return find(left())
    # Other clients wait here meanwhile, and then find what was started.
    with locked(paths.start_lock, left()):
        with contextlib.suppress(errors.BrokenError):
            return find(left())
        if tcp is not None:
            check_remote(options, tcp)
        try:
            _start(paths, options, end)
        except errors.RefusedError:
            # There may be one by now: another process began to start it, and was killed with its lock.
            with contextlib.suppress(errors.BrokenError):
                return find(left())
            raise
        return find(left())


def _start(paths: Paths, options: Options, end: float) -> None:
    heard, told = map(Descriptor, os.pipe2(os.O_CLOEXEC))
    command = [sys.executable, "-P", "-m", "bowstring.depot", paths.folder, options.to_json(), str(told)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with contextlib.closing(opened(os.open, paths.log, flags, 0o600)) as output:
            starter = subprocess.Popen(  # noqa: S603  our own interpreter, and a module of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=_environment(),
                pass_fds=(told,),
                start_new_session=True,
            )
    except OSError as error:
        heard.close()  # an error that is kept keeps this frame
        raise errors.RefusedError("a depot cannot be started", found=str(error)) from error
    finally:
        told.close()  # the end of what it says is seen when no other process has it
    poll, said = select.poll(), b""
    poll.register(heard, select.POLLIN)
    try:
        while len(said) < _MOST_SAID:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise errors.DeadlineExceeded("a depot was started, and was not ready in time")
            more = os.read(heard, _MOST_SAID)
            if not more:
                break
            said += more
    finally:
        heard.close()
        try:
            starter.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            starter.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                starter.wait(_END_SECONDS)
    if said != READY:
        last_words = ""
        with contextlib.suppress(OSError), open(paths.log, errors="replace") as log:
            last_words = " ".join(log.read().split()[-60:])
        raise errors.RefusedError(
            "a depot could not be started",
            found=said.decode(errors="replace") or last_words or "it ended without a word",
            where=paths.log,
        )


def _environment() -> dict[str, str]:
    """Return what a depot needs of our environment: where to find what this process imported, and little else."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or (name.startswith(_KEPT_PREFIXES) and name != _NEVER_KEPT)
    }
    ours = os.path.abspath(f"{__file__}/../../..")
    path = [os.path.abspath(each) for each in (ours, *sys.path) if each or each == ours]
    kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    return kept


TOO_LATE: Final = "depot options come too late"
_STAYS: Final = "holds data, is read, or was started by hand"
_END_IT: Final = "End it first (`bowstring depot stop`), or start it so with `bowstring depot run`."


def connect(
    *,
    start: bool = True,
    address: str | Sequence[str] | None = None,
    folder: str | None = None,
    tcp: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    options: Options | None = None,
    timeout: float = 30.0,
) -> Depot:
    """Find this user's depot on this host, and start one where there is none.

    Parameters
    ----------
    start
        Whether to start one; else there must be one.
    address
        A certain depot, by its :attr:`Depot.address` or :attr:`Depot.remote_address`, or by its
        :attr:`Depot.addresses`, of which the first one that answers is taken; it is not started.
    folder
        Where this user's depot lies, where that is not the private runtime folder, or the one that
        ``BOWSTRING_DEPOT`` names in the environment.
    tcp
        An address of this host (``tcp://192.0.2.7:0``) at which readers and drivers on other hosts find the depot,
        too. The first one that is asked for stays. Off loopback the depot must have been started with
        ``Options(tls=…)``, and the address is ``tls://192.0.2.7:0``; or with ``Options(plaintext=True)``: then the
        token, requests and data cross the network unencrypted, and who listens there can read, and release,
        everything.
    tls
        Whom to trust, and what to show, at depots of ``tls:``: that of `address`, and those of other hosts that
        hold what this one is told to release.
    options
        For a depot that is started. One that runs with others, and holds nothing, is replaced; one that holds data,
        or is read, stays, with a warning, or an error where it cannot listen at `tcp` as the options say.
    timeout
        How long all of it may take, in seconds.

    Returns
    -------
    Depot
        Close it, or use it in a ``with`` block.

    Raises
    ------
    BrokenError
        There is no depot, and none shall be started.
    UsageError
        It may not listen at `tcp`, and was not started, or runs with other options.
    RefusedError
        It cannot be started.
    DeadlineExceeded
        It does not answer.
    AccessDenied
        The token is wrong.

    Examples
    --------
    >>> import tempfile, bowstring as bow
    >>> with tempfile.TemporaryDirectory() as folder, bow.depot.connect(folder=folder) as depot:
    ...     held = depot.status().applications
    ...     _ = depot.stop()
    >>> held
    ()
    """
    paths = Paths(folder) if address is None else None
    where = address if paths is None else paths.control
    if not where:
        raise errors.UsageError("an address of a depot is empty", found=repr(where))
    *better, last = (where,) if isinstance(where, str) else where
    end = time.monotonic() + timeout

    def find(seconds: float) -> DepotConnection:
        passed_over = []
        for each in better:
            try:
                return DepotConnection(each, seconds, tls)
            except (errors.AccessDenied, errors.BrokenError, errors.DeadlineExceeded) as error:
                passed_over.append(f"{each.partition('?')[0]}: {error.what}")
        try:
            return DepotConnection(last, seconds, tls)
        except errors.BowstringError as error:
            error.hint = "; ".join([*([error.hint] if error.hint else []), *passed_over]) or None
            raise

    def find_or_start() -> DepotConnection:
        if paths is None or not start:
            return find(timeout)
        return found_or_started(paths, options or Options(), find, timeout, tcp)

    while True:
        depot = Depot(find_or_start, tls)
        try:
            # One that was ended is replaced, maybe by a client with yet other options.
            if _suits(depot, options, tcp, replaces=paths is not None and start and time.monotonic() < end):
                return depot
        except BaseException:
            depot.close()
            raise
        depot.close()


def _suits(depot: Depot, options: Options | None, tcp: str | None, *, replaces: bool) -> bool:
    """Let a depot listen at `tcp`; return false where it ran with other options, and was ended to be replaced.

    Raises UsageError where it stays, and cannot be reached from other hosts as is asked.
    """
    asks = options is not None and (options.plaintext or options.tls is not None)
    refused = None
    try:
        if tcp is not None:
            depot._listen(tcp, encrypted=encrypts(tcp) if asks else None)
    except errors.UsageError as error:
        if not asks:
            raise
        refused = error
    other = {} if options is None else differing(options, depot._main.options)
    limit = depot._main.address_space
    if replaces and limit is not None and resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        other["RLIMIT_AS"] = limit  # which this process does not have
    if not (other or refused):
        return True
    if replaces and not depot._main.kept:
        try:
            if depot._stop({"if_empty": True}):
                return False
        except (errors.BrokenError, errors.ClosedError):  # another client ended it
            return False
    if refused is not None:
        raise errors.UsageError(
            f"the depot of this host runs with other options, and {_STAYS}",
            expected=f"one that listens at {tcp}",
            found=f"process {depot.pid}: {refused.what}",
            hint=_END_IT,
        ) from refused
    if replaces or depot._main.kept or depot.status().datasets:
        text = (
            f"{TOO_LATE}: the depot of this host (process {depot.pid}) runs with "
            f"{', '.join(f'{name}={value}' for name, value in other.items())}, and {_STAYS}. {_END_IT}"
        )
        errors.warn_caller([text], RuntimeWarning)
    return True
